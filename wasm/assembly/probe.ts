/** How fast a thread can read: the ceiling that bench/wasm-kernels.ts holds the kernels against. */

/** The bitwise or of `bytes` bytes, a multiple of 64. */
export function readAll(at: usize, bytes: usize): i32 {
  let a = i32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  const end = at + bytes;
  while (at < end) {
    a = v128.or(a, v128.load(at));
    b = v128.or(b, v128.load(at, 16));
    c = v128.or(c, v128.load(at, 32));
    d = v128.or(d, v128.load(at, 48));
    at += 64;
  }
  return i32x4.extract_lane(v128.or(v128.or(a, b), v128.or(c, d)), 0);
}
