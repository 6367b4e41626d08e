/**
 * Dot products under the lane law (src/numerics/lanes.ts, `mul-add`): 16 lanes in four vectors, then the fixed tree.
 *
 * Invariants: a product is rounded, then added; lanes take their elements in ascending order, so every kernel of this
 * folder gives the same bits for the same row; a partial last group is padded with zeros, which changes no lane, since a
 * lane that began at +0 is never -0. Loop bodies are small: Node 20 hoists all loads of a body and spills what does not fit
 * in 15 registers. index.ts exports the kernels, so that they are not inlined and are compiled again while a plan runs.
 */
import { scratch } from './context';
import { loadBf16x4, widenF16x4 } from './rounding';
import { DTYPE_BF16, DTYPE_F16, DTYPE_F32 } from './plan-ops';

/** Bytes of one element. */
@inline
export function dtypeShift(dtype: i32): i32 {
  return dtype == DTYPE_F32 ? 2 : 1;
}

/** Four vectors of lanes 0-3, 4-7, 8-11, 12-15 to their sum. */
@inline
export function reduceLanes(a: v128, b: v128, c: v128, d: v128): f32 {
  const u = f32x4.add(f32x4.add(a, c), f32x4.add(b, d));
  return f32x4.extract_lane(u, 0) + f32x4.extract_lane(u, 2) + (f32x4.extract_lane(u, 1) + f32x4.extract_lane(u, 3));
}

/** The same for lanes in the order of `prepareBf16`: even and odd lanes of each half apart. */
@inline
function reduceEvenOdd(even0: v128, odd0: v128, even8: v128, odd8: v128): f32 {
  const even = f32x4.add(even0, even8); // lanes 0, 2, 4, 6
  const odd = f32x4.add(odd0, odd8); // lanes 1, 3, 5, 7
  const lane0 = f32x4.extract_lane(even, 0) + f32x4.extract_lane(even, 2);
  const lane1 = f32x4.extract_lane(odd, 0) + f32x4.extract_lane(odd, 2);
  const lane2 = f32x4.extract_lane(even, 1) + f32x4.extract_lane(even, 3);
  const lane3 = f32x4.extract_lane(odd, 1) + f32x4.extract_lane(odd, 3);
  return lane0 + lane2 + (lane1 + lane3);
}

/** The last `count` (1 to 15) elements of `size` bytes at `at`, zero-padded to 16, in the scratch memory at `offset`. */
function padded(at: usize, count: i32, size: i32, offset: usize): usize {
  const to = scratch + offset;
  memory.fill(to, 0, <usize>size << 4);
  memory.copy(to, at, <usize>(count * size));
  return to;
}

/** One dot product of float32 values, `k` elements. */
export function dotF32(x: usize, y: usize, k: i32): f32 {
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  let left = k & 15;
  let end = x + (<usize>(k - left) << 2);
  while (true) {
    while (x < end) {
      a = f32x4.add(a, f32x4.mul(v128.load(x), v128.load(y)));
      b = f32x4.add(b, f32x4.mul(v128.load(x, 16), v128.load(y, 16)));
      c = f32x4.add(c, f32x4.mul(v128.load(x, 32), v128.load(y, 32)));
      d = f32x4.add(d, f32x4.mul(v128.load(x, 48), v128.load(y, 48)));
      x += 64;
      y += 64;
    }
    if (left == 0) return reduceLanes(a, b, c, d);
    x = padded(x, left, 4, 0);
    y = padded(y, left, 4, 64);
    end = x + 64;
    left = 0;
  }
}

/** Sum of `count` float32 under the lane law. */
export function laneSum(x: usize, count: i32): f32 {
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  let left = count & 15;
  let end = x + (<usize>(count - left) << 2);
  while (true) {
    while (x < end) {
      a = f32x4.add(a, v128.load(x));
      b = f32x4.add(b, v128.load(x, 16));
      c = f32x4.add(c, v128.load(x, 32));
      d = f32x4.add(d, v128.load(x, 48));
      x += 64;
    }
    if (left == 0) return reduceLanes(a, b, c, d);
    x = padded(x, left, 4, 0);
    end = x + 64;
    left = 0;
  }
}

