/**
 * Attention whose keys are their own values, one row for all heads, and how such rows come into the pages. A unit of work
 * is a row's part of its heads; behind them, for windowAttention, a slot of a sequence's window.
 *
 * Invariants: the keys of a row are one list of runs that lie together, walked in order; a key's lane in the softmax total
 * is its rank in the list, the sink's the last; the window is read from the input slab and written to the output slab,
 * which are never the same.
 */
import {
  bufferField,
  field,
  floatField,
  mostVisible,
  pageTokens,
  positionOf,
  rowsOf,
  scratch,
  SCRATCH_BODY,
  selectedRow,
  sequenceFirstRow,
  sequenceOf,
  sequenceRows,
  sequences,
  sequenceStart,
  slabAddress,
  trunkRows,
  weightField,
} from '../context';
import { dots, prepareBf16 } from '../dot';
import { ropePairs } from '../norm-rope';
import { kvBytes, kvDtype, pageElement, storeKv } from '../pages';
import {
  DTYPE_BF16,
  DTYPE_F32,
  LATENT_ATTENTION_BLOCK,
  LATENT_ATTENTION_BUDGET_BLOCKS,
  LATENT_ATTENTION_DIM,
  LATENT_ATTENTION_HEADS,
  LATENT_ATTENTION_LATENT,
  LATENT_ATTENTION_OUT,
  LATENT_ATTENTION_Q,
  LATENT_ATTENTION_SCALE,
  LATENT_ATTENTION_SELECT,
  LATENT_ATTENTION_TAIL,
  LATENT_STORE_DIM,
  LATENT_STORE_IN,
  LATENT_STORE_LATENT,
  ROPE_TAIL_DIM,
  ROPE_TAIL_HEADS,
  ROPE_TAIL_IN,
  ROPE_TAIL_INVERSE,
  ROPE_TAIL_OUT,
  ROPE_TAIL_ROPE,
  ROPE_TAIL_ROTARY,
  ROPE_TAIL_ROWS,
  WINDOW_ATTENTION_BLOCK,
  WINDOW_ATTENTION_BUDGET_BLOCKS,
  WINDOW_ATTENTION_COMPRESSED,
  WINDOW_ATTENTION_DIM,
  WINDOW_ATTENTION_HEADS,
  WINDOW_ATTENTION_KV,
  WINDOW_ATTENTION_OUT,
  WINDOW_ATTENTION_Q,
  WINDOW_ATTENTION_SCALE,
  WINDOW_ATTENTION_SELECT,
  WINDOW_ATTENTION_SINK,
  WINDOW_ATTENTION_STATE,
  WINDOW_ATTENTION_WINDOW,
} from '../plan-ops';
import { act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK, EXP_WORK } from '../work';
import { scaleScores, softmaxWeights, weighAnyDim, weighValues } from './attention';

@inline
function rounded(elements: i32): usize {
  return <usize>((elements + 15) & ~15) << 2;
}

// ---- ropeTail, latentStore: a unit is a row ----

export function ropeTailWork(): f64 {
  const elements = <f64>field(ROPE_TAIL_HEADS) * <f64>field(ROPE_TAIL_DIM);
  return <f64>rowsOf(field(ROPE_TAIL_ROWS)) * elements * ELEMENT_WORK;
}

export function ropeTail(): void {
  const which = field(ROPE_TAIL_ROWS);
  const rows = rowsOf(which);
  const heads = field(ROPE_TAIL_HEADS);
  const dim = field(ROPE_TAIL_DIM);
  const rotary = field(ROPE_TAIL_ROTARY);
  const inverse = field(ROPE_TAIL_INVERSE) == 1;
  const bytes = <usize>dim << 2;
  for (let row = nextUnit(); row < rows; row = nextUnit()) {
    const position = positionOf(which == 1 ? selectedRow(row) : row / max(which, 1));
    const angles = weightField(ROPE_TAIL_ROPE) + (<usize>position * <usize>rotary << 2);
    for (let h = row * heads; h < (row + 1) * heads; h++) {
      const out = bufferField(ROPE_TAIL_OUT) + <usize>h * bytes;
      memory.copy(out, bufferField(ROPE_TAIL_IN) + <usize>h * bytes, bytes);
      ropePairs(out + (<usize>(dim - rotary) << 2), rotary, angles, inverse);
    }
  }
}

export function latentStoreWork(): f64 {
  return <f64>trunkRows * <f64>field(LATENT_STORE_DIM) * ELEMENT_WORK;
}

