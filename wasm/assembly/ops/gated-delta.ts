/**
 * Op gatedDelta: the gated delta rule, token by token. A unit of work is one value head of one sequence.
 *
 * Invariants: the first token reads the state of the input slab and every token writes that of the output slab, which may
 * be the same memory.
 */
import {
  bufferField,
  field,
  isMtplx,
  sequenceFirstRow,
  sequenceRows,
  sequences,
  slabAddress,
  trunkRows,
  weightField,
} from '../context';
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
import { act } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK } from '../work';
import { decaysAt, deltaScratch, deltaToken, prepareToken } from './delta-rule';

export function gatedDeltaScratch(): usize {
  return deltaScratch(field(GATED_DELTA_KEY_DIM));
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
  const first = sequenceFirstRow(sequence);
  for (let row = first; row < first + sequenceRows(sequence); row++) {
    const mixed = bufferField(GATED_DELTA_CONV) + (<usize>row * <usize>width << 2);
    const queries = mixed + (<usize>(keyHead * keyDim) << 2);
    prepareToken(queries, queries + (<usize>keys << 2), keyDim, isMtplx);
    const entry = row * valueHeads + head;
    fillDecays(decayOf(head, load<f32>(bufferField(GATED_DELTA_A) + (<usize>entry << 2))), keyDim);
    const beta = f32x4.extract_lane(sigma4(v128.load32_splat(bufferField(GATED_DELTA_B) + (<usize>entry << 2))), 0);
    const value = mixed + (<usize>(2 * keys + head * valueDim) << 2);
    deltaToken(from, state, valueDim, keyDim, beta, value, bufferField(GATED_DELTA_OUT) + (<usize>entry * <usize>valueDim << 2));
    from = state;
  }
}

/** One decay for every key channel. */
function fillDecays(decay: f32, keyDim: i32): void {
  const to = decaysAt(keyDim);
  for (let i = 0; i < keyDim; i++) store<f32>(to + (<usize>i << 2), decay);
}

/** exp(-exp(A) * softplus(a + dtBias)): the product rounded to float32, both functions in float64. */
function decayOf(head: i32, a: f32): f32 {
  const at = <usize>head << 2;
  const sum = a + load<f32>(weightField(GATED_DELTA_DT_BIAS) + at);
  const biased = isMtplx ? act(sum) : sum;
  const g = load<f32>(weightField(GATED_DELTA_NEG_EXP_A) + at) * <f32>softplusF64(<f64>biased);
  return <f32>expF64(<f64>g);
}
