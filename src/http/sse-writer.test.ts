import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PlumblineError } from '../errors.js';
import { SseWriter, type SseSink, type SseState } from './sse-writer.js';

/** A connection that records; `mode` says how writes behave. */
class RecordingSink implements SseSink {
  readonly written: string[] = [];
  ended: 'closed' | 'destroyed' | undefined;
  mode: 'accepts' | 'rejects' | 'stalls' = 'accepts';
  release: (() => void) | undefined;

  async write(bytes: Uint8Array): Promise<void> {
    assert.equal(this.ended, undefined, 'nothing is written after the end');
    if (this.mode === 'rejects') throw new Error('EPIPE');
    this.written.push(Buffer.from(bytes).toString());
    if (this.mode === 'stalls') await new Promise<void>((resolve) => (this.release = resolve));
  }
  tryWrite(bytes: Uint8Array): void {
    assert.equal(this.ended, undefined, 'nothing is written after the end');
    this.written.push(Buffer.from(bytes).toString());
  }
  close(): void {
    assert.equal(this.ended, undefined, 'one end only');
    this.ended = 'closed';
  }
  destroy(): void {
    assert.equal(this.ended, undefined, 'one end only');
    this.ended = 'destroyed';
    this.release?.();
  }
}

const QUIET = { keepAliveMs: 0, stallTimeoutMs: 0 };
const isProgrammingError = (thrown: unknown): boolean =>
  thrown instanceof PlumblineError && thrown.code === 'internal_error';

test('a finished stream is its events, the last events, and the terminator in one write', async () => {
  const sink = new RecordingSink();
  const writer = new SseWriter(sink, QUIET);
  writer.open();
  await writer.event({ a: 'x\ny' });
  assert.equal(await writer.finish([{ b: 1 }, { c: 2 }]), 'sent');
  assert.deepEqual(sink.written, ['data: {"a":"x\\ny"}\n\n', 'data: {"b":1}\n\ndata: {"c":2}\n\ndata: [DONE]\n\n']);
  assert.equal(sink.ended, 'closed');
  assert.equal(writer.state, 'finished');
});

test('a failed stream ends with one error frame and without the terminator', async () => {
  const sink = new RecordingSink();
  const writer = new SseWriter(sink, QUIET);
  writer.open();
  await writer.event(1);
  assert.equal(await writer.fail({ error: { code: 'x' } }), 'sent');
  assert.deepEqual(sink.written, ['data: 1\n\n', 'data: {"error":{"code":"x"}}\n\n']);
  assert.equal(sink.ended, 'closed');
  assert.equal(writer.state, 'failed');
});

test('frames that cannot be written destroy the connection, whichever frame it is', async () => {
  for (const last of ['event', 'finish', 'fail'] as const) {
    const sink = new RecordingSink();
    const writer = new SseWriter(sink, QUIET);
    writer.open();
    sink.mode = 'rejects';
    assert.equal(await (last === 'finish' ? writer.finish([]) : writer[last]({})), 'gone');
    assert.equal(sink.ended, 'destroyed', last);
    assert.equal(writer.state, 'destroyed', last);
  }
});

test('a client that stops reading is cut off after the stall timeout, in a frame and in the last frame', async () => {
  for (const last of ['event', 'finish'] as const) {
    const sink = new RecordingSink();
    const writer = new SseWriter(sink, { keepAliveMs: 0, stallTimeoutMs: 5 });
    writer.open();
    sink.mode = 'stalls';
    assert.equal(await (last === 'finish' ? writer.finish([]) : writer.event({})), 'gone');
    assert.equal(sink.ended, 'destroyed');
  }
});

test('a second write while one waits is a programming error', async () => {
  const sink = new RecordingSink();
  const writer = new SseWriter(sink, QUIET);
  writer.open();
  sink.mode = 'stalls';
  const first = writer.event(1);
  await assert.rejects(writer.event(2), isProgrammingError);
  sink.release?.();
  assert.equal(await first, 'sent');
});

test('a comment goes out within the keep-alive interval, only while nothing else is written, never after the end', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const sink = new RecordingSink();
  const writer = new SseWriter(sink, { keepAliveMs: 100, stallTimeoutMs: 0 });
  const comments = (): number => sink.written.filter((text) => text === ': keep-alive\n\n').length;
  t.mock.timers.tick(1000);
  assert.equal(comments(), 0, 'none before the stream is open');
  writer.open();
  t.mock.timers.tick(100);
  assert.equal(comments(), 1);
  for (let event = 0; event < 20; event++) {
    await writer.event(event);
    t.mock.timers.tick(50);
  }
  assert.equal(comments(), 1, 'none while events flow');
  t.mock.timers.tick(400);
  assert.ok(comments() >= 4, `${comments()} comments in four intervals of silence`);
  await writer.finish([]);
  const atEnd = comments();
  t.mock.timers.tick(1000);
  assert.equal(comments(), atEnd);
});

const COMMANDS = ['open', 'event', 'finish', 'fail', 'destroy', 'peerClosed', 'sinkBreaks'] as const;
type Command = (typeof COMMANDS)[number];

/** The picture of the header, as a table: what each command makes of each state; undefined: a programming error. */
function modelStep(state: SseState, command: Exclude<Command, 'sinkBreaks'>, broken: boolean): SseState | undefined {
  const terminal = state === 'finished' || state === 'failed' || state === 'destroyed';
  if (command === 'peerClosed') return terminal ? state : 'destroyed';
  if (state === 'destroyed') return state;
  switch (command) {
    case 'open':
      return state === 'idle' ? 'open' : undefined;
    case 'destroy':
      return terminal ? undefined : 'destroyed';
    default: {
      if (state !== 'open') return undefined;
      if (broken) return 'destroyed';
      return command === 'event' ? 'open' : command === 'finish' ? 'finished' : 'failed';
    }
  }
}

test('any sequence of calls follows the table and ends the connection at most once, in exactly one way', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom(...COMMANDS), { maxLength: 14 }), async (commands) => {
      const sink = new RecordingSink();
      const writer = new SseWriter(sink, QUIET);
      let model: SseState = 'idle';
      for (const command of commands) {
        if (command === 'sinkBreaks') {
          sink.mode = 'rejects';
          continue;
        }
        const expected = modelStep(model, command, sink.mode === 'rejects');
        const run = async (): Promise<unknown> => {
          switch (command) {
            case 'event':
              return writer.event({});
            case 'finish':
              return writer.finish([{}]);
            case 'fail':
              return writer.fail({ error: {} });
            case 'destroy':
              return writer.destroy(new Error('test'));
            default:
              return writer[command]();
          }
        };
        if (expected === undefined) await assert.rejects(run, isProgrammingError);
        else {
          await run();
          model = expected;
        }
        assert.equal(writer.state, model);
      }
      const text = sink.written.join('');
      const terminators = text.split('data: [DONE]').length - 1;
      const errors = text.split('"error"').length - 1;
      assert.equal(terminators, model === 'finished' ? 1 : 0);
      assert.equal(errors, model === 'failed' ? 1 : 0);
      if (model === 'finished') assert.ok(text.endsWith('data: [DONE]\n\n'));
      if (model === 'finished' || model === 'failed') assert.equal(sink.ended, 'closed');
      else assert.notEqual(sink.ended, 'closed');
    }),
    { numRuns: 500 },
  );
});
