/**
 * Reading a prompt: tokens per second in one forward, and the share of the arithmetic that the processor could do.
 *
 * Invariants: multiply-adds are counted from the plan that runs, matrices, attention and recurrences; the bound is what
 * independent float32 multiply-adds in registers reach, measured before and after each round.
 */
import { performance } from 'node:perf_hooks';
import { against, spread, type Figure, type PartReport } from '../figures.js';
import type { BenchSession } from '../session.js';
import { promptOf } from '../token-run.js';

export async function benchPrefill(session: BenchSession): Promise<PartReport> {
  const { context, threads, synthetic, lengths } = session;
  const { quick, probes } = context;
  const rounds = quick ? 1 : 3;
  const name = threads === 1 ? '1 thread' : `${threads} threads`;
  const figures: Figure[] = [];
  const notes: string[] = [];
  for (const length of lengths.prompts) {
    const prompt = promptOf(length, synthetic.model.vocabSize);
    await forward(session, prompt); // builds the plan
    const rates: number[] = [];
    const bounds: number[] = [];
    const { multiplyAdds } = synthetic.traffic({ rows: length, outRows: 1, position: 0 }, 'prefill');
    let before = await probes.arithmetic(threads);
    for (let round = 0; round < rounds; round++) {
      context.progress(`prefill of ${length} tokens, ${name}: round ${round + 1} of ${rounds}`);
      rates.push(length / (await forward(session, prompt)));
      const after = await probes.arithmetic(threads);
      if (before !== undefined && after !== undefined) bounds.push((((before + after) / 2) * length) / multiplyAdds);
      before = after;
    }
    const title = `prefill of ${length} tokens, ${name}`;
    figures.push(
      bounds.length === rates.length
        ? against(title, 'tokens/s', rates, bounds, 'multiply-adds in registers')
        : { name: title, unit: 'tokens/s', value: spread(rates) },
    );
    const flops = rates.map((rate) => (2 * multiplyAdds * rate) / length / 1e9);
    figures.push({ name: `  its arithmetic`, unit: 'GFLOP/s', value: spread(flops) });
    notes.push(`${length} tokens: ${(multiplyAdds / length / 1e6).toFixed(0)} million multiply-adds a token`);
  }
  return { part: 'prefill', figures, notes };
}

/** Seconds of one forward of the whole prompt, with the logits of its last token. */
async function forward({ context, synthetic: { model } }: BenchSession, tokens: readonly number[]): Promise<number> {
  const state = model.newState();
  try {
    const start = performance.now();
    const [result] = await model.forward([{ state, tokens, logits: 'last' }], {
      phase: 'prefill',
      signal: context.signal,
    });
    const seconds = (performance.now() - start) / 1000;
    result?.state.release();
    return seconds;
  } finally {
    state.release();
  }
}