/** `rows` dot products of consecutive float32 rows of `k` elements with `x`, to `out`. */
export function dotsF32(w: usize, rows: i32, x: usize, k: i32, out: usize): void {
  for (let r = 0; r < rows; r++) {
    store<f32>(out, dotF32(w, x, k));
    w += <usize>k << 2;
    out += 4;
  }
}

/**
 * Rearranges `x` for dotsBf16: a vector of eight bfloat16 falls apart into its even and its odd elements with one shift
 * and one mask, so x is laid out the same way, and zero-padded to a multiple of 16.
 */
export function prepareBf16(x: usize, k: i32, to: usize): void {
  const end = to + (<usize>((k + 15) & ~15) << 2);
  for (let left = k; to < end; left -= 16) {
    const from = left >= 16 ? x : padded(x, left, 4, 0);
    for (let half: usize = 0; half < 64; half += 32) {
      const first = v128.load(from + half);
      const second = v128.load(from + half, 16);
      v128.store(to + half, v128.shuffle<f32>(first, second, 0, 2, 4, 6));
      v128.store(to + half, v128.shuffle<f32>(first, second, 1, 3, 5, 7), 16);
    }
    x += 64;
    to += 64;
  }
}

/** `rows` dot products of consecutive bfloat16 rows of `k` elements with a row from prepareBf16. */
export function dotsBf16(w: usize, rows: i32, prepared: usize, k: i32, out: usize): void {
  const odd = i32x4.splat(0xffff0000);
  for (let r = 0; r < rows; r++) {
    let a = f32x4.splat(0);
    let b = a;
    let c = a;
    let d = a;
    let x = prepared;
    let p = w;
    let left = k & 15;
    let end = w + (<usize>(k - left) << 1);
    while (true) {
      while (p < end) {
        const low = v128.load(p);
        const high = v128.load(p, 16);
        a = f32x4.add(a, f32x4.mul(i32x4.shl(low, 16), v128.load(x)));
        b = f32x4.add(b, f32x4.mul(v128.and(low, odd), v128.load(x, 16)));
        c = f32x4.add(c, f32x4.mul(i32x4.shl(high, 16), v128.load(x, 32)));
        d = f32x4.add(d, f32x4.mul(v128.and(high, odd), v128.load(x, 48)));
        p += 32;
        x += 64;
      }
      if (left == 0) break;
      p = padded(p, left, 2, 0);
      end = p + 32;
      left = 0;
    }
    store<f32>(out, reduceEvenOdd(a, b, c, d));
    w += <usize>k << 1;
    out += 4;
  }
}

/** Widens `count` elements of any float dtype to float32. */
export function widen(from: usize, dtype: i32, count: i32, to: usize): void {
  if (dtype == DTYPE_F32) {
    memory.copy(to, from, <usize>count << 2);
    return;
  }
  const whole = count & ~3;
  for (let i = 0; i < whole; i += 4) {
    v128.store(to, dtype == DTYPE_BF16 ? loadBf16x4(from) : widenF16x4(v128.load16x4_u(from)));
    from += 8;
    to += 16;
  }
  for (let i = whole; i < count; i++) {
    const bits = i32x4.splat(load<u16>(from));
    v128.store32_lane(to, dtype == DTYPE_BF16 ? i32x4.shl(bits, 16) : widenF16x4(bits), 0);
    from += 2;
    to += 4;
  }
}

/**
 * `rows` dot products of consecutive rows of any float dtype. `x` is what the dtype wants: prepareBf16's row for bfloat16,
 * float32 as it is for the others. `widened` has room for k float32, for half rows.
 */
export function dots(w: usize, dtype: i32, rows: i32, x: usize, k: i32, out: usize, widened: usize): void {
  if (dtype == DTYPE_BF16) {
    dotsBf16(w, rows, x, k, out);
  } else if (dtype == DTYPE_F16) {
    for (let r = 0; r < rows; r++) {
      widen(w + (<usize>(r * k) << 1), dtype, k, widened);
      store<f32>(out + (<usize>r << 2), dotF32(widened, x, k));
    }
  } else {
    dotsF32(w, rows, x, k, out);
  }
}
