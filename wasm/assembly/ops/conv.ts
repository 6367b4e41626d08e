/**
 * Op conv: causal depthwise convolution over time, then silu. A unit of work is a block of 16 channels of one sequence,
 * which also carries that block's history into the output slab.
 *
 * Invariants: the history is read before it is written, oldest first, so input and output slab may be the same.
 */
import {
  bufferField,
  field,
  scratch,
  SCRATCH_BODY,
  sequenceFirstRow,
  sequenceRows,
  sequences,
  slabAddress,
  trunkRows,
  weightField,
} from '../context';
import { silu4 } from '../gates';
import {
  CONV_CHANNELS,
  CONV_DILATION,
  CONV_IN,
  CONV_KERNEL,
  CONV_OUT,
  CONV_STATE,
  CONV_WEIGHT,
} from '../plan-ops';
import { act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { EXP_WORK } from '../work';

const CHANNELS: i32 = 16;
const TAP_BYTES: usize = 4 * 16;

/** The taps of a block of channels. */
export function convScratch(): usize {
  return SCRATCH_BODY + <usize>field(CONV_KERNEL) * TAP_BYTES;
}

export function convWork(): f64 {
  return <f64>trunkRows * <f64>field(CONV_CHANNELS) * <f64>(EXP_WORK + field(CONV_KERNEL));
}

export function conv(): void {
  const channels = field(CONV_CHANNELS);
  const blocks = (channels + CHANNELS - 1) / CHANNELS;
  for (let unit = nextUnit(); unit < sequences * blocks; unit = nextUnit()) {
    const first = (unit % blocks) * CHANNELS;
    convBlock(unit / blocks, first, min(CHANNELS, channels - first), channels);
  }
}

function convBlock(sequence: i32, first: i32, count: i32, channels: i32): void {
  const kernel = field(CONV_KERNEL);
  const dilation = field(CONV_DILATION);
  const history = (kernel - 1) * dilation;
  const rows = sequenceRows(sequence);
  const stride = <usize>channels << 2;
  const column = <usize>first << 2;
  const rowsAt = <usize>sequenceFirstRow(sequence) * stride + column;
  const input = bufferField(CONV_IN) + rowsAt;
  const out = bufferField(CONV_OUT) + rowsAt;
  const past = slabAddress(sequence, 0) + <usize>field(CONV_STATE) + column;
  const kept = slabAddress(sequence, 1) + <usize>field(CONV_STATE) + column;
  transposeTaps(weightField(CONV_WEIGHT) + (<usize>(first * kernel) << 2), kernel, count);
  for (let row = 0; row < rows; row++) convRow(row, kernel, dilation, input, past, stride, count, out + <usize>row * stride);
  for (let i = 0; i < history; i++) {
    const from = i + rows < history ? past + <usize>(i + rows) * stride : input + <usize>(i + rows - history) * stride;
    memory.copy(kept + <usize>i * stride, from, <usize>count << 2);
  }
}

/** The taps of `count` channels, [tap][channel], so that four channels are one vector. */
function transposeTaps(weight: usize, kernel: i32, count: i32): void {
  const taps = scratch + SCRATCH_BODY;
  for (let j = 0; j < kernel; j++) {
    for (let c = 0; c < count; c++) {
      store<f32>(taps + <usize>j * TAP_BYTES + (<usize>c << 2), load<f32>(weight + (<usize>(c * kernel + j) << 2)));
    }
  }
}

export function convRow(
  row: i32,
  kernel: i32,
  dilation: i32,
  input: usize,
  past: usize,
  stride: usize,
  count: i32,
  out: usize,
): void {
  const history = (kernel - 1) * dilation;
  for (let c = 0; c < count; c += 4) {
    const column = <usize>c << 2;
    let tap = scratch + SCRATCH_BODY + column;
    let at = row - history;
    let sum = f32x4.splat(0);
    for (let j = 0; j < kernel; j++) {
      const x = at >= 0 ? input + <usize>at * stride : past + <usize>(history + at) * stride;
      sum = f32x4.add(f32x4.mul(v128.load(tap), load4(x + column, count - c)), sum);
      tap += TAP_BYTES;
      at += dilation;
    }
    store4(out + column, silu4(act4(sum)), count - c);
  }
}
