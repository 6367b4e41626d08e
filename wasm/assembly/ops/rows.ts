/**
 * Ops that treat every element or row by itself: embedding, norms, sums, products, copies.
 *
 * Invariants: a unit of work is a row, a group, or a stretch of ELEMENTS elements; an output may be an input where the op
 * table allows it, since an element is read before it is written.
 */
import {
  bufferField,
  field,
  floatField,
  headRows,
  rowsOf,
  selectedRow,
  tokenOf,
  trunkRows,
  weightAddress,
  weightDtype,
  weightField,
} from '../context';
import { dtypeShift, laneSum, widen } from '../dot';
import { sigmoidF32x4 } from '../exp';
import { swiglu4 } from '../gates';
import { normRow, normScale } from '../norm-rope';
import {
  ADD_A,
  ADD_B,
  ADD_OUT,
  ADD_ROWS,
  ADD_WIDTH,
  EMBED_COPIES,
  EMBED_GREEDY_COPIES,
  EMBED_GREEDY_LOGITS,
  EMBED_GREEDY_OUT,
  EMBED_GREEDY_OUT_IDS,
  EMBED_GREEDY_VOCAB,
  EMBED_GREEDY_WEIGHT,
  EMBED_GREEDY_WIDTH,
  EMBED_OUT,
  EMBED_WEIGHT,
  EMBED_WIDTH,
  GATED_NORM_DIM,
  GATED_NORM_EPS,
  GATED_NORM_HEADS,
  GATED_NORM_IN,
  GATED_NORM_OUT,
  GATED_NORM_SILU,
  GATED_NORM_WEIGHT,
  GATED_NORM_Z,
  GATHER_IN,
  GATHER_OUT,
  GATHER_WIDTH,
  LAYER_NORM_BIAS,
  LAYER_NORM_EPS,
  LAYER_NORM_GAIN,
  LAYER_NORM_IN,
  LAYER_NORM_OUT,
  LAYER_NORM_ROWS,
  LAYER_NORM_WIDTH,
  NORM_EPS,
  NORM_GAIN,
  NORM_GROUP,
  NORM_IN,
  NORM_OUT,
  NORM_ROWS,
  NORM_WIDTH,
  PLE_ADD_CONV,
  PLE_ADD_RESIDUAL,
  PLE_ADD_U,
  PLE_ADD_WIDTH,
  SWIGLU_GATE,
  SWIGLU_LIMIT,
  SWIGLU_OUT,
  SWIGLU_UP,
  SWIGLU_WIDTH,
  TAP_IN,
  TAP_OUT,
  TAP_WIDTH,
} from '../plan-ops';
import { act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK, EXP_WORK } from '../work';

/** Elements of a unit of an element-wise op. */
const ELEMENTS: i32 = 4096;

@inline
function stretches(elements: i32): i32 {
  return (elements + ELEMENTS - 1) / ELEMENTS;
}

export function embedWork(): f64 {
  return <f64>trunkRows * <f64>field(EMBED_WIDTH) * <f64>field(EMBED_COPIES) * ELEMENT_WORK;
}

export function embed(): void {
  const width = field(EMBED_WIDTH);
  const copies = field(EMBED_COPIES);
  const bytes = <usize>width << 2;
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    embedRow(field(EMBED_WEIGHT), tokenOf(row), width, copies, bufferField(EMBED_OUT) + <usize>(row * copies) * bytes);
  }
}

function embedRow(weight: i32, id: i32, width: i32, copies: i32, out: usize): void {
  const dtype = weightDtype(weight);
  const bytes = <usize>width << 2;
  widen(weightAddress(weight) + (<usize>id * <usize>width << <usize>dtypeShift(dtype)), dtype, width, out);
  for (let i = 0; i < width; i += 4) {
    const at = out + (<usize>i << 2);
    store4(at, act4(load4(at, width - i)), width - i);
  }
  for (let c = 1; c < copies; c++) memory.copy(out + <usize>c * bytes, out, bytes);
}

export function embedGreedyWork(): f64 {
  const width = <f64>field(EMBED_GREEDY_WIDTH) * <f64>field(EMBED_GREEDY_COPIES);
  return <f64>trunkRows * (width + <f64>field(EMBED_GREEDY_VOCAB)) * ELEMENT_WORK;
}