export function latentStore(): void {
  const dim = field(LATENT_STORE_DIM);
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    const position = positionOf(row);
    const to = pageElement(sequenceOf(row), position, field(LATENT_STORE_LATENT), (position % pageTokens) * dim);
    storeKv(to, bufferField(LATENT_STORE_IN) + (<usize>(row * dim) << 2), dim);
  }
}

// ---- the list of keys of a row, and attention over it ----

/** A run: address of its first row, number of rows, and their dtype. */
const RUN_BYTES: usize = 12;
/** Most heads of a unit. */
const PART: i32 = 8;

@inline
function putRun(at: usize, rows: usize, count: i32, dtype: i32): usize {
  store<u32>(at, <u32>rows);
  store<i32>(at, count, 4);
  store<i32>(at, dtype, 8);
  return at + RUN_BYTES;
}

/** Runs of the rows 0 … count - 1 of a part of the pages, each row of `block` tokens. */
function putPagedRuns(at: usize, sequence: i32, base: i32, block: i32, count: i32): usize {
  const perPage = pageTokens / block;
  for (let first = 0; first < count; first += perPage) {
    at = putRun(at, pageElement(sequence, first * block, base, 0), min(perPage, count - first), kvDtype());
  }
  return at;
}

/** A run of `count` rows from row `row` on, all in one page. */
@inline
function putRowsOfPage(at: usize, sequence: i32, base: i32, block: i32, row: i32, count: i32, dim: i32): usize {
  const from = pageElement(sequence, row * block, base, (row % (pageTokens / block)) * dim);
  return putRun(at, from, count, kvDtype());
}

/**
 * Scratch of a unit: the list of runs (`entries` at most), then for each of its heads a query prepared for bfloat16 and
 * the weights of its keys (`most`, and the sink), then one row.
 */
function unitScratch(heads: i32, dim: i32, most: i32, entries: i32): usize {
  const part = <usize>min(heads, PART);
  return SCRATCH_BODY + <usize>entries * RUN_BYTES + 64 + part * (2 * rounded(dim) + rounded(most + 1)) + rounded(dim);
}

/** Attention of the heads `head` and on of a row over the runs from `runs` to `end`. */
function attendRuns(
  runs: usize,
  end: usize,
  most: i32,
  q: usize,
  heads: i32,
  dim: i32,
  scale: f32,
  sinks: usize,
  out: usize,
): void {
  const bytes = <usize>dim << 2;
  const prepared = (end + 63) & ~63;
  const sums = prepared + <usize>heads * rounded(dim);
  const weights = sums + <usize>heads * rounded(dim);
  const spare = weights + <usize>heads * rounded(most + 1);
  if (kvDtype() == DTYPE_BF16) {
    for (let h = 0; h < heads; h++) prepareBf16(q + <usize>h * bytes, dim, prepared + <usize>h * rounded(dim));
  }
  let rank = 0;
  for (let run = runs; run < end; run += RUN_BYTES) {
    const count = load<i32>(run, 4);
    const dtype = load<i32>(run, 8);
    for (let h = 0; h < heads; h++) {
      const x = dtype == DTYPE_F32 ? q + <usize>h * bytes : prepared + <usize>h * rounded(dim);
      const to = weights + <usize>h * rounded(most + 1) + (<usize>rank << 2);
      dots(load<u32>(run), dtype, count, x, dim, to, 0);
    }
    rank += count;
  }
  for (let h = 0; h < heads; h++) {
    const list = weights + <usize>h * rounded(most + 1);
    scaleScores(list, rank, scale);
    if (sinks != 0) store<f32>(list + (<usize>rank << 2), load<f32>(sinks + (<usize>h << 2)));
    softmaxWeights(list, sinks != 0 ? rank + 1 : rank);
  }
  memory.fill(sums, 0, <usize>heads * rounded(dim));
  rank = 0;
  for (let run = runs; run < end; run += RUN_BYTES) {
    const count = load<i32>(run, 4);
    for (let h = 0; h < heads; h++) {
      const p = weights + <usize>h * rounded(most + 1) + (<usize>rank << 2);
      const sum = sums + <usize>h * rounded(dim);
      weighRows(p, count, load<u32>(run), load<i32>(run, 8), dim, sum, spare);
    }
    rank += count;
  }
  for (let h = 0; h < heads; h++) {
    for (let i = 0; i < dim; i += 4) {
      const at = <usize>i << 2;
      store4(out + <usize>h * bytes + at, act4(v128.load(sums + <usize>h * rounded(dim) + at)), dim - i);
    }
  }
}

