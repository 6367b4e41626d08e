/**
 * The linear-attention mixers: causal convolution over time, the gated delta rule with one decay a head or one a key
 * channel, and the gated norm of its output.
 *
 * Invariants: the recurrence runs token by token in position order; the input slab is only read and the whole of an op's
 * part of the output slab is written, so a state stays the value that it was.
 */
import { expF32, expF64, sigmoidF32, siluF32, softplusF64 } from '../../../numerics/exp.js';
import type { OpFields } from '../../plan/ops.js';
import { fl } from './arithmetic.js';
import type { OpContext, SequenceRows } from './context.js';

export function conv(op: OpFields<'conv'>, x: OpContext): void {
  const { channels, kernel, dilation } = op;
  const history = (kernel - 1) * dilation;
  const input = x.floats(op.in, x.call.rows * channels);
  const out = x.floats(op.out, x.call.rows * channels);
  const weight = x.weight(op.weight, 0, channels * kernel);
  for (const { rowStart, rowCount, fixedIn, fixedOut } of x.call.sequences) {
    const past = x.slab(fixedIn, op.state, history * channels);
    /** Rows before the call have negative indices. */
    const element = (row: number, channel: number): number =>
      row >= 0 ? input[(rowStart + row) * channels + channel]! : past[(history + row) * channels + channel]!;
    for (let row = 0; row < rowCount; row++) {
      for (let c = 0; c < channels; c++) {
        let sum = 0;
        for (let j = 0; j < kernel; j++) {
          sum = x.math.fma(weight[c * kernel + j]!, element(row - (kernel - 1 - j) * dilation, c), sum);
        }
        out[(rowStart + row) * channels + c] = x.math.silu(x.math.act(sum));
      }
    }
    const kept = Float32Array.from({ length: history * channels }, (_, i) =>
      element(rowCount - history + Math.floor(i / channels), i % channels),
    );
    x.slab(fixedOut, op.state, history * channels).set(kept);
  }
}

export function gatedDelta(op: OpFields<'gatedDelta'>, x: OpContext): void {
  const stateSize = op.valueHeads * op.keyDim * op.valueDim;
  for (const sequence of x.call.sequences) {
    const state = x.slab(sequence.fixedOut, op.state, stateSize);
    state.set(x.slab(sequence.fixedIn, op.state, stateSize));
    deltaSequence(op, x, sequence, state);
  }
}

/** One sequence's rows in order; `state` [valueHeads, keyDim, valueDim] is carried on in place. */
function deltaSequence(op: OpFields<'gatedDelta'>, x: OpContext, sequence: SequenceRows, state: Float32Array): void {
  const { keyHeads, valueHeads, keyDim, valueDim } = op;
  const { math } = x;
  const keys = keyHeads * keyDim;
  const width = 2 * keys + valueHeads * valueDim;
  const mixed = x.floats(op.conv, x.call.rows * width);
  const a = x.floats(op.a, x.call.rows * valueHeads);
  const b = x.floats(op.b, x.call.rows * valueHeads);
  const out = x.floats(op.out, x.call.rows * valueHeads * valueDim);
  const negExpA = x.weight(op.negExpA, 0, valueHeads);
  const dtBias = x.weight(op.dtBias, 0, valueHeads);
  const queryScale = math.actIfMtplx(fl(1 / Math.sqrt(keyDim)));
  for (let row = sequence.rowStart; row < sequence.rowStart + sequence.rowCount; row++) {
    for (let h = 0; h < valueHeads; h++) {
      const keyHead = Math.floor(h / (valueHeads / keyHeads));
      const query = l2Normed(x, mixed, row * width + keyHead * keyDim, keyDim);
      for (let i = 0; i < keyDim; i++) query[i] = math.actIfMtplx(fl(query[i]! * queryScale));
      const key = l2Normed(x, mixed, row * width + keys + keyHead * keyDim, keyDim);
      const value = mixed.subarray(row * width + 2 * keys + h * valueDim).subarray(0, valueDim);
      const biased = math.actIfMtplx(fl(a[row * valueHeads + h]! + dtBias[h]!));
      const g = fl(negExpA[h]! * fl(softplusF64(biased)));
      const decay = new Float32Array(keyDim).fill(expF64(g));
      const beta = math.sigma(b[row * valueHeads + h]!);
      const head = state.subarray(h * keyDim * valueDim, (h + 1) * keyDim * valueDim);
      const read = out.subarray((row * valueHeads + h) * valueDim).subarray(0, valueDim);
      deltaStep(x, head, query, key, value, decay, beta, read);
    }
  }
}

