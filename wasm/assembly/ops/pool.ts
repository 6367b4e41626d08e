/**
 * Op pool: windows of tokens pooled into one row each, every channel with a softmax of its own over the window's slots. A
 * unit of work is a row that may complete a window; behind them a slot of a sequence's ring.
 *
 * Invariants: raw rows before the call are read from the input slab, and the ring is written to the output slab, which are
 * never the same; slots are walked in ascending order.
 */
import {
  bufferField,
  field,
  floatField,
  pageTokens,
  positionOf,
  scratch,
  SCRATCH_BODY,
  sequenceFirstRow,
  sequenceOf,
  sequenceRows,
  sequences,
  sequenceStart,
  slabAddress,
  trunkRows,
  weightField,
} from '../context';
import { expF32x4 } from '../exp';
import { normRow, ropePairs } from '../norm-rope';
import { pageElement, storeKv } from '../pages';
import {
  POOL_APE,
  POOL_CHANNELS,
  POOL_EPS,
  POOL_GAIN,
  POOL_GATES,
  POOL_OVERLAP,
  POOL_POOLED,
  POOL_ROPE,
  POOL_ROTARY,
  POOL_STATE,
  POOL_VALUES,
  POOL_WINDOW,
} from '../plan-ops';
import { act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK, EXP_WORK } from '../work';
import { ringPosition } from './latent';

/** Slots of the ring, and of a window with the one before it. */
@inline
function slotsOf(): i32 {
  return (1 + field(POOL_OVERLAP)) * field(POOL_WINDOW);
}

/** Values or gates of a token. */
@inline
function rawWidth(): i32 {
  return (1 + field(POOL_OVERLAP)) * field(POOL_CHANNELS);
}

/** A pooled row, and four channels of every slot. */
export function poolScratch(): usize {
  return SCRATCH_BODY + (<usize>(field(POOL_CHANNELS) + 3) << 2) + (<usize>slotsOf() << 4);
}

export function poolWork(): f64 {
  const pooled = <f64>trunkRows * <f64>rawWidth() * EXP_WORK;
  return pooled + <f64>sequences * <f64>slotsOf() * <f64>rawWidth() * ELEMENT_WORK;
}

export function pool(): void {
  const window = field(POOL_WINDOW);
  const slots = slotsOf();
  for (let unit = nextUnit(); unit < trunkRows + sequences * slots; unit = nextUnit()) {
    if (unit >= trunkRows) keepRow((unit - trunkRows) / slots, (unit - trunkRows) % slots, slots);
    else if ((positionOf(unit) + 1) % window == 0) poolWindow(sequenceOf(unit), positionOf(unit) + 1 - window, window);
  }
}

/** Values (0) or gates (1) of a position: of the call, or of the ring. */
function rawAt(sequence: i32, position: i32, gates: i32): usize {
  const bytes = <usize>rawWidth() << 2;
  const start = sequenceStart(sequence);
  if (position >= start) {
    const rows = gates == 1 ? bufferField(POOL_GATES) : bufferField(POOL_VALUES);
    return rows + <usize>(sequenceFirstRow(sequence) + position - start) * bytes;
  }
  return slabAddress(sequence, 0) + <usize>field(POOL_STATE) + <usize>((position % slotsOf()) * 2 + gates) * bytes;
}

function poolWindow(sequence: i32, first: i32, window: i32): void {
  const channels = field(POOL_CHANNELS);
  const row = scratch + SCRATCH_BODY;
  for (let c = 0; c < channels; c += 4) {
    store4(row + (<usize>c << 2), poolChannels(sequence, first, window, c, channels), channels - c);
  }
  if (field(POOL_GAIN) >= 0) normRow(row, channels, weightField(POOL_GAIN), floatField(POOL_EPS), row);
  if (field(POOL_ROPE) >= 0) {
    const rotary = field(POOL_ROTARY);
    const angles = weightField(POOL_ROPE) + (<usize>first * <usize>rotary << 2);
    ropePairs(row + (<usize>(channels - rotary) << 2), rotary, angles, false);
  }
  const element = ((first % pageTokens) / window) * channels;
  storeKv(pageElement(sequence, first, field(POOL_POOLED), element), row, channels);
}

/** Four channels of a pooled row. */
export function poolChannels(sequence: i32, first: i32, window: i32, c: i32, channels: i32): v128 {
  const left = channels - c;
  const width = rawWidth();
  const before = field(POOL_OVERLAP) == 1 && first > 0 ? window : 0;
  const count = before + window;
  const e = scratch + SCRATCH_BODY + (<usize>(channels + 3) << 2);
  let most = f32x4.splat(-Infinity);
  for (let s = 0; s < count; s++) {
    const column = <usize>(s < before ? c : width - channels + c) << 2;
    const ape = weightField(POOL_APE) + (<usize>((s < before ? s : s - before) * width) << 2);
    const gates = rawAt(sequence, first - before + s, 1);
    const l = f32x4.add(load4(gates + column, left), load4(ape + column, left));
    most = f32x4.pmax(most, l);
    v128.store(e + (<usize>s << 4), l);
  }
  let total = f32x4.splat(0);
  for (let s = 0; s < count; s++) {
    const at = e + (<usize>s << 4);
    const x = expF32x4(f32x4.sub(v128.load(at), most));
    v128.store(at, x);
    total = f32x4.add(total, x);
  }
  let sum = f32x4.splat(0);
  for (let s = 0; s < count; s++) {
    const column = <usize>(s < before ? c : width - channels + c) << 2;
    const weight = f32x4.div(v128.load(e + (<usize>s << 4)), total);
    const values = rawAt(sequence, first - before + s, 0);
    sum = f32x4.add(f32x4.mul(weight, load4(values + column, left)), sum);
  }
  return act4(sum);
}

function keepRow(sequence: i32, slot: i32, slots: i32): void {
  const bytes = <usize>rawWidth() << 2;
  const position = ringPosition(slot, slots, sequenceStart(sequence) + sequenceRows(sequence));
  const to = slabAddress(sequence, 1) + <usize>field(POOL_STATE) + <usize>(2 * slot) * bytes;
  if (position < 0) {
    memory.fill(to, 0, 2 * bytes);
    return;
  }
  memory.copy(to, rawAt(sequence, position, 0), bytes);
  memory.copy(to + bytes, rawAt(sequence, position, 1), bytes);
}