/** sum += p * row over `count` rows, in order. */
function weighRows(p: usize, count: i32, rows: usize, dtype: i32, dim: i32, sum: usize, spare: usize): void {
  if (dtype != kvDtype()) {
    for (let t = 0; t < count; t++) weighRow(v128.load32_splat(p + (<usize>t << 2)), rows + (<usize>(t * dim) << 2), dim, sum); // prettier-ignore
  } else if (dim & 15) {
    weighAnyDim(p, count, rows, dim, sum, spare);
  } else {
    for (let i = 0; i < dim; i += 16) weighValues(p, count, rows + kvBytes(i), dim, sum + (<usize>i << 2));
  }
}

/** The same for one float32 row. */
function weighRow(weight: v128, row: usize, dim: i32, sum: usize): void {
  for (let i = 0; i < dim; i += 4) {
    const at = <usize>i << 2;
    v128.store(sum + at, f32x4.add(f32x4.mul(weight, load4(row + at, dim - i)), v128.load(sum + at)));
  }
}

// ---- windowAttention ----

/** Most compressed rows of a row. */
function mostFar(): i32 {
  const block = field(WINDOW_ATTENTION_BLOCK);
  if (block == 0) return 0;
  const complete = mostVisible / block;
  return field(WINDOW_ATTENTION_SELECT) < 0 ? complete : min(complete, field(WINDOW_ATTENTION_BUDGET_BLOCKS));
}

/** Most keys of a row. */
@inline
function mostKeys(): i32 {
  return min(field(WINDOW_ATTENTION_WINDOW), mostVisible) + mostFar();
}

export function windowAttentionScratch(): usize {
  const entries = 3 + max(mostFar(), mostVisible / pageTokens + 1);
  return unitScratch(field(WINDOW_ATTENTION_HEADS), field(WINDOW_ATTENTION_DIM), mostKeys(), entries);
}

export function windowAttentionWork(): f64 {
  const products = <f64>field(WINDOW_ATTENTION_HEADS) * <f64>field(WINDOW_ATTENTION_DIM);
  return <f64>trunkRows * products * (2 * <f64>mostKeys() + EXP_WORK);
}

export function windowAttention(): void {
  const heads = field(WINDOW_ATTENTION_HEADS);
  const window = field(WINDOW_ATTENTION_WINDOW);
  const parts = (heads + PART - 1) / PART;
  const attended = trunkRows * parts;
  for (let unit = nextUnit(); unit < attended + sequences * window; unit = nextUnit()) {
    if (unit < attended) windowUnit(unit / parts, (unit % parts) * PART, heads);
    else keepSlot((unit - attended) / window, (unit - attended) % window, window);
  }
}

function windowUnit(row: i32, head: i32, heads: i32): void {
  const dim = field(WINDOW_ATTENTION_DIM);
  const runs = scratch + SCRATCH_BODY;
  const end = windowRuns(row, dim, runs);
  const at = <usize>(row * heads + head) * <usize>dim << 2;
  let sinks: usize = 0;
  if (field(WINDOW_ATTENTION_SINK) >= 0) sinks = weightField(WINDOW_ATTENTION_SINK) + (<usize>head << 2);
  attendRuns(
    runs,
    end,
    mostKeys(),
    bufferField(WINDOW_ATTENTION_Q) + at,
    min(PART, heads - head),
    dim,
    floatField(WINDOW_ATTENTION_SCALE),
    sinks,
    bufferField(WINDOW_ATTENTION_OUT) + at,
  );
}

/** Writes the runs of a row's keys; returns their end. */
function windowRuns(row: i32, dim: i32, at: usize): usize {
  const sequence = sequenceOf(row);
  const position = positionOf(row);
  const window = field(WINDOW_ATTENTION_WINDOW);
  const start = sequenceStart(sequence);
  const bytes = <usize>dim << 2;
  const ring = slabAddress(sequence, 0) + <usize>field(WINDOW_ATTENTION_STATE);
  let first = max(0, position + 1 - window);
  while (first < start) {
    const slot = first % window;
    const count = min(window - slot, start - first);
    at = putRun(at, ring + <usize>slot * bytes, count, DTYPE_F32);
    first += count;
  }
  const fresh = bufferField(WINDOW_ATTENTION_KV) + <usize>(sequenceFirstRow(sequence) + first - start) * bytes;
  at = putRun(at, fresh, position + 1 - first, DTYPE_F32);
  const block = field(WINDOW_ATTENTION_BLOCK);
  if (block == 0) return at;
  const base = field(WINDOW_ATTENTION_COMPRESSED);
  const entries = 1 + field(WINDOW_ATTENTION_BUDGET_BLOCKS);
  let chosen: usize = 0;
  if (field(WINDOW_ATTENTION_SELECT) >= 0) chosen = bufferField(WINDOW_ATTENTION_SELECT) + (<usize>(row * entries) << 2);
  if (chosen == 0 || load<i32>(chosen) == -1) return putPagedRuns(at, sequence, base, block, (position + 1) / block);
  for (let b = 1; b <= load<i32>(chosen); b++) {
    at = putRowsOfPage(at, sequence, base, block, load<i32>(chosen + (<usize>b << 2)), 1, dim);
  }
  return at;
}