export function embedGreedy(): void {
  const width = field(EMBED_GREEDY_WIDTH);
  const copies = field(EMBED_GREEDY_COPIES);
  const vocab = field(EMBED_GREEDY_VOCAB);
  const bytes = <usize>width << 2;
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    const id = greatest(bufferField(EMBED_GREEDY_LOGITS) + (<usize>row * <usize>vocab << 2), vocab);
    store<i32>(bufferField(EMBED_GREEDY_OUT_IDS) + (<usize>row << 2), id);
    const out = bufferField(EMBED_GREEDY_OUT) + <usize>(row * copies) * bytes;
    embedRow(field(EMBED_GREEDY_WEIGHT), id, width, copies, out);
  }
}

/** The lowest index of the greatest by `>` from -inf; 0 where nothing is greater. */
function greatest(values: usize, count: i32): i32 {
  let id = 0;
  let most: f32 = -Infinity;
  for (let i = 0; i < count; i++) {
    const value = load<f32>(values + (<usize>i << 2));
    if (value > most) {
      most = value;
      id = i;
    }
  }
  return id;
}

export function normWork(): f64 {
  return <f64>rowsOf(field(NORM_ROWS)) * <f64>field(NORM_WIDTH) * ELEMENT_WORK;
}

export function norm(): void {
  const group = field(NORM_GROUP);
  const groups = field(NORM_WIDTH) / group;
  const units = rowsOf(field(NORM_ROWS)) * groups;
  for (let unit = nextUnit(); unit < units; unit = nextUnit()) {
    const at = <usize>unit * <usize>group << 2;
    const gain: usize =
      field(NORM_GAIN) < 0 ? 0 : weightField(NORM_GAIN) + (<usize>(unit % groups) * <usize>group << 2);
    normRow(bufferField(NORM_IN) + at, group, gain, floatField(NORM_EPS), bufferField(NORM_OUT) + at);
  }
}

export function layerNormWork(): f64 {
  return <f64>rowsOf(field(LAYER_NORM_ROWS)) * <f64>field(LAYER_NORM_WIDTH) * ELEMENT_WORK;
}

export function layerNorm(): void {
  const width = field(LAYER_NORM_WIDTH);
  const rows = rowsOf(field(LAYER_NORM_ROWS));
  for (let row = nextUnit(); row < rows; row = nextUnit()) {
    const at = <usize>row * <usize>width << 2;
    layerNormRow(bufferField(LAYER_NORM_IN) + at, bufferField(LAYER_NORM_OUT) + at, width);
  }
}

/** The centred values lie in `out` between the two passes. */
function layerNormRow(x: usize, out: usize, width: i32): void {
  const mean = f32x4.splat(laneSum(x, width) / <f32>width);
  for (let i = 0; i < width; i += 4) {
    const at = <usize>i << 2;
    store4(out + at, f32x4.sub(load4(x + at, width - i), mean), width - i);
  }
  const scale = f32x4.splat(normScale(out, width, floatField(LAYER_NORM_EPS)));
  const gain = weightField(LAYER_NORM_GAIN);
  const bias = weightField(LAYER_NORM_BIAS);
  for (let i = 0; i < width; i += 4) {
    const at = <usize>i << 2;
    const left = width - i;
    const y = f32x4.mul(f32x4.mul(load4(out + at, left), scale), load4(gain + at, left));
    store4(out + at, act4(f32x4.add(y, load4(bias + at, left))), left);
  }
}

export function gatedNormWork(): f64 {
  return <f64>trunkRows * <f64>field(GATED_NORM_HEADS) * <f64>field(GATED_NORM_DIM) * EXP_WORK;
}

export function gatedNorm(): void {
  const dim = field(GATED_NORM_DIM);
  const heads = field(GATED_NORM_HEADS);
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    for (let h = row * heads; h < (row + 1) * heads; h++) {
      const at = <usize>h * <usize>dim << 2;
      gatedNormHead(bufferField(GATED_NORM_IN) + at, bufferField(GATED_NORM_Z) + at, bufferField(GATED_NORM_OUT) + at, dim);
    }
  }
}

