/**
 * The law of the tokens that speculative rounds emit, summed up over every path of drafts and every verdict of the coins:
 * what a law of acceptance must make equal to the target's.
 *
 * Invariant: exact but for float64 rounding; nothing is drawn.
 */
import { PlumblineError } from '../../errors.js';
import type { Distribution } from '../laws/mtplx/distribution.js';

/** Laws behind a prefix of tokens of the window. */
export interface EmissionRules {
  readonly vocabSize: number;
  readonly depth: number;
  target(prefix: readonly number[]): Distribution;
  draft(prefix: readonly number[]): Distribution;
  /** For one whole path of drafts: per depth the chance to be accepted, and what a rejection draws from. */
  verdicts(path: readonly number[]): readonly { readonly coin: number; readonly residual: Distribution }[];
}

const MOST_SEQUENCES = 10_000;

/** Every sequence of `length` ids below `vocabSize`. */
export function* sequences(vocabSize: number, length: number): Generator<readonly number[]> {
  if (vocabSize ** length > MOST_SEQUENCES) {
    throw new PlumblineError('fixture_invalid', `${vocabSize}^${length} sequences are too many to enumerate`);
  }
  if (length === 0) {
    yield [];
    return;
  }
  for (const head of sequences(vocabSize, length - 1)) {
    for (let id = 0; id < vocabSize; id++) yield [...head, id];
  }
}

/** Distance in total variation between the emitted and the target law, over sequences of `depth` tokens. */
export function emissionDistance(rules: EmissionRules): number {
  const { vocabSize, depth } = rules;
  const key = (tokens: readonly number[]): string => tokens.join(',');
  const chance = (tokens: readonly number[], law: EmissionRules['target']): number =>
    tokens.reduce((product, token, at) => product * law(tokens.slice(0, at)).probabilityOf(token), 1);
  // Mass that a round puts on its emitted prefix; the rounds behind it go on under the target.
  const byPrefix = new Map<string, number>();
  const add = (tokens: readonly number[], mass: number): void => {
    byPrefix.set(key(tokens), (byPrefix.get(key(tokens)) ?? 0) + mass);
  };
  for (const path of sequences(vocabSize, depth)) {
    let mass = chance(path, (prefix) => rules.draft(prefix));
    if (mass === 0) continue;
    for (const [at, { coin, residual }] of rules.verdicts(path).entries()) {
      const rejected = mass * (1 - coin);
      residual.ids.forEach((id, i) => add([...path.slice(0, at), id], rejected * residual.probs[i]!));
      mass *= coin;
    }
    add(path, mass);
  }
  let distance = 0;
  for (const tokens of sequences(vocabSize, depth)) {
    let emitted = 0;
    let rest = 1;
    for (let length = depth; length > 0; length--) {
      emitted += (byPrefix.get(key(tokens.slice(0, length))) ?? 0) * rest;
      rest *= rules.target(tokens.slice(0, length - 1)).probabilityOf(tokens[length - 1]!);
    }
    distance += Math.abs(emitted - rest) / 2;
  }
  return distance;
}
