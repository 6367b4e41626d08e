/**
 * Op attention: softmax attention with an output gate. A unit of work is one key-value head of one row, with all query
 * heads that share it.
 *
 * Invariants: visible tokens are walked in ascending order, in runs that are contiguous in a page; a token's lane in the
 * softmax total is its rank in that walk; sums over values start from 0 and are carried from run to run.
 */
import {
  bufferField,
  field,
  floatField,
  mostVisible,
  pageTokens,
  positionOf,
  scratch,
  SCRATCH_BODY,
  sequenceOf,
  trunkRows,
} from '../context';
import { dots, laneSum, prepareBf16 } from '../dot';
import { expF32x4 } from '../exp';
import { gate4 } from '../gates';
import { kvBytes, kvDtype, loadKv, loadKv4, pageElement } from '../pages';
import {
  ATTENTION_BLOCK,
  ATTENTION_BUDGET_BLOCKS,
  ATTENTION_DIM,
  ATTENTION_HEADS,
  ATTENTION_KEYS,
  ATTENTION_KV_HEADS,
  ATTENTION_LOWERING,
  ATTENTION_OUT,
  ATTENTION_PACKED,
  ATTENTION_Q,
  ATTENTION_SCALE,
  ATTENTION_SELECT,
  ATTENTION_VALUES,
  DTYPE_BF16,
} from '../plan-ops';
import { act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { EXP_WORK } from '../work';

@inline
function rounded(elements: i32): usize {
  return <usize>((elements + 15) & ~15) << 2;
}

/** A run: position of its first token and number of tokens. */
const RUN_BYTES: usize = 8;

function runBytes(): usize {
  const pages = (mostVisible + pageTokens - 1) / pageTokens;
  return <usize>max(pages, field(ATTENTION_BUDGET_BLOCKS) + 1) * RUN_BYTES;
}

/** Runs; a prepared query and a sum over values for every head of a group, and their weights; one value. */
export function attentionScratch(): usize {
  const group = <usize>(field(ATTENTION_HEADS) / field(ATTENTION_KV_HEADS));
  const dim = rounded(field(ATTENTION_DIM));
  return SCRATCH_BODY + runBytes() + group * (2 * dim + rounded(mostVisible)) + dim;
}

export function attentionWork(): f64 {
  const select = field(ATTENTION_SELECT);
  const chosen = (field(ATTENTION_BUDGET_BLOCKS) + 1) * field(ATTENTION_BLOCK);
  const visible = select < 0 ? mostVisible : min(mostVisible, chosen);
  const products = <f64>field(ATTENTION_HEADS) * <f64>field(ATTENTION_DIM);
  return <f64>trunkRows * products * (2 * <f64>visible + EXP_WORK);
}

export function attention(): void {
  const kvHeads = field(ATTENTION_KV_HEADS);
  for (let unit = nextUnit(); unit < trunkRows * kvHeads; unit = nextUnit()) attendGroup(unit / kvHeads, unit % kvHeads);
}

function attendGroup(row: i32, kvHead: i32): void {
  const heads = field(ATTENTION_HEADS);
  const dim = field(ATTENTION_DIM);
  const group = heads / field(ATTENTION_KV_HEADS);
  const runs = scratch + SCRATCH_BODY;
  const count = listRuns(row, runs);
  const prepared = runs + runBytes();
  const sums = prepared + <usize>group * rounded(dim);
  const spare = sums + <usize>group * rounded(dim);
  const weights = spare + rounded(dim);
  const head = row * heads + kvHead * group;
  for (let g = 0; g < group; g++) {
    const q = bufferField(ATTENTION_Q) + (<usize>(head + g) * <usize>dim << 2);
    const to = prepared + <usize>g * rounded(dim);
    if (kvDtype() == DTYPE_BF16) prepareBf16(q, dim, to);
    else memory.copy(to, q, <usize>dim << 2);
  }
  const sequence = sequenceOf(row);
  const visible = scoreRuns(sequence, kvHead, runs, count, prepared, weights, group, dim);
  for (let g = 0; g < group; g++) {
    scaleScores(weights + <usize>g * rounded(mostVisible), visible, floatField(ATTENTION_SCALE));
    softmaxWeights(weights + <usize>g * rounded(mostVisible), visible);
  }
  memory.fill(sums, 0, <usize>group * rounded(dim));
  sumRuns(sequence, kvHead, runs, count, weights, sums, group, dim, spare);
  for (let g = 0; g < group; g++) {
    const gates = bufferField(ATTENTION_PACKED) + (<usize>(2 * (head + g) + 1) * <usize>dim << 2);
    const out = bufferField(ATTENTION_OUT) + (<usize>(head + g) * <usize>dim << 2);
    gateRow(sums + <usize>g * rounded(dim), gates, dim, field(ATTENTION_LOWERING), out);
  }
}

/** Writes the runs of tokens that a row sees; returns how many. */
function listRuns(row: i32, runs: usize): i32 {
  const visible = positionOf(row) + 1;
  const entries = 1 + field(ATTENTION_BUDGET_BLOCKS);
  let chosen: usize = 0;
  if (field(ATTENTION_SELECT) >= 0) chosen = bufferField(ATTENTION_SELECT) + (<usize>(row * entries) << 2);
  let at = runs;
  if (chosen == 0 || load<i32>(chosen) == -1) {
    for (let first = 0; first < visible; first += pageTokens) at = putRun(at, first, min(pageTokens, visible - first));
  } else {
    const block = field(ATTENTION_BLOCK);
    const blocks = load<i32>(chosen);
    for (let b = 1; b <= blocks; b++) at = putRun(at, load<i32>(chosen + (<usize>b << 2)) * block, block);
    const last = (visible / block) * block;
    if (last < visible) at = putRun(at, last, visible - last);
  }
  return <i32>((at - runs) / RUN_BYTES);
}

@inline
function putRun(at: usize, first: i32, tokens: i32): usize {
  store<i32>(at, first);
  store<i32>(at, tokens, 4);
  return at + RUN_BYTES;
}

/** Address of a run's keys or values. */
@inline
function runElements(sequence: i32, kvHead: i32, first: i32, base: i32, dim: i32): usize {
  return pageElement(sequence, first, base, (kvHead * pageTokens + (first % pageTokens)) * dim);
}

/** dot(q, key) of every head of the group with every visible token, unrounded; returns the number of tokens. */
function scoreRuns(
  sequence: i32,
  kvHead: i32,
  runs: usize,
  count: i32,
  queries: usize,
  scores: usize,
  group: i32,
  dim: i32,
): i32 {
  let rank = 0;
  for (let r = 0; r < count; r++) {
    const first = load<i32>(runs + <usize>r * RUN_BYTES);
    const tokens = load<i32>(runs + <usize>r * RUN_BYTES, 4);
    const keys = runElements(sequence, kvHead, first, field(ATTENTION_KEYS), dim);
    for (let g = 0; g < group; g++) {
      const to = scores + <usize>g * rounded(mostVisible) + (<usize>rank << 2);
      dots(keys, kvDtype(), tokens, queries + <usize>g * rounded(dim), dim, to, 0);
    }
    rank += tokens;
  }
  return rank;
}

/** In place: dot products to scores s = A(A(dot) * scale). */
export function scaleScores(x: usize, count: i32, scale: f32): void {
  const by = f32x4.splat(scale);
  for (let i = 0; i < count; i += 4) {
    const at = x + (<usize>i << 2);
    v128.store(at, act4(f32x4.mul(act4(v128.load(at)), by)));
  }
}

/** In place: scores to the weights p = A(e / total). */
export function softmaxWeights(x: usize, count: i32): void {
  let most = f32x4.splat(-Infinity);
  for (let i = 0; i < count; i += 4) {
    const at = x + (<usize>i << 2);
    // Past the end stands what an earlier row left: it must not count.
    if (count - i >= 4) most = f32x4.pmax(most, v128.load(at));
    else for (let j = 0; j < count - i; j++) most = f32x4.pmax(most, v128.load32_splat(at + (<usize>j << 2)));
  }
  most = f32x4.pmax(most, v128.shuffle<f32>(most, most, 2, 3, 0, 1));
  most = f32x4.pmax(most, v128.shuffle<f32>(most, most, 1, 0, 3, 2));
  for (let i = 0; i < count; i += 4) {
    const at = x + (<usize>i << 2);
    v128.store(at, expF32x4(f32x4.sub(v128.load(at), most)));
  }
  const total = f32x4.splat(laneSum(x, count));
  for (let i = 0; i < count; i += 4) {
    const at = x + (<usize>i << 2);
    v128.store(at, act4(f32x4.div(v128.load(at), total)));
  }
}

/** sum[g] += p * value over the runs, tokens ascending. */
function sumRuns(
  sequence: i32,
  kvHead: i32,
  runs: usize,
  count: i32,
  weights: usize,
  sums: usize,
  group: i32,
  dim: i32,
  spare: usize,
): void {
  let rank = 0;
  for (let r = 0; r < count; r++) {
    const first = load<i32>(runs + <usize>r * RUN_BYTES);
    const tokens = load<i32>(runs + <usize>r * RUN_BYTES, 4);
    const values = runElements(sequence, kvHead, first, field(ATTENTION_VALUES), dim);
    for (let g = 0; g < group; g++) {
      const p = weights + <usize>g * rounded(mostVisible) + (<usize>rank << 2);
      const sum = sums + <usize>g * rounded(dim);
      if (dim & 15) weighAnyDim(p, tokens, values, dim, sum, spare);
      else for (let i = 0; i < dim; i += 16) weighValues(p, tokens, values + kvBytes(i), dim, sum + (<usize>i << 2));
    }
    rank += tokens;
  }
}

/** 16 elements of the sum over `tokens` values, which lie `dim` elements apart. */
export function weighValues(p: usize, tokens: i32, values: usize, dim: i32, sum: usize): void {
  const stride = kvBytes(dim);
  const quarter = kvBytes(4);
  let a = v128.load(sum);
  let b = v128.load(sum, 16);
  let c = v128.load(sum, 32);
  let d = v128.load(sum, 48);
  for (let t = 0; t < tokens; t++) {
    const weight = v128.load32_splat(p);
    a = f32x4.add(f32x4.mul(weight, loadKv4(values)), a);
    b = f32x4.add(f32x4.mul(weight, loadKv4(values + quarter)), b);
    c = f32x4.add(f32x4.mul(weight, loadKv4(values + 2 * quarter)), c);
    d = f32x4.add(f32x4.mul(weight, loadKv4(values + 3 * quarter)), d);
    p += 4;
    values += stride;
  }
  v128.store(sum, a);
  v128.store(sum, b, 16);
  v128.store(sum, c, 32);
  v128.store(sum, d, 48);
}

/** The same for all elements of a head whose size is no multiple of 16. */
export function weighAnyDim(p: usize, tokens: i32, values: usize, dim: i32, sum: usize, spare: usize): void {
  for (let t = 0; t < tokens; t++) {
    const weight = v128.load32_splat(p + (<usize>t << 2));
    loadKv(values + kvBytes(t * dim), dim, spare);
    for (let i = 0; i < dim; i += 4) {
      const at = <usize>i << 2;
      const x = f32x4.add(f32x4.mul(weight, load4(spare + at, dim - i)), load4(sum + at, dim - i));
      store4(sum + at, x, dim - i);
    }
  }
}

/** A(A(o) * gate(g)). */
function gateRow(o: usize, gates: usize, dim: i32, lowering: i32, out: usize): void {
  for (let i = 0; i < dim; i += 4) {
    const at = <usize>i << 2;
    const product = f32x4.mul(act4(load4(o + at, dim - i)), gate4(load4(gates + at, dim - i), lowering));
    store4(out + at, act4(product), dim - i);
  }
}
