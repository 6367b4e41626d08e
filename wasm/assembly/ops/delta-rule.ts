/**
 * The delta rule over one head's state, one token at a time: what gatedDelta and kda have in common.
 *
 * Invariants: query, key and the decay of every key channel lie in the scratch memory, one after the other; a token reads
 * the state at `from` and writes it at `state`, which may be the same memory; columns of the state are independent, so
 * they are worked on side by side.
 */
import { scratch, SCRATCH_BODY } from '../context';
import { dotF32 } from '../dot';
import { act, act4, load4, store4 } from '../rounding';

const L2_EPS: f32 = 1e-6;

/** Bytes of a vector of the key's width, with room for whole registers. */
@inline
function roomOf(keyDim: i32): usize {
  return <usize>(keyDim + 3) << 2;
}

@inline
function queryAt(): usize {
  return scratch + SCRATCH_BODY;
}

@inline
function keyAt(keyDim: i32): usize {
  return scratch + SCRATCH_BODY + roomOf(keyDim);
}

/** Where the caller puts the decays of a token. */
@inline
export function decaysAt(keyDim: i32): usize {
  return scratch + SCRATCH_BODY + 2 * roomOf(keyDim);
}

/** A query, a key and their decays. */
export function deltaScratch(keyDim: i32): usize {
  return SCRATCH_BODY + 3 * roomOf(keyDim);
}

/** Puts a token's query and key in place: both l2-normed, the query scaled; `rounded`: by MTPLX's points. */
export function prepareToken(query: usize, key: usize, keyDim: i32, rounded: bool): void {
  const root = <f32>(1.0 / sqrt<f64>(<f64>keyDim));
  l2Normed(query, keyDim, queryAt(), rounded);
  scaleQuery(queryAt(), keyDim, rounded ? act(root) : root, rounded);
  l2Normed(key, keyDim, keyAt(keyDim), rounded);
}

/** S = decay * S; S = S + k beta (v - S^T k); out = A(S^T q), for S [keyDim, valueDim]. */
export function deltaToken(
  from: usize,
  state: usize,
  valueDim: i32,
  keyDim: i32,
  beta: f32,
  value: usize,
  out: usize,
): void {
  const whole = valueDim & ~15;
  for (let j = 0; j < whole; j += 16) {
    const at = <usize>j << 2;
    decayColumns(from + at, state + at, valueDim, keyDim);
    writeColumns(state + at, valueDim, keyDim, beta, value + at, out + at);
  }
  for (let j = whole; j < valueDim; j += 4) {
    const at = <usize>j << 2;
    deltaLastColumns(from + at, state + at, valueDim, keyDim, beta, value + at, out + at, valueDim - j);
  }
}

/** x / sqrt(sum of squares + 1e-6), A-rounded where asked. */
function l2Normed(x: usize, dim: i32, out: usize, rounded: bool): void {
  const scale = f32x4.splat(1 / sqrt<f32>(dotF32(x, x, dim) + L2_EPS));
  for (let i = 0; i < dim; i += 4) {
    const at = <usize>i << 2;
    const y = f32x4.mul(load4(x + at, dim - i), scale);
    store4(out + at, rounded ? act4(y) : y, dim - i);
  }
}

function scaleQuery(x: usize, dim: i32, scale: f32, rounded: bool): void {
  for (let i = 0; i < dim; i += 4) {
    const at = x + (<usize>i << 2);
    const y = f32x4.mul(load4(at, dim - i), f32x4.splat(scale));
    store4(at, rounded ? act4(y) : y, dim - i);
  }
}

/**
 * 16 columns of one head, whose rows are `valueDim` float32 apart: S = decay * S, row by row, and what is stored under the
 * key, S^T k, to the scratch memory. Query, key and decays lie there too.
 */
