/**
 * Made-up bfloat16 weights: normal values, the same for the same seed and tensor name, made as fast as memory takes them.
 *
 * Invariants: a value depends on seed, name and place alone; nothing is NaN, infinite or subnormal; the spread is that of
 * a usual initialisation (one over the root of the fan-in for matrices), so that activations neither vanish nor explode.
 */
import { toBf16Bits } from '../numerics/rounding.js';

/** How many different values a tensor can hold: one random index of 16 bits chooses among them. */
const LEVELS = 65536;

export class RandomWeights {
  readonly #seed: number;
  /** Standard normal values, in no order. */
  readonly #normals: Float64Array;
  /** The normals as bfloat16, by the spread that they were given. */
  readonly #scaled = new Map<number, Uint16Array>();

  /** @param seed any integer; its low 32 bits count */
  constructor(seed: number) {
    this.#seed = seed | 0;
    this.#normals = normals(xorshift(this.#seed));
  }

  /** Fills `out` with the values of a tensor of this name and shape; `out` has one entry an element. */
  fill(name: string, shape: readonly number[], out: Uint16Array): void {
    const levels = this.#levels(spread(shape));
    let state = startState(this.#seed, name);
    const pairs = out.length & ~1;
    for (let i = 0; i < pairs; i += 2) {
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      out[i] = levels[state & 0xffff]!;
      out[i + 1] = levels[state >>> 16]!;
    }
    if (pairs < out.length) out[pairs] = levels[(state * 5 + 1) & 0xffff]!;
  }

  #levels(deviation: number): Uint16Array {
    const known = this.#scaled.get(deviation);
    if (known) return known;
    const made = Uint16Array.from(this.#normals, (x) => toBf16Bits(x * deviation));
    this.#scaled.set(deviation, made);
    return made;
  }
}

/** Vectors (gains as offsets from one, biases) vary by a tenth; of a matrix or a filter the trailing sizes are the fan-in. */
function spread(shape: readonly number[]): number {
  if (shape.length < 2) return 0.1;
  const [last = 1] = shape.slice(-1);
  return 1 / Math.sqrt(last);
}

/** Marsaglia's xorshift of 32 bits, as uniform numbers in (0, 1). */
function xorshift(seed: number): () => number {
  let state = startState(seed, 'normals');
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return ((state >>> 0) + 0.5) / 2 ** 32;
  };
}

/** By Box and Muller's pairs. */
function normals(uniform: () => number): Float64Array {
  const values = new Float64Array(LEVELS);
  for (let i = 0; i < LEVELS; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(uniform()));
    const angle = 2 * Math.PI * uniform();
    values[i] = radius * Math.cos(angle);
    values[i + 1] = radius * Math.sin(angle);
  }
  return values;
}

/** A state that is not 0: FNV-1a over the name, begun with the seed. */
function startState(seed: number, name: string): number {
  let hash = 0x811c9dc5 ^ seed;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return hash === 0 ? 1 : hash;
}
