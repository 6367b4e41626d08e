/**
 * Speculating samplers and verify windows for tests: rows that are a function of the text before them, generators that
 * count or follow a script.
 */
import type { UniformSource } from '../../src/sample/laws/mtplx/choice.js';
import { MtplxSampler } from '../../src/sample/laws/mtplx/request-sampler.js';
import { MtplxSpeculativeSampler } from '../../src/sample/laws/mtplx/speculative-sampler.js';
import type { ResolvedSampling, SamplingWishes } from '../../src/sample/resolve-sampling.js';
import { Pcg64 } from '../../src/sample/rng/pcg64.js';
import type { SpeculativeOptions } from '../../src/sample/sampler.js';
import type { DraftChoice, Window } from '../../src/sample/speculation.js';

/** The doubles of a seed, counted. */
export class CountedDoubles implements UniformSource {
  count = 0;
  private readonly random: Pcg64;

  constructor(seed: bigint) {
    this.random = new Pcg64(seed);
  }

  nextDouble(): number {
    this.count++;
    return this.random.nextDouble();
  }
}

/** The doubles of a list; asking for more than it holds fails. */
export class ScriptedDoubles implements UniformSource {
  private at = 0;

  constructor(private readonly script: readonly number[]) {}

  get left(): number {
    return this.script.length - this.at;
  }

  nextDouble(): number {
    const u = this.script[this.at++];
    if (u === undefined) throw new RangeError(`draw ${this.at} of a script of ${this.script.length}`);
    return u;
  }
}

/** The law's own settings: it must hold also where no request can reach it. */
const settingsOf = ({ temperature = 1, topP = 1, topK = 0, ...more }: SamplingWishes): ResolvedSampling => ({
  temperature,
  topP,
  topK,
  presencePenalty: more.presencePenalty ?? 0,
  frequencyPenalty: more.frequencyPenalty ?? 0,
  seed: more.seed ?? 7n,
});

export type SamplerCase = SamplingWishes & Omit<SpeculativeOptions, 'acceptance'>;

export function plainSampler({ seed, ...given }: SamplerCase, random?: UniformSource): MtplxSampler {
  return new MtplxSampler(settingsOf({ ...given, seed }), given, random);
}

export function speculativeSampler(
  { seed, ...given }: SamplerCase,
  acceptance: SpeculativeOptions['acceptance'],
  random?: UniformSource,
): MtplxSpeculativeSampler {
  return new MtplxSpeculativeSampler(settingsOf({ ...given, seed }), { ...given, acceptance }, random);
}

/** A window over rows given one by one; room for the bonus unless said. */
export function windowOf(
  drafts: readonly DraftChoice[],
  row: Window['row'],
  given: Partial<Pick<Window, 'room' | 'stopTokenIds' | 'source'>> & { readonly step?: number } = {},
): Window {
  const { step = 1, ...rest } = given;
  return {
    drafts,
    row,
    room: drafts.length + 1,
    stopTokenIds: new Set(),
    source: 'draft_head',
    context: { phase: 'verify', step },
    ...rest,
  };
}

/** A row that depends on the text before it and a salt, and on nothing else: normal-ish logits, a few of them masked. */
export function rowAfter(text: readonly number[], vocabSize: number, salt = 0, scale = 3): Float32Array {
  const random = new Pcg64(text.reduce((hash, id) => (hash * 1000003n + BigInt(id) + 1n) % 2n ** 61n, BigInt(salt)));
  return Float32Array.from({ length: vocabSize }, (_, id) => {
    const value = (random.nextDouble() + random.nextDouble() + random.nextDouble() - 1.5) * scale;
    return id > 0 && random.nextDouble() < 0.1 ? -Infinity : value;
  });
}

/** All mass on one id. */
export function rowOnly(id: number, vocabSize: number): Float32Array {
  const row = new Float32Array(vocabSize).fill(-Infinity);
  row[id] = 1;
  return row;
}

/** float32 logarithms, so that at temperature 1 the row is drawn with these probabilities. */
export function rowOfProbabilities(probabilities: readonly number[]): Float32Array {
  return Float32Array.from(probabilities, (p) => Math.log(p));
}
