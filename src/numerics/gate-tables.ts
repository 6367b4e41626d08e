/**
 * The gate law of the Qwen family: s(x) = y for x < 0, 1 - y otherwise, with y = 1 / (1 + e^|x|), every step rounded to
 * the array's type. Two lowerings differ in the exponential alone: `standalone` is e^|x| correctly rounded, `fused` is
 * 2^(|x| * log2 e) with that product rounded to float32 first, as MLX's run-time compiled kernels do on Metal.
 *
 * Invariants: bfloat16 and half gates are decided by tables of all 65,536 inputs, so no back end can differ; in bfloat16 the
 * two tables differ at one finite input, -6.84375 (0xc0db); in half there is one table. A quotient below float32's normal
 * range becomes +0 in bfloat16. NaN gives NaN, +inf 1, -inf 0. Source: mlx-laws on sigmoid, MLX 0.32.2.
 */
import { exp2RoundedF32, expRoundedF32 } from './correctly-rounded.js';
import { expF64 } from './exp.js';
import { fromBf16Bits, fromF16Bits, roundBf16, roundF16, toBf16Bits, toF16Bits } from './rounding.js';

/** Which exponential a gate is computed with; chosen by the phase of the forward (engine/plan/phase.ts). */
export type GateExponential = 'standalone' | 'fused';

const fround = Math.fround;

/** float32 nearest to log2 e: 0x3fb8aa3b. */
const LOG2E_F32 = fround(1.4426950408889634);

/** Smallest normal float32; the bfloat16 law flushes quotients below it to +0. */
const SMALLEST_NORMAL_F32 = 2 ** -126;

const CANONICAL_NAN_BF16 = 0x7fc0;
const CANONICAL_NAN_F16 = 0x7e00;

/** e^a in float32 for float32 a >= 0 under a lowering. */
function exponential(a: number, lowering: GateExponential): number {
  return lowering === 'standalone' ? expRoundedF32(a) : exp2RoundedF32(fround(a * LOG2E_F32));
}

/** The sigmoid of one finite or infinite bfloat16 value; rounds e, d, y and 1 - y to bfloat16. */
function sigmoidBf16(x: number, lowering: GateExponential): number {
  const e = roundBf16(exponential(Math.abs(x), lowering));
  const d = roundBf16(fround(1 + e));
  const quotient = fround(1 / d);
  const y = roundBf16(quotient < SMALLEST_NORMAL_F32 ? 0 : quotient);
  return x < 0 ? y : roundBf16(fround(1 - y));
}

/** The sigmoid of one half value; rounds every step to half and keeps half subnormals. */
function sigmoidF16(x: number): number {
  const e = roundF16(expF64(Math.abs(x)));
  const d = roundF16(1 + e);
  const y = roundF16(1 / d);
  return x < 0 ? y : roundF16(1 - y);
}

function tabulate(
  valueOf: (bits: number) => number,
  sigmoid: (x: number) => number,
  bitsOf: (x: number) => number,
  nan: number,
): Uint16Array {
  return Uint16Array.from({ length: 0x10000 }, (_, bits) => {
    const x = valueOf(bits);
    return Number.isNaN(x) ? nan : bitsOf(sigmoid(x));
  });
}

/** All 65,536 bfloat16 sigmoids, indexed by input bits. About 20 ms; callers keep the table. */
export function sigmoidTableBf16(lowering: GateExponential): Uint16Array {
  return tabulate(fromBf16Bits, (x) => sigmoidBf16(x, lowering), toBf16Bits, CANONICAL_NAN_BF16);
}

/** All 65,536 half sigmoids, indexed by input bits: one table for both lowerings. */
export function sigmoidTableF16(): Uint16Array {
  return tabulate(fromF16Bits, sigmoidF16, toF16Bits, CANONICAL_NAN_F16);
}

/**
 * The float32 gate: every step rounded to float32, no flush. The lowerings differ at about a third of ordinary inputs.
 * Apple's own last bits of exp and exp2 in float32 are not reproducible elsewhere; these are the correctly rounded ones.
 */
export function gateF32(x: number, lowering: GateExponential): number {
  const y = fround(1 / fround(1 + exponential(Math.abs(x), lowering)));
  return x < 0 ? y : fround(1 - y);
}
