import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NonFiniteLogitsError, PlumblineError } from '../errors.js';
import { createLog } from './log.js';
import { Telemetry } from './telemetry.js';

function collected(json: boolean): { lines: string[]; telemetry: Telemetry } {
  const lines: string[] = [];
  const log = createLog({ level: 'debug', json, destination: { write: (line: string) => lines.push(line) } });
  return { lines, telemetry: new Telemetry(log, () => ({ running: 2, waiting: 1 })) };
}

const usage = { promptTokens: 10, completionTokens: 4, cachedTokens: 2, prefillMs: 5, decodeMs: 40 };
const generation = { requestId: 'req_1', model: 'm', family: 'f', emittedTokens: 3, firstTokenMs: 12 };
const census = { site: 'ar_step', phase: 'decode', step: 1, nanCount: 0, infCount: 8, vocabSize: 8 };

test('JSON lines are JSON, lines for people are one line with their fields', () => {
  const machine = collected(true);
  machine.telemetry.generation({ ...generation, outcome: { kind: 'finished', reason: 'stop', usage } });
  const line = JSON.parse(machine.lines[0] ?? '') as Record<string, unknown>;
  assert.deepEqual([line['request'], line['reason'], line['prompt'], line['level']], ['req_1', 'stop', 10, 30]);
  const people = collected(false);
  people.telemetry.generation({ ...generation, outcome: { kind: 'finished', reason: 'stop', usage } });
  assert.match(
    people.lines[0] ?? '',
    /^\d\d:\d\d:\d\d info {2}generation finished request=req_1 model=m .*decode_ms=40\n$/,
  );
});

test('the original fault behind an internal error is in the log, a cancelled request is no failure', () => {
  const { lines, telemetry } = collected(false);
  const error = new PlumblineError('internal_error', 'internal error', { cause: new TypeError('x is not a function') });
  telemetry.generation({ ...generation, outcome: { kind: 'failed', error } });
  assert.match(lines[0] ?? '', /error internal error .*\nTypeError: x is not a function\n {4}at /);
  telemetry.generation({
    ...generation,
    outcome: { kind: 'failed', error: new PlumblineError('request_cancelled', 'gone') },
  });
  assert.equal(telemetry.receipts.length, 1);
});

test('the newest sixteen failures are remembered, with their census', () => {
  const { telemetry } = collected(true);
  for (let index = 0; index < 20; index++) {
    telemetry.generation({
      ...generation,
      requestId: `req_${index}`,
      outcome: { kind: 'failed', error: new NonFiniteLogitsError(census) },
    });
  }
  assert.equal(telemetry.receipts.length, 16);
  assert.deepEqual([telemetry.receipts[0]?.requestId, telemetry.receipts[0]?.census], ['req_19', census]);
});

test('metrics count tokens, outcomes and invalid rows, and read the queue when they are asked for', async () => {
  const { telemetry } = collected(true);
  telemetry.generation({ ...generation, outcome: { kind: 'finished', reason: 'stop', usage } });
  telemetry.generation({ ...generation, outcome: { kind: 'failed', error: new NonFiniteLogitsError(census) } });
  telemetry.request({ requestId: 'r', method: 'GET', route: '/health', status: 200, milliseconds: 1 });
  const text = await telemetry.metrics.text();
  for (const line of [
    'plumbline_http_requests_total{method="GET",route="/health",status="200"} 1',
    'plumbline_generations_total{model="m",outcome="stop"} 1',
    'plumbline_generations_total{model="m",outcome="non_finite_logits"} 1',
    'plumbline_tokens_total{model="m",kind="prompt"} 10',
    'plumbline_tokens_total{model="m",kind="cached"} 2',
    'plumbline_tokens_total{model="m",kind="completion"} 4',
    'plumbline_non_finite_rows_total{family="f",site="ar_step",kind="masked"} 1',
    'plumbline_requests{state="running"} 2',
    'plumbline_requests{state="waiting"} 1',
  ]) {
    assert.ok(text.includes(line), line);
  }
});

test('a contained failure is one line, in the tone of what is left to do, and a figure among the sums', async () => {
  const lines: string[] = [];
  const log = createLog({ level: 'debug', json: true, destination: { write: (line: string) => lines.push(line) } });
  const containment = { containments: 2, savesRefused: 3, restoresRefused: 4, writeFailures: 5, notReady: 1 };
  const telemetry = new Telemetry(log, () => ({ running: 0, waiting: 0, containment }));
  const receipt = { requestId: 'r', sessionId: 's', milliseconds: 20, errors: [] as string[] };
  telemetry.containment(receipt);
  telemetry.containment({ ...receipt, errors: ['F6 checkpoints: EROFS'] });
  const told = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  assert.deepEqual(
    told.map(({ level, request, sessionId, errors }) => [level, request, sessionId, errors]),
    [
      [40, 'r', 's', []],
      [50, 'r', 's', ['F6 checkpoints: EROFS']],
    ],
  );
  await telemetry.metrics.text();
  const text = await telemetry.metrics.text();
  for (const line of [
    'plumbline_containments_total 2',
    'plumbline_fenced_saves_total 3',
    'plumbline_fenced_restores_total 4',
    'plumbline_fence_write_failures_total 5',
    'plumbline_fenced_sessions 1',
    'plumbline_containment_seconds_count 2',
  ]) {
    assert.ok(text.includes(line), line);
  }
});
