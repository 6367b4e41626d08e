/**
 * Op linear: every segment's weight rows times the op's rows. A unit of work is a chunk of rows by up to UNIT_OUTS outputs.
 */
import { bufferAt, bufferField, field, opWord, rowsOf, weightAddress, weightDtype } from '../context';
import { dtypeShift } from '../dot';
import { beginChunk, chunkRows, matmul, matmulScratch, resultOf, rowEntry, UNIT_OUTS } from '../matmul';
import {
  LINEAR_FIRST_SEGMENT,
  LINEAR_IN,
  LINEAR_IN_WIDTH,
  LINEAR_ROWS,
  LINEAR_SEGMENT_WORDS,
  LINEAR_SEGMENTS,
  SEGMENT_BIAS,
  SEGMENT_OUT,
  SEGMENT_OUT_COLUMN,
  SEGMENT_OUT_WIDTH,
  SEGMENT_OUTS,
  SEGMENT_WEIGHT,
} from '../plan-ops';
import { act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';

@inline
function segmentField(segment: i32, index: i32): i32 {
  return load<i32>(opWord(LINEAR_FIRST_SEGMENT + LINEAR_SEGMENT_WORDS * segment + index));
}

@inline
function unitsOf(outs: i32): i32 {
  return (outs + UNIT_OUTS - 1) / UNIT_OUTS;
}

export function linearWork(): f64 {
  let outs: f64 = 0;
  for (let s = 0; s < field(LINEAR_SEGMENTS); s++) outs += <f64>segmentField(s, SEGMENT_OUTS);
  return <f64>rowsOf(field(LINEAR_ROWS)) * <f64>field(LINEAR_IN_WIDTH) * outs;
}

export function linearScratch(): usize {
  return matmulScratch(field(LINEAR_IN_WIDTH));
}

export function linear(): void {
  const rows = rowsOf(field(LINEAR_ROWS));
  const k = field(LINEAR_IN_WIDTH);
  const input = bufferField(LINEAR_IN);
  const segments = field(LINEAR_SEGMENTS);
  const most = chunkRows(k);
  let unitsOfChunk = 0;
  for (let s = 0; s < segments; s++) unitsOfChunk += unitsOf(segmentField(s, SEGMENT_OUTS));
  const units = unitsOfChunk * ((rows + most - 1) / most);
  let current = -1;
  for (let unit = nextUnit(); unit < units; unit = nextUnit()) {
    const chunk = unit / unitsOfChunk;
    const first = chunk * most;
    const count = min(most, rows - first);
    if (chunk != current) {
      current = chunk;
      beginChunk();
      for (let i = 0; i < count; i++) store<u32>(rowEntry(i), <u32>(input + (<usize>(first + i) * <usize>k << 2)));
    }
    let part = unit - chunk * unitsOfChunk;
    let segment = 0;
    while (part >= unitsOf(segmentField(segment, SEGMENT_OUTS))) part -= unitsOf(segmentField(segment++, SEGMENT_OUTS));
    linearUnit(segment, part * UNIT_OUTS, first, count, k);
  }
}

/** Outputs `from` and on of a segment, for `count` rows of the op from row `first`. */
export function linearUnit(segment: i32, from: i32, first: i32, count: i32, k: i32): void {
  const outs = min(UNIT_OUTS, segmentField(segment, SEGMENT_OUTS) - from);
  const weight = segmentField(segment, SEGMENT_WEIGHT);
  const dtype = weightDtype(weight);
  const w = weightAddress(weight) + (<usize>from * <usize>k << <usize>dtypeShift(dtype));
  matmul(count, k, w, dtype, outs, false);
  const bias = segmentField(segment, SEGMENT_BIAS);
  const biases: usize = bias < 0 ? 0 : weightAddress(bias) + (<usize>from << 2);
  const width = segmentField(segment, SEGMENT_OUT_WIDTH);
  const column = segmentField(segment, SEGMENT_OUT_COLUMN) + from;
  const out = bufferAt(segmentField(segment, SEGMENT_OUT)) + (<usize>column << 2);
  for (let i = 0; i < count; i++) writeRow(resultOf(i), biases, out + (<usize>(first + i) * <usize>width << 2), outs);
}

/** A(result + bias); the results have room for whole vectors. */
function writeRow(result: usize, biases: usize, out: usize, outs: i32): void {
  for (let o = 0; o < outs; o += 4) {
    const at = <usize>o << 2;
    let x = v128.load(result + at);
    if (biases != 0) x = f32x4.add(x, load4(biases + at, outs - o));
    store4(out + at, act4(x), outs - o);
  }
}
