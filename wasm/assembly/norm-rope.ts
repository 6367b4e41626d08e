/**
 * What norms and rotary embeddings have in common: one group or head at a time.
 *
 * Invariants: A goes where the op table puts it: MTPLX rounds after the scale of a norm and only at the end of a rotation,
 * the ordinary law rounds a norm once and a rotation at every product.
 */
import { isMtplx } from './context';
import { dotF32 } from './dot';
import { act4, load4, store4 } from './rounding';

/** 1 / sqrt(mean of squares + eps). */
export function normScale(x: usize, dim: i32, eps: f32): f32 {
  return 1 / sqrt<f32>(dotF32(x, x, dim) / <f32>dim + eps);
}

/** RMS norm of `dim` elements with float32 gains, without (`gain` 0) the scaling alone; `out` may be `x`. */
export function normRow(x: usize, dim: i32, gain: usize, eps: f32, out: usize): void {
  const scale = f32x4.splat(normScale(x, dim, eps));
  for (let i = 0; i < dim; i += 4) {
    const at = <usize>i << 2;
    let y = f32x4.mul(load4(x + at, dim - i), scale);
    if (isMtplx || gain == 0) y = act4(y);
    store4(out + at, gain == 0 ? y : act4(f32x4.mul(y, load4(gain + at, dim - i))), dim - i);
  }
}

/** Turns the first `rotary` elements in place; `angles` holds rotary / 2 cosines, then sines. */
export function ropeRow(x: usize, rotary: i32, angles: usize): void {
  const half = rotary >> 1;
  const apart = <usize>half << 2;
  for (let i = 0; i < half; i += 4) {
    const at = <usize>i << 2;
    const left = half - i;
    const low = load4(x + at, left);
    const high = load4(x + apart + at, left);
    const cos = load4(angles + at, left);
    const sin = load4(angles + apart + at, left);
    const lowCos = f32x4.mul(low, cos);
    const highSin = f32x4.mul(high, sin);
    const highCos = f32x4.mul(high, cos);
    const lowSin = f32x4.mul(low, sin);
    if (isMtplx) {
      store4(x + at, act4(f32x4.sub(lowCos, highSin)), left);
      store4(x + apart + at, act4(f32x4.add(highCos, lowSin)), left);
    } else {
      store4(x + at, act4(f32x4.sub(act4(lowCos), act4(highSin))), left);
      store4(x + apart + at, act4(f32x4.add(act4(highCos), act4(lowSin))), left);
    }
  }
}

/** Turns `rotary` elements in adjacent pairs in place, `inverse`: back; `angles` as above. */
export function ropePairs(x: usize, rotary: i32, angles: usize, inverse: bool): void {
  const half = rotary >> 1;
  for (let i = 0; i < half; i += 4) {
    const at = x + (<usize>i << 3);
    const left = half - i;
    const first = load4(at, 2 * left);
    const second = left > 2 ? load4(at + 16, 2 * left - 4) : f32x4.splat(0);
    const a = v128.shuffle<f32>(first, second, 0, 2, 4, 6);
    const b = v128.shuffle<f32>(first, second, 1, 3, 5, 7);
    const cos = load4(angles + (<usize>i << 2), left);
    const sin = load4(angles + (<usize>(half + i) << 2), left);
    const aCos = innerRound(f32x4.mul(a, cos));
    const bSin = innerRound(f32x4.mul(b, sin));
    const bCos = innerRound(f32x4.mul(b, cos));
    const aSin = innerRound(f32x4.mul(a, sin));
    const even = act4(inverse ? f32x4.add(aCos, bSin) : f32x4.sub(aCos, bSin));
    const odd = act4(inverse ? f32x4.sub(bCos, aSin) : f32x4.add(bCos, aSin));
    store4(at, v128.shuffle<f32>(even, odd, 0, 4, 1, 5), 2 * left);
    if (left > 2) store4(at + 16, v128.shuffle<f32>(even, odd, 2, 6, 3, 7), 2 * left - 4);
  }
}

/** A of a product inside a rotation, which MTPLX does not round. */
@inline
function innerRound(x: v128): v128 {
  return isMtplx ? x : act4(x);
}
