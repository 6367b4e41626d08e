/**
 * Op gatedDelta: the gated delta rule, token by token. A unit of work is one value head of one sequence.
 *
 * Invariants: the first token reads the state of the input slab and every token writes that of the output slab, which may
 * be the same memory; columns of the state are independent, so they are worked on side by side.
 */
import {
  bufferField,
  field,
  isMtplx,
  scratch,
  SCRATCH_BODY,
  sequenceFirstRow,
  sequenceRows,
  sequences,
  slabAddress,
  trunkRows,
  weightField,
} from '../context';
import { dotF32 } from '../dot';
import { expF64, softplusF64 } from '../exp';
import { sigma4 } from '../gates';
import {
  GATED_DELTA_A,
  GATED_DELTA_B,
  GATED_DELTA_CONV,
  GATED_DELTA_DT_BIAS,
  GATED_DELTA_KEY_DIM,
  GATED_DELTA_KEY_HEADS,
  GATED_DELTA_NEG_EXP_A,
  GATED_DELTA_OUT,
  GATED_DELTA_STATE,
  GATED_DELTA_VALUE_DIM,
  GATED_DELTA_VALUE_HEADS,
} from '../plan-ops';
import { act, act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK } from '../work';

const L2_EPS: f32 = 1e-6;

/** A query and a key. */
export function gatedDeltaScratch(): usize {
  return SCRATCH_BODY + (<usize>(2 * (field(GATED_DELTA_KEY_DIM) + 3)) << 2);
}

export function gatedDeltaWork(): f64 {
  const state = <f64>field(GATED_DELTA_VALUE_HEADS) * <f64>field(GATED_DELTA_KEY_DIM) * <f64>field(GATED_DELTA_VALUE_DIM);
  return <f64>trunkRows * state * ELEMENT_WORK;
}

export function gatedDelta(): void {
  const valueHeads = field(GATED_DELTA_VALUE_HEADS);
  for (let unit = nextUnit(); unit < sequences * valueHeads; unit = nextUnit()) {
    deltaHead(unit / valueHeads, unit % valueHeads);
  }
}

function deltaHead(sequence: i32, head: i32): void {
  const keyHeads = field(GATED_DELTA_KEY_HEADS);
  const valueHeads = field(GATED_DELTA_VALUE_HEADS);
  const keyDim = field(GATED_DELTA_KEY_DIM);
  const valueDim = field(GATED_DELTA_VALUE_DIM);
  const keys = keyHeads * keyDim;
  const width = 2 * keys + valueHeads * valueDim;
  const keyHead = head / (valueHeads / keyHeads);
  const stateAt = <usize>field(GATED_DELTA_STATE) + (<usize>head * <usize>keyDim * <usize>valueDim << 2);
  let from = slabAddress(sequence, 0) + stateAt;
  const state = slabAddress(sequence, 1) + stateAt;
  const query = scratch + SCRATCH_BODY;
  const key = query + (<usize>(keyDim + 3) << 2);
  const root = <f32>(1.0 / sqrt<f64>(<f64>keyDim));
  const queryScale = isMtplx ? act(root) : root;
  const first = sequenceFirstRow(sequence);
  for (let row = first; row < first + sequenceRows(sequence); row++) {
    const mixed = bufferField(GATED_DELTA_CONV) + (<usize>row * <usize>width << 2);
    l2Normed(mixed + (<usize>(keyHead * keyDim) << 2), keyDim, query);
    scaleQuery(query, keyDim, queryScale);
    l2Normed(mixed + (<usize>(keys + keyHead * keyDim) << 2), keyDim, key);
    const entry = row * valueHeads + head;
    const decay = decayOf(head, load<f32>(bufferField(GATED_DELTA_A) + (<usize>entry << 2)));
    const beta = f32x4.extract_lane(sigma4(v128.load32_splat(bufferField(GATED_DELTA_B) + (<usize>entry << 2))), 0);
    const value = mixed + (<usize>(2 * keys + head * valueDim) << 2);
    const out = bufferField(GATED_DELTA_OUT) + (<usize>entry * <usize>valueDim << 2);
    const whole = valueDim & ~15;
    for (let j = 0; j < whole; j += 16) {
      const at = <usize>j << 2;
      decayColumns(from + at, state + at, valueDim, keyDim, decay);
      writeColumns(state + at, valueDim, keyDim, beta, value + at, out + at);
    }
    for (let j = whole; j < valueDim; j += 4) {
      const at = <usize>j << 2;
      deltaLastColumns(from + at, state + at, valueDim, keyDim, decay, beta, value + at, out + at, valueDim - j);
    }
    from = state;
  }
}

/** exp(-exp(A) * softplus(a + dtBias)): the product rounded to float32, both functions in float64. */
function decayOf(head: i32, a: f32): f32 {
  const at = <usize>head << 2;
  const sum = a + load<f32>(weightField(GATED_DELTA_DT_BIAS) + at);
  const biased = isMtplx ? act(sum) : sum;
  const g = load<f32>(weightField(GATED_DELTA_NEG_EXP_A) + at) * <f32>softplusF64(<f64>biased);
  return <f32>expF64(<f64>g);
}

/** x / sqrt(sum of squares + 1e-6), A-rounded under MTPLX's points. */
function l2Normed(x: usize, dim: i32, out: usize): void {
  const scale = f32x4.splat(1 / sqrt<f32>(dotF32(x, x, dim) + L2_EPS));
  for (let i = 0; i < dim; i += 4) {
    const at = <usize>i << 2;
    const y = f32x4.mul(load4(x + at, dim - i), scale);
    store4(out + at, isMtplx ? act4(y) : y, dim - i);
  }
}

function scaleQuery(x: usize, dim: i32, scale: f32): void {
  for (let i = 0; i < dim; i += 4) {
    const at = x + (<usize>i << 2);
    const y = f32x4.mul(load4(at, dim - i), f32x4.splat(scale));
    store4(at, isMtplx ? act4(y) : y, dim - i);
  }
}

/**
 * 16 columns of one head, whose rows are `valueDim` float32 apart: S = decay * S, and what is stored under the key, S^T k,
 * to the scratch memory. Query and key lie there too.
 */
export function decayColumns(from: usize, state: usize, valueDim: i32, keyDim: i32, decay: f32): void {
  const stride = <usize>valueDim << 2;
  const by = f32x4.splat(decay);
  let key = scratch + SCRATCH_BODY + (<usize>(keyDim + 3) << 2);
  const end = key + (<usize>keyDim << 2);
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  for (; key < end; key += 4) {
    const k = v128.load32_splat(key);
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
  const keyOffset = <usize>(keyDim + 3) << 2;
  let query = scratch + SCRATCH_BODY;
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
  decay: f32,
  beta: f32,
  value: usize,
  out: usize,
  left: i32,
): void {
  const stride = <usize>valueDim << 2;
  const query = scratch + SCRATCH_BODY;
  const key = query + (<usize>(keyDim + 3) << 2);
  let stored = f32x4.splat(0);
  for (let i = 0; i < keyDim; i++) {
    const at = <usize>i * stride;
    const decayed = f32x4.mul(f32x4.splat(decay), load4(from + at, left));
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
