/**
 * Decoding one sequence: tokens per second, and the share of what the memory's bandwidth would allow.
 *
 * Invariants: probes and rounds alternate, and a round is held against the probes on both sides of it; the bytes of a
 * token are counted from the plan that makes it (weights once, the state that it reads), nothing else.
 */
import { spread, against, withShareTarget, type Figure, type PartReport } from '../figures.js';
import type { BenchSession } from '../session.js';
import { promptOf, runTokens } from '../token-run.js';

/** What decoding must reach of the bandwidth: one thread is less disturbed than several. */
const least = (threads: number): number => (threads === 1 ? 0.75 : 0.7);

export async function benchDecode(session: BenchSession): Promise<PartReport> {
  const { context, threads, synthetic, scheduler, lengths } = session;
  const { quick, probes, signal } = context;
  const rounds = quick ? 2 : 9;
  const tokens = quick ? 4 : 24;
  const prompt = promptOf(lengths.decodeAfter, synthetic.model.vocabSize);
  const name = threads === 1 ? '1 thread' : `${threads} threads`;
  await runTokens(scheduler, prompt, 2, signal); // builds the plans and touches every page
  const probed = [await probes.bandwidth(threads)];
  const rates: number[] = [];
  for (let round = 0; round < rounds; round++) {
    context.progress(`decode, ${name}: round ${round + 1} of ${rounds}`);
    // The first token comes out of the prompt's own forwards.
    const { decodeMs } = await runTokens(scheduler, prompt, tokens + 1, signal);
    rates.push(tokens / (decodeMs / 1000));
    probed.push(await probes.bandwidth(threads));
  }
  const bytes = bytesPerToken(session, tokens);
  const bandwidths = probed.filter((rate) => rate !== undefined);
  const figures: Figure[] = [];
  if (bandwidths.length === probed.length) {
    const bounds = rates.map((_, round) => (bandwidths[round]! + bandwidths[round + 1]!) / 2 / bytes.all);
    figures.push({
      name: `read bandwidth, ${name}`,
      unit: 'GB/s',
      value: spread(bandwidths.map((rate) => rate / 1e9)),
    });
    const figure = against(`decode, ${name}`, 'tokens/s', rates, bounds, 'read bandwidth over bytes of a token');
    figures.push(context.size === 'standard' ? withShareTarget(figure, least(threads)) : figure);
  } else {
    figures.push({ name: `decode, ${name}`, unit: 'tokens/s', value: spread(rates) });
  }
  return {
    part: 'decode',
    figures,
    notes: [
      `a token reads ${megabytes(bytes.weights)} of weights and ${megabytes(bytes.state)} of state, at ${lengths.decodeAfter} ` +
        `to ${lengths.decodeAfter + tokens} tokens of context; through scheduler and greedy sampler`,
      ...(probes.absent === undefined ? [] : [probes.absent]),
    ],
  };
}

/** The mean over the decoded tokens. */
function bytesPerToken({ synthetic, lengths }: BenchSession, tokens: number) {
  let weights = 0;
  let state = 0;
  for (let i = 0; i < tokens; i++) {
    const { weightBytes, stateReadBytes } = synthetic.traffic(
      { rows: 1, outRows: 1, position: lengths.decodeAfter + i },
      'decode',
    );
    weights += weightBytes / tokens;
    state += stateReadBytes / tokens;
  }
  return { weights, state, all: weights + state };
}

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;