export function decayColumns(from: usize, state: usize, valueDim: i32, keyDim: i32): void {
  const stride = <usize>valueDim << 2;
  const apart = roomOf(keyDim);
  let key = keyAt(keyDim);
  const end = key + (<usize>keyDim << 2);
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  for (; key < end; key += 4) {
    const k = v128.load32_splat(key);
    const by = v128.load32_splat(key + apart);
    let s = f32x4.mul(by, v128.load(from));
    v128.store(state, s);
    a = f32x4.add(f32x4.mul(k, s), a);
    s = f32x4.mul(by, v128.load(from, 16));
    v128.store(state, s, 16);
    b = f32x4.add(f32x4.mul(k, s), b);
    s = f32x4.mul(by, v128.load(from, 32));
    v128.store(state, s, 32);
    c = f32x4.add(f32x4.mul(k, s), c);
    s = f32x4.mul(by, v128.load(from, 48));
    v128.store(state, s, 48);
    d = f32x4.add(f32x4.mul(k, s), d);
    from += stride;
    state += stride;
  }
  v128.store(scratch, a);
  v128.store(scratch, b, 16);
  v128.store(scratch, c, 32);
  v128.store(scratch, d, 48);
}

/** Then delta = beta * (v - what is stored); S = S + k delta; out = A(S^T q). */
export function writeColumns(state: usize, valueDim: i32, keyDim: i32, beta: f32, value: usize, out: usize): void {
  const stride = <usize>valueDim << 2;
  const by = f32x4.splat(beta);
  const delta0 = f32x4.mul(by, f32x4.sub(v128.load(value), v128.load(scratch)));
  const delta1 = f32x4.mul(by, f32x4.sub(v128.load(value, 16), v128.load(scratch, 16)));
  const delta2 = f32x4.mul(by, f32x4.sub(v128.load(value, 32), v128.load(scratch, 32)));
  const delta3 = f32x4.mul(by, f32x4.sub(v128.load(value, 48), v128.load(scratch, 48)));
  const keyOffset = roomOf(keyDim);
  let query = queryAt();
  const end = query + (<usize>keyDim << 2);
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  for (; query < end; query += 4) {
    const q = v128.load32_splat(query);
    const k = v128.load32_splat(query + keyOffset);
    let s = f32x4.add(f32x4.mul(k, delta0), v128.load(state));
    v128.store(state, s);
    a = f32x4.add(f32x4.mul(q, s), a);
    s = f32x4.add(f32x4.mul(k, delta1), v128.load(state, 16));
    v128.store(state, s, 16);
    b = f32x4.add(f32x4.mul(q, s), b);
    s = f32x4.add(f32x4.mul(k, delta2), v128.load(state, 32));
    v128.store(state, s, 32);
    c = f32x4.add(f32x4.mul(q, s), c);
    s = f32x4.add(f32x4.mul(k, delta3), v128.load(state, 48));
    v128.store(state, s, 48);
    d = f32x4.add(f32x4.mul(q, s), d);
    state += stride;
  }
  v128.store(out, act4(a));
  v128.store(out, act4(b), 16);
  v128.store(out, act4(c), 32);
  v128.store(out, act4(d), 48);
}

/** Both steps for up to four columns, of the last that do not fill 16. */
function deltaLastColumns(
  from: usize,
  state: usize,
  valueDim: i32,
  keyDim: i32,
  beta: f32,
  value: usize,
  out: usize,
  left: i32,
): void {
  const stride = <usize>valueDim << 2;
  const query = queryAt();
  const key = keyAt(keyDim);
  const decays = decaysAt(keyDim);
  let stored = f32x4.splat(0);
  for (let i = 0; i < keyDim; i++) {
    const at = <usize>i * stride;
    const decayed = f32x4.mul(v128.load32_splat(decays + (<usize>i << 2)), load4(from + at, left));
    store4(state + at, decayed, left);
    stored = f32x4.add(f32x4.mul(v128.load32_splat(key + (<usize>i << 2)), decayed), stored);
  }
  const delta = f32x4.mul(f32x4.splat(beta), f32x4.sub(load4(value, left), stored));
  let o = f32x4.splat(0);
  for (let i = 0; i < keyDim; i++) {
    const at = state + <usize>i * stride;
    const updated = f32x4.add(f32x4.mul(v128.load32_splat(key + (<usize>i << 2)), delta), load4(at, left));
    store4(at, updated, left);
    o = f32x4.add(f32x4.mul(v128.load32_splat(query + (<usize>i << 2)), updated), o);
  }
  store4(out, act4(o), left);
}
