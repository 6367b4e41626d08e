/**
 * Op kda: the delta rule with a decay for every key channel, token by token. A unit of work is one head of one sequence.
 *
 * Invariants: the first token reads the state of the input slab and every token writes that of the output slab, which may
 * be the same memory.
 */
import {
  bufferField,
  field,
  floatField,
  sequenceFirstRow,
  sequenceRows,
  sequences,
  slabAddress,
  trunkRows,
  weightField,
} from '../context';
import { expF32x4, sigmoidF32x4, softplusF64 } from '../exp';
import { sigma4 } from '../gates';
import {
  KDA_B,
  KDA_BOUND,
  KDA_CONV,
  KDA_DIM,
  KDA_DT_BIAS,
  KDA_EXP_A,
  KDA_F,
  KDA_HEADS,
  KDA_OUT,
  KDA_STATE,
} from '../plan-ops';
import { load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK } from '../work';
import { decaysAt, deltaScratch, deltaToken, prepareToken } from './delta-rule';

export function kdaScratch(): usize {
  return deltaScratch(field(KDA_DIM));
}

export function kdaWork(): f64 {
  return <f64>trunkRows * <f64>field(KDA_HEADS) * <f64>field(KDA_DIM) * <f64>field(KDA_DIM) * ELEMENT_WORK;
}

export function kda(): void {
  const heads = field(KDA_HEADS);
  for (let unit = nextUnit(); unit < sequences * heads; unit = nextUnit()) kdaHead(unit / heads, unit % heads);
}

function kdaHead(sequence: i32, head: i32): void {
  const heads = field(KDA_HEADS);
  const dim = field(KDA_DIM);
  const width = <usize>(heads * dim) << 2;
  const stateAt = <usize>field(KDA_STATE) + (<usize>head * <usize>dim * <usize>dim << 2);
  let from = slabAddress(sequence, 0) + stateAt;
  const state = slabAddress(sequence, 1) + stateAt;
  const first = sequenceFirstRow(sequence);
  for (let row = first; row < first + sequenceRows(sequence); row++) {
    const part = <usize>(head * dim) << 2;
    const query = bufferField(KDA_CONV) + 3 * <usize>row * width + part;
    prepareToken(query, query + width, dim, false);
    decayChannels(head, dim, bufferField(KDA_F) + <usize>row * width + part);
    const gate = bufferField(KDA_B) + (<usize>(row * heads + head) << 2);
    const beta = f32x4.extract_lane(sigma4(v128.load32_splat(gate)), 0);
    deltaToken(from, state, dim, dim, beta, query + 2 * width, bufferField(KDA_OUT) + <usize>row * width + part);
    from = state;
  }
}

/** The decay of every key channel of a head. */
function decayChannels(head: i32, dim: i32, f: usize): void {
  const to = decaysAt(dim);
  const bias = weightField(KDA_DT_BIAS) + (<usize>(head * dim) << 2);
  const a = load<f32>(weightField(KDA_EXP_A) + (<usize>head << 2));
  const bound = floatField(KDA_BOUND);
  for (let i = 0; i < dim; i += 4) {
    const at = <usize>i << 2;
    const z = f32x4.add(load4(f + at, dim - i), load4(bias + at, dim - i));
    const g =
      bound == 0
        ? f32x4.mul(f32x4.splat(-a), softplus4(z))
        : f32x4.mul(f32x4.splat(-bound), sigmoidF32x4(f32x4.mul(f32x4.splat(a), z)));
    store4(to + at, expF32x4(g), dim - i);
  }
}

function softplus4(z: v128): v128 {
  let y = f32x4.splat(<f32>softplusF64(<f64>f32x4.extract_lane(z, 0)));
  y = f32x4.replace_lane(y, 1, <f32>softplusF64(<f64>f32x4.extract_lane(z, 1)));
  y = f32x4.replace_lane(y, 2, <f32>softplusF64(<f64>f32x4.extract_lane(z, 2)));
  return f32x4.replace_lane(y, 3, <f32>softplusF64(<f64>f32x4.extract_lane(z, 3)));
}