export function kda(op: OpFields<'kda'>, x: OpContext): void {
  const { heads, dim } = op;
  const { math } = x;
  const width = heads * dim;
  const mixed = x.floats(op.conv, x.call.rows * 3 * width);
  const f = x.floats(op.f, x.call.rows * width);
  const b = x.floats(op.b, x.call.rows * heads);
  const out = x.floats(op.out, x.call.rows * width);
  const expA = x.weight(op.expA, 0, heads);
  const dtBias = x.weight(op.dtBias, 0, width);
  const queryScale = fl(1 / Math.sqrt(dim));
  for (const { rowStart, rowCount, fixedIn, fixedOut } of x.call.sequences) {
    const state = x.slab(fixedOut, op.state, width * dim);
    state.set(x.slab(fixedIn, op.state, width * dim));
    for (let row = rowStart; row < rowStart + rowCount; row++) {
      for (let h = 0; h < heads; h++) {
        const part = (which: number): number => row * 3 * width + which * width + h * dim;
        const query = scaled(mixed, part(0), dim, math.l2Scale(mixed, part(0), dim)).map((v) => fl(v * queryScale));
        const key = scaled(mixed, part(1), dim, math.l2Scale(mixed, part(1), dim));
        const decay = channelDecays(op, f.subarray(row * width, (row + 1) * width), dtBias, expA[h]!, h);
        const beta = math.sigma(b[row * heads + h]!);
        const head = state.subarray(h * dim * dim, (h + 1) * dim * dim);
        const at = row * width + h * dim;
        deltaStep(x, head, query, key, mixed.subarray(part(2), part(2) + dim), decay, beta, out.subarray(at, at + dim));
      }
    }
  }
}

/** The decay of every key channel of head `h`; `f` is the row's. */
function channelDecays(
  { dim, bound }: OpFields<'kda'>,
  f: Float32Array,
  dtBias: Float32Array,
  expA: number,
  h: number,
): Float32Array {
  return Float32Array.from({ length: dim }, (_, i) => {
    const z = fl(f[h * dim + i]! + dtBias[h * dim + i]!);
    const g = bound === 0 ? fl(-expA * fl(softplusF64(z))) : fl(-bound * sigmoidF32(fl(expA * z)));
    return expF32(g);
  });
}

function scaled(source: Float32Array, from: number, dim: number, scale: number): Float32Array {
  return source.slice(from, from + dim).map((value) => fl(value * scale));
}

/** S <- decay S, row by row; S <- S + k (beta (v - S^T k)); read <- A(S^T q), for S [keyDim, valueDim]. */
function deltaStep(
  x: OpContext,
  S: Float32Array,
  query: Float32Array,
  key: Float32Array,
  value: Float32Array,
  decay: Float32Array,
  beta: number,
  read: Float32Array,
): void {
  const valueDim = value.length;
  for (let i = 0; i < S.length; i++) S[i] = decay[Math.floor(i / valueDim)]! * S[i]!;
  for (let j = 0; j < valueDim; j++) {
    let stored = 0;
    for (let i = 0; i < key.length; i++) stored = x.math.fma(key[i]!, S[i * valueDim + j]!, stored);
    const delta = fl(beta * fl(value[j]! - stored));
    let o = 0;
    for (let i = 0; i < key.length; i++) {
      const at = i * valueDim + j;
      S[at] = x.math.fma(key[i]!, delta, S[at]!);
      o = x.math.fma(query[i]!, S[at], o);
    }
    read[j] = x.math.act(o);
  }
}

/** A copy of `dim` elements divided by their l2 norm; MTPLX rounds here. */
function l2Normed(x: OpContext, source: Float32Array, from: number, dim: number): Float32Array {
  const scale = x.math.l2Scale(source, from, dim);
  return source.slice(from, from + dim).map((value) => x.math.actIfMtplx(fl(value * scale)));
}

export function gatedNorm(op: OpFields<'gatedNorm'>, x: OpContext): void {
  const { dim } = op;
  const { math } = x;
  const elements = x.call.rows * op.heads * dim;
  const input = x.floats(op.in, elements);
  const z = x.floats(op.z, elements);
  const out = x.floats(op.out, elements);
  const weight = x.weight(op.weight, 0, dim);
  const gateOf = op.silu === 1 ? siluF32 : sigmoidF32;
  for (let head = 0; head < elements; head += dim) {
    const scale = math.normScale(input, head, dim, op.eps);
    for (let i = 0; i < dim; i++) {
      const weighted = math.act(fl(math.act(fl(input[head + i]! * scale)) * weight[i]!));
      out[head + i] = math.act(fl(weighted * gateOf(z[head + i]!)));
    }
  }
}
