/**
 * The sigmoids of a plan, as the notation of src/engine/plan/ops.ts names them: sigma, silu and gate, four lanes at a time.
 *
 * Invariants: results are A-rounded; in a plan with MTPLX's rounding points the ordinary sigmoid is the standalone table;
 * with bfloat16 activations a phase-dependent gate is the table of its lowering, with float32 ones the float64 formula.
 */
import { fusedTable, isBf16, isMtplx, standaloneTable } from './context';
import { exp2RoundedF32, expRoundedF32 } from './correctly-rounded';
import { sigmoidF32x4 } from './exp';
import { act4 } from './rounding';

@inline
function entry(table: usize, bits: i32): i32 {
  return <i32>load<u16>(table + ((<usize>(<u32>bits >> 16)) << 1)) << 16;
}

/** The table's values for four bfloat16-valued float32. */
function lookUp4(table: usize, x: v128): v128 {
  let y = i32x4.splat(entry(table, i32x4.extract_lane(x, 0)));
  y = i32x4.replace_lane(y, 1, entry(table, i32x4.extract_lane(x, 1)));
  y = i32x4.replace_lane(y, 2, entry(table, i32x4.extract_lane(x, 2)));
  return i32x4.replace_lane(y, 3, entry(table, i32x4.extract_lane(x, 3)));
}

/** sigma(x). */
export function sigma4(x: v128): v128 {
  return isMtplx ? lookUp4(standaloneTable, x) : act4(sigmoidF32x4(x));
}

/** silu(x): its sigmoid stays float32 unless MTPLX's table gives it. */
export function silu4(x: v128): v128 {
  return act4(f32x4.mul(x, isMtplx ? lookUp4(standaloneTable, x) : sigmoidF32x4(x)));
}

/** silu(gate) * up before its last rounding; with a limit that is not 0 both are clamped first, NaN kept. */
@inline
export function swiglu4(gate: v128, up: v128, limit: f32): v128 {
  if (limit == 0) return f32x4.mul(silu4(gate), up);
  const most = f32x4.splat(limit);
  const least = f32x4.splat(-limit);
  const g = v128.bitselect(most, gate, f32x4.gt(gate, most));
  const u = v128.bitselect(most, v128.bitselect(least, up, f32x4.lt(up, least)), f32x4.gt(up, most));
  return f32x4.mul(silu4(g), u);
}

const LOG2E_F32: f32 = reinterpret<f32>(0x3fb8aa3b);

/** The float32 gate: every step rounded to float32 around a correctly rounded exponential. */
function gateF32(x: f32, fused: bool): f32 {
  const magnitude = abs(x);
  const e = fused ? exp2RoundedF32(magnitude * LOG2E_F32) : expRoundedF32(magnitude);
  const y: f32 = 1 / (1 + e);
  return x < 0 ? y : 1 - y;
}

/** gate(x); `lowering` 0 standalone, 1 fused. */
export function gate4(x: v128, lowering: i32): v128 {
  const fused = lowering == 1;
  if (isBf16) return lookUp4(fused ? fusedTable : standaloneTable, x);
  let y = f32x4.splat(gateF32(f32x4.extract_lane(x, 0), fused));
  y = f32x4.replace_lane(y, 1, gateF32(f32x4.extract_lane(x, 1), fused));
  y = f32x4.replace_lane(y, 2, gateF32(f32x4.extract_lane(x, 2), fused));
  return f32x4.replace_lane(y, 3, gateF32(f32x4.extract_lane(x, 3), fused));
}
