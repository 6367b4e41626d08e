/**
 * Rotary frequencies and tables of the family.
 *
 * Invariants: a frequency is rounded to float32 once, the angle is the float32 product of position and frequency (its
 * rounding shows at long positions), cosine and sine are those of that angle, times the attention factor, in float32.
 */

export interface RopeConfig {
  readonly theta: number;
  /** Absent: the plain frequencies. */
  readonly yarn?: YarnConfig | undefined;
}

/** Frequencies stretched where a turn is longer than the original context; no magnitude is scaled unless it says so. */
export interface YarnConfig {
  readonly factor: number;
  /** `original_max_position_embeddings` */
  readonly originalPositions: number;
  readonly betaFast: number;
  readonly betaSlow: number;
  /** `attention_factor` where it is written, else 1. */
  readonly attentionFactor: number;
}

/** The frequencies of `rotaryDim` / 2 pairs, float32. */
export function ropeFrequencies({ theta, yarn }: RopeConfig, rotaryDim: number): Float32Array {
  const plain = (i: number): number => theta ** ((-2 * i) / rotaryDim);
  if (!yarn) return Float32Array.from({ length: rotaryDim / 2 }, (_, i) => plain(i));
  const correction = (beta: number): number =>
    (rotaryDim * Math.log(yarn.originalPositions / (2 * Math.PI * beta))) / (2 * Math.log(theta));
  const low = Math.max(Math.floor(correction(yarn.betaFast)), 0);
  const ceiling = Math.min(Math.ceil(correction(yarn.betaSlow)), rotaryDim - 1);
  const high = ceiling === low ? low + 0.001 : ceiling;
  return Float32Array.from({ length: rotaryDim / 2 }, (_, i) => {
    const ramp = Math.min(Math.max((i - low) / (high - low), 0), 1);
    return plain(i) * (1 - ramp + ramp / yarn.factor);
  });
}

/** float32 [positions, rotaryDim]: of every position the cosines of all pairs, then the sines. */
export function ropeTable(config: RopeConfig, rotaryDim: number, positions: number): Float32Array {
  const half = rotaryDim / 2;
  const frequencies = ropeFrequencies(config, rotaryDim);
  const factor = config.yarn?.attentionFactor ?? 1;
  const table = new Float32Array(positions * rotaryDim);
  for (let position = 0; position < positions; position++) {
    for (let i = 0; i < half; i++) {
      const angle = Math.fround(position * frequencies[i]!);
      table[position * rotaryDim + i] = Math.cos(angle) * factor;
      table[position * rotaryDim + half + i] = Math.sin(angle) * factor;
    }
  }
  return table;
}