function gatedNormHead(x: usize, z: usize, out: usize, dim: i32): void {
  const scale = f32x4.splat(normScale(x, dim, floatField(GATED_NORM_EPS)));
  const weight = weightField(GATED_NORM_WEIGHT);
  const withSilu = field(GATED_NORM_SILU) == 1;
  for (let i = 0; i < dim; i += 4) {
    const at = <usize>i << 2;
    const left = dim - i;
    const n = act4(f32x4.mul(load4(x + at, left), scale));
    const w = act4(f32x4.mul(n, load4(weight + at, left)));
    const gate = load4(z + at, left);
    const s = sigmoidF32x4(gate);
    store4(out + at, act4(f32x4.mul(w, withSilu ? f32x4.mul(gate, s) : s)), left);
  }
}

export function swigluWork(): f64 {
  return <f64>trunkRows * <f64>field(SWIGLU_WIDTH) * EXP_WORK;
}

export function swiglu(): void {
  const elements = trunkRows * field(SWIGLU_WIDTH);
  for (let unit = nextUnit(); unit < stretches(elements); unit = nextUnit()) {
    const from = unit * ELEMENTS;
    const at = <usize>from << 2;
    const count = min(ELEMENTS, elements - from);
    const out = bufferField(SWIGLU_OUT) + at;
    swigluStretch(bufferField(SWIGLU_GATE) + at, bufferField(SWIGLU_UP) + at, out, count, floatField(SWIGLU_LIMIT));
  }
}

function swigluStretch(gate: usize, up: usize, out: usize, count: i32, limit: f32): void {
  for (let i = 0; i < count; i += 4) {
    const at = <usize>i << 2;
    store4(out + at, act4(swiglu4(load4(gate + at, count - i), load4(up + at, count - i), limit)), count - i);
  }
}

export function addWork(): f64 {
  return <f64>rowsOf(field(ADD_ROWS)) * <f64>field(ADD_WIDTH) * ELEMENT_WORK;
}

export function add(): void {
  const elements = rowsOf(field(ADD_ROWS)) * field(ADD_WIDTH);
  for (let unit = nextUnit(); unit < stretches(elements); unit = nextUnit()) {
    const from = unit * ELEMENTS;
    const at = <usize>from << 2;
    addStretch(bufferField(ADD_A) + at, bufferField(ADD_B) + at, bufferField(ADD_OUT) + at, min(ELEMENTS, elements - from));
  }
}

function addStretch(a: usize, b: usize, out: usize, count: i32): void {
  for (let i = 0; i < count; i += 4) {
    const at = <usize>i << 2;
    store4(out + at, act4(f32x4.add(load4(a + at, count - i), load4(b + at, count - i))), count - i);
  }
}

export function pleAddWork(): f64 {
  return <f64>trunkRows * <f64>field(PLE_ADD_WIDTH) * ELEMENT_WORK;
}

export function pleAdd(): void {
  const elements = trunkRows * field(PLE_ADD_WIDTH);
  for (let unit = nextUnit(); unit < stretches(elements); unit = nextUnit()) {
    const from = unit * ELEMENTS;
    const at = <usize>from << 2;
    const count = min(ELEMENTS, elements - from);
    pleAddStretch(bufferField(PLE_ADD_RESIDUAL) + at, bufferField(PLE_ADD_U) + at, bufferField(PLE_ADD_CONV) + at, count);
  }
}

function pleAddStretch(residual: usize, u: usize, conv: usize, count: i32): void {
  for (let i = 0; i < count; i += 4) {
    const at = <usize>i << 2;
    const sum = act4(f32x4.add(load4(u + at, count - i), load4(conv + at, count - i)));
    store4(residual + at, act4(f32x4.add(load4(residual + at, count - i), sum)), count - i);
  }
}

export function gather(): void {
  const bytes = <usize>field(GATHER_WIDTH) << 2;
  for (let m = nextUnit(); m < headRows; m = nextUnit()) {
    memory.copy(bufferField(GATHER_OUT) + <usize>m * bytes, bufferField(GATHER_IN) + <usize>selectedRow(m) * bytes, bytes);
  }
}

export function tap(): void {
  const bytes = <usize>field(TAP_WIDTH) << 2;
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    memory.copy(bufferField(TAP_OUT) + <usize>row * bytes, bufferField(TAP_IN) + <usize>row * bytes, bytes);
  }
}
