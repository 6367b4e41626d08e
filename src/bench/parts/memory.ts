/**
 * Peak memory of the process against what the model must hold: its weights and the planned states.
 *
 * Invariant: the system's count never falls, so this part comes before all others, when nothing but the model, with its
 * longest prompt read, has been in memory.
 */
import { spread, withLimit, type Figure, type PartReport } from '../figures.js';
import { peakResidentBytes } from '../process-memory.js';
import type { BenchSession } from '../session.js';
import { promptOf, runTokens } from '../token-run.js';

const LIMIT = 1.15;

export async function benchMemory({ context, synthetic, scheduler, lengths }: BenchSession): Promise<PartReport> {
  const { model, memory } = synthetic;
  context.progress(`memory: a prompt of ${lengths.longPrompt} tokens`);
  await runTokens(scheduler, promptOf(lengths.longPrompt, model.vocabSize), 8, context.signal);
  const peak = peakResidentBytes();
  const planned = memory.lines
    .filter(({ name }) => name === 'weights' || name === 'sequence states')
    .reduce((sum, { bytes }) => sum + bytes, 0);
  const size: Figure = { name: 'peak memory of the process', unit: 'GB', value: spread([peak / 1e9]) };
  const ratio: Figure = { name: 'over weights and states', unit: 'x', value: spread([peak / planned]) };
  return {
    part: 'memory',
    figures: [
      size,
      { name: 'weights and planned states', unit: 'GB', value: spread([planned / 1e9]) },
      context.size === 'standard' ? withLimit(ratio, peak / planned, LIMIT, `at most ${LIMIT} x`) : ratio,
    ],
    notes: [
      `after a prompt of ${lengths.longPrompt} tokens and 8 more; planned in all: ${(memory.neededBytes / 1e9).toFixed(2)} GB, ` +
        'with workspace and runtime',
    ],
  };
}