/** The newest position below `end` of a slot of a ring; negative: no token has been there. */
@inline
export function ringPosition(slot: i32, slots: i32, end: i32): i32 {
  return slot > end - 1 ? -1 : end - 1 - ((end - 1 - slot) % slots);
}

function keepSlot(sequence: i32, slot: i32, window: i32): void {
  const bytes = <usize>field(WINDOW_ATTENTION_DIM) << 2;
  const start = sequenceStart(sequence);
  const position = ringPosition(slot, window, start + sequenceRows(sequence));
  const at = <usize>field(WINDOW_ATTENTION_STATE) + <usize>slot * bytes;
  const to = slabAddress(sequence, 1) + at;
  if (position < 0) {
    memory.fill(to, 0, bytes);
    return;
  }
  const fresh = bufferField(WINDOW_ATTENTION_KV) + <usize>(sequenceFirstRow(sequence) + position - start) * bytes;
  memory.copy(to, position >= start ? fresh : slabAddress(sequence, 0) + at, bytes);
}

// ---- latentAttention ----

function mostLatents(): i32 {
  if (field(LATENT_ATTENTION_SELECT) < 0) return mostVisible;
  return min(mostVisible, (1 + field(LATENT_ATTENTION_BUDGET_BLOCKS)) * field(LATENT_ATTENTION_BLOCK));
}

export function latentAttentionScratch(): usize {
  const entries = max(field(LATENT_ATTENTION_BUDGET_BLOCKS) + 1, mostVisible / pageTokens + 1);
  return unitScratch(field(LATENT_ATTENTION_HEADS), field(LATENT_ATTENTION_DIM), mostLatents(), entries);
}

export function latentAttentionWork(): f64 {
  const products = <f64>field(LATENT_ATTENTION_HEADS) * <f64>field(LATENT_ATTENTION_DIM);
  return <f64>trunkRows * products * (2 * <f64>mostLatents() + EXP_WORK);
}

export function latentAttention(): void {
  const heads = field(LATENT_ATTENTION_HEADS);
  const parts = (heads + PART - 1) / PART;
  for (let unit = nextUnit(); unit < trunkRows * parts; unit = nextUnit()) {
    latentUnit(unit / parts, (unit % parts) * PART, heads);
  }
}

function latentUnit(row: i32, head: i32, heads: i32): void {
  const dim = field(LATENT_ATTENTION_DIM);
  const runs = scratch + SCRATCH_BODY;
  const end = latentRuns(row, dim, runs);
  const at = <usize>(row * heads + head) * <usize>dim << 2;
  attendRuns(
    runs,
    end,
    mostLatents(),
    bufferField(LATENT_ATTENTION_Q) + at,
    min(PART, heads - head),
    dim,
    floatField(LATENT_ATTENTION_SCALE),
    0,
    bufferField(LATENT_ATTENTION_OUT) + at,
  );
}

/** Writes the runs of the tokens that a row sees; returns their end. */
function latentRuns(row: i32, dim: i32, at: usize): usize {
  const sequence = sequenceOf(row);
  const visible = positionOf(row) + 1;
  const base = field(LATENT_ATTENTION_LATENT);
  if (field(LATENT_ATTENTION_SELECT) < 0) return putPagedRuns(at, sequence, base, 1, visible);
  const block = field(LATENT_ATTENTION_BLOCK);
  const entries = 1 + field(LATENT_ATTENTION_BUDGET_BLOCKS);
  const chosen = bufferField(LATENT_ATTENTION_SELECT) + (<usize>(row * entries) << 2);
  const complete = (visible / block) * block;
  const end = field(LATENT_ATTENTION_TAIL) == 1 ? visible : complete;
  if (load<i32>(chosen) == -1) return putPagedRuns(at, sequence, base, 1, end);
  for (let b = 1; b <= load<i32>(chosen); b++) {
    at = putRowsOfPage(at, sequence, base, 1, load<i32>(chosen + (<usize>b << 2)) * block, block, dim);
  }
  return complete < end ? putRowsOfPage(at, sequence, base, 1, complete, end - complete, dim) : at;
}
