/**
 * Whether the server answers while it computes: GET /health over loopback while a long prompt is read.
 *
 * Invariants: the prompt comes as a request through the same server; only answers that both began and ended while it was
 * read are counted; client and server share the process, so waits of either are in the figures.
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as elapsed } from 'node:timers/promises';
import { PlumblineError } from '../../errors.js';
import { percentile, spread, withLimit, type Figure, type PartReport } from '../figures.js';
import { serveSynthetic, SYNTHETIC_ID } from '../served-synthetic.js';
import type { BenchSession } from '../session.js';
import { promptOf } from '../token-run.js';

const LIMIT_MS = 50;
/** Between an answer and the next question. */
const PAUSE_MS = 5;
/** Enough for a 99th percentile to be an observation. */
const LEAST_SAMPLES = 200;
const MOST_PROMPTS = 4;

export async function benchResponsiveness(session: BenchSession): Promise<PartReport> {
  const { context, synthetic, lengths } = session;
  const server = await serveSynthetic(session);
  const latencies: number[] = [];
  const seconds: number[] = [];
  try {
    await timeHealth(server.url); // opens the connection
    const wanted = context.quick ? 1 : LEAST_SAMPLES;
    for (let prompt = 0; prompt < MOST_PROMPTS && latencies.length < wanted; prompt++) {
      context.progress(`responsiveness: a prompt of ${lengths.longPrompt} tokens`);
      const ids = promptOf(lengths.longPrompt, synthetic.model.vocabSize, prompt + 1);
      const run = readPrompt(server.url, ids, context.signal);
      while (run.isRunning()) {
        const latency = await timeHealth(server.url);
        if (run.isRunning() || latencies.length === 0) latencies.push(latency);
        await elapsed(PAUSE_MS);
      }
      seconds.push(await run.seconds);
    }
  } finally {
    await server.stop(0);
  }
  const sorted = [...latencies].sort((a, b) => a - b);
  const p99 = percentile(sorted, 0.99);
  const middle: Figure = { name: 'GET /health while a prompt is read, median', unit: 'ms', value: spread(latencies) };
  const high: Figure = { name: '  99th percentile', unit: 'ms', value: spread([p99]) };
  return {
    part: 'responsiveness',
    figures: [middle, withLimit(high, p99, LIMIT_MS, `within ${LIMIT_MS} ms`)],
    notes: [
      `${latencies.length} answers while ${seconds.length} prompts of ${lengths.longPrompt} tokens were read, ` +
        `${spread(seconds).median.toFixed(1)} s each`,
    ],
  };
}

async function timeHealth(url: string): Promise<number> {
  const start = performance.now();
  const response = await fetch(`${url}/health`);
  await response.arrayBuffer();
  if (!response.ok) throw new PlumblineError('internal_error', `GET /health answered ${response.status}`);
  return performance.now() - start;
}

/** Sends a prompt and asks for one token. */
function readPrompt(url: string, prompt: readonly number[], signal: AbortSignal | undefined) {
  let running = true;
  const start = performance.now();
  const seconds = fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: SYNTHETIC_ID, prompt, max_tokens: 1, temperature: 0 }),
    signal: signal ?? null,
  })
    .then(async (response) => {
      const text = await response.text();
      if (!response.ok)
        throw new PlumblineError('internal_error', `the prompt was answered ${response.status}: ${text}`);
      return (performance.now() - start) / 1000;
    })
    .finally(() => {
      running = false;
    });
  return { seconds, isRunning: () => running };
}
