/**
 * Rows times weight rows: a few rows as dot products straight from the weights, many as register tiles over packed panels.
 *
 * Invariants: both ways follow the lane law and give the same bits, so the number of rows and the chunking never show. A
 * tile holds 2 rows x 4 weight rows and walks one quarter of the 16 lanes at a time (8 accumulators, 6 loads a step); the
 * panels are laid out so that a walk is contiguous: [pair of rows][quarter][k / 16][row][4 lanes].
 */
import { scratch, SCRATCH_BODY } from './context';
import { dots, dtypeShift, prepareBf16, widen } from './dot';
import { DTYPE_BF16, DTYPE_F32 } from './plan-ops';
import { loadBf16x4 } from './rounding';

/** Most weight rows of a unit of work; the row stride of its results, in float32. */
export const UNIT_OUTS: i32 = 64;
const UNIT_STRIDE: usize = 4 * 64;
/** Most rows that are worked on together, and the panel bytes that they should stay under, to lie in a level 2 cache. */
const MOST_ROWS: i32 = 64;
const PANEL_BYTES: i32 = 1 << 19;
/** Fewer rows than this go through dot products: packing a weight row costs about as much as two of them. */
const TILED_ROWS: i32 = 4;
/** Weight rows that one row after the other walks over while they lie in a level 1 cache. */
const RESIDENT_OUTS: i32 = 8;
const TILE_OUTS: i32 = 4;

@inline
function groups(k: i32): i32 {
  return (k + 15) >> 4;
}

/** Rows of a chunk for `k` inputs: even, between 8 and MOST_ROWS. */
export function chunkRows(k: i32): i32 {
  const fitting = (PANEL_BYTES / (groups(k) << 6)) & ~1;
  return min(max(fitting, 8), MOST_ROWS);
}

// The scratch memory of a matmul: row addresses, two result tiles, partial sums, packed weights, packed rows.
const LIST: usize = SCRATCH_BODY;
const RESULT: usize = LIST + 4 * 64;
const SECOND_RESULT: usize = RESULT + 64 * UNIT_STRIDE;
const PARTS: usize = SECOND_RESULT + 64 * UNIT_STRIDE;
const PANELS: usize = PARTS + 4 * 8 * 16;

/** Scratch bytes of a matmul over `k` inputs. */
export function matmulScratch(k: i32): usize {
  const rowBytes = <usize>groups(k) << 6;
  return PANELS + rowBytes * <usize>(TILE_OUTS + 1 + chunkRows(k));
}

/** Address of the entry of row `i` of the chunk: the address of its inputs, set by the op. */
@inline
export function rowEntry(i: i32): usize {
  return scratch + LIST + (<usize>i << 2);
}

/** Where the results of row `i` of the chunk stand: one float32 for each weight row of the unit. */
@inline
export function resultOf(i: i32): usize {
  return scratch + RESULT + <usize>i * UNIT_STRIDE;
}

@inline
export function secondResultOf(i: i32): usize {
  return scratch + SECOND_RESULT + <usize>i * UNIT_STRIDE;
}

/** The form in which the chunk's rows lie ready in the scratch memory. */
const NOT_READY: i32 = 0;
const EVEN_ODD: i32 = 1;
const PACKED: i32 = 2;
let ready: i32 = NOT_READY;

/** Says that the row entries are about to change, or that another kernel has used the scratch memory. */
export function beginChunk(): void {
  ready = NOT_READY;
}

/**
 * Dot products of the chunk's first `rows` rows (at most chunkRows(k)) with `outs` (at most UNIT_OUTS) weight rows from
 * `w`, unrounded, to resultOf(row) or, with `second`, to secondResultOf(row). Every chunk starts with beginChunk.
 */
export function matmul(rows: i32, k: i32, w: usize, dtype: i32, outs: i32, second: bool): void {
  const result = scratch + (second ? SECOND_RESULT : RESULT);
  if (rows < TILED_ROWS) fewRows(rows, k, w, dtype, outs, result);
  else manyRows(rows, k, w, dtype, outs, result);
}

function fewRows(rows: i32, k: i32, w: usize, dtype: i32, outs: i32, result: usize): void {
  const rowBytes = <usize>groups(k) << 6;
  const widened = scratch + PANELS;
  const prepared = widened + rowBytes;
  if (dtype == DTYPE_BF16 && ready != EVEN_ODD) {
    ready = EVEN_ODD;
    for (let i = 0; i < rows; i++) prepareBf16(load<u32>(rowEntry(i)), k, prepared + <usize>i * rowBytes);
  }
  for (let o = 0; o < outs; o += RESIDENT_OUTS) {
    const count = min(RESIDENT_OUTS, outs - o);
    const from = w + (<usize>o * <usize>k << <usize>dtypeShift(dtype));
    for (let i = 0; i < rows; i++) {
      const x = dtype == DTYPE_BF16 ? prepared + <usize>i * rowBytes : <usize>load<u32>(rowEntry(i));
      dots(from, dtype, count, x, k, result + <usize>i * UNIT_STRIDE + (<usize>o << 2), widened);
    }
  }
}

function manyRows(rows: i32, k: i32, w: usize, dtype: i32, outs: i32, result: usize): void {
  const count = groups(k);
  const rowBytes = <usize>count << 6;
  const weights = scratch + PANELS;
  const widened = weights + rowBytes * <usize>TILE_OUTS;
  const panel = widened + rowBytes;
  if (ready != PACKED) {
    ready = PACKED;
    for (let i = 0; i < rows; i++) {
      const to = panel + <usize>(i & ~1) * rowBytes + (<usize>(i & 1) << 4);
      packRow(load<u32>(rowEntry(i)), DTYPE_F32, k, to, 32, widened);
    }
    // An odd last row is packed twice: the second result is never read.
    if (rows & 1) packRow(load<u32>(rowEntry(rows - 1)), DTYPE_F32, k, panel + <usize>(rows - 1) * rowBytes + 16, 32, widened);
  }
  const weightBytes = <usize>k << <usize>dtypeShift(dtype);
  for (let o = 0; o < outs; o += TILE_OUTS) {
    const from = w + <usize>o * weightBytes;
    if (dtype == DTYPE_BF16 && (k & 15) == 0 && outs - o >= TILE_OUTS) {
      packBf16Rows(from, weightBytes, count, weights);
    } else {
      for (let r = 0; r < TILE_OUTS; r++) {
        const row = min(r, outs - o - 1); // past the end: the last row again, never read
        packRow(from + <usize>row * weightBytes, dtype, k, weights + (<usize>r << 4), 64, widened);
      }
    }
    for (let i = 0; i < rows; i += 2) {
      const to = result + <usize>i * UNIT_STRIDE + (<usize>o << 2);
      tile(panel + <usize>i * rowBytes, weights, count, to);
    }
  }
}

/** One row into a panel whose groups are `step` bytes apart; the quarters of a panel follow each other. */
function packRow(from: usize, dtype: i32, k: i32, to: usize, step: usize, widened: usize): void {
  const whole = k >> 4;
  const quarter = <usize>groups(k) * step;
  if (dtype == DTYPE_F32) packF32(from, whole, to, step, quarter);
  else if (dtype == DTYPE_BF16) packBf16(from, whole, to, step, quarter);
  else {
    widen(from, dtype, k, widened);
    from = widened;
    dtype = DTYPE_F32;
    packF32(from, whole, to, step, quarter);
  }
  const left = k & 15;
  if (left == 0) return;
  const last = scratch; // 16 float32, zero-padded
  memory.fill(last, 0, 64);
  widen(from + (<usize>whole << <usize>(4 + dtypeShift(dtype))), dtype, left, last);
  packF32(last, 1, to + <usize>whole * step, step, quarter);
}

export function packF32(from: usize, count: i32, to: usize, step: usize, quarter: usize): void {
  const third = quarter << 1;
  for (let i = 0; i < count; i++) {
    v128.store(to, v128.load(from));
    v128.store(to + quarter, v128.load(from, 16));
    v128.store(to + third, v128.load(from, 32));
    v128.store(to + quarter + third, v128.load(from, 48));
    from += 64;
    to += step;
  }
}

export function packBf16(from: usize, count: i32, to: usize, step: usize, quarter: usize): void {
  const third = quarter << 1;
  for (let i = 0; i < count; i++) {
    v128.store(to, i32x4.shl(v128.load16x4_u(from), 16));
    v128.store(to + quarter, i32x4.shl(v128.load16x4_u(from, 8), 16));
    v128.store(to + third, i32x4.shl(v128.load16x4_u(from, 16), 16));
    v128.store(to + quarter + third, i32x4.shl(v128.load16x4_u(from, 24), 16));
    from += 32;
    to += step;
  }
}

/** Four whole bfloat16 rows at once, quarter by quarter, so that the panel is written from start to end. */
export function packBf16Rows(from: usize, rowBytes: usize, count: i32, to: usize): void {
  for (let quarter: usize = 0; quarter < 32; quarter += 8) {
    let at = from + quarter;
    for (let i = 0; i < count; i++) {
      v128.store(to, loadBf16x4(at));
      v128.store(to, loadBf16x4(at + rowBytes), 16);
      v128.store(to, loadBf16x4(at + 2 * rowBytes), 32);
      v128.store(to, loadBf16x4(at + 3 * rowBytes), 48);
      at += 32;
      to += 64;
    }
  }
}

/** 2 rows x 4 weight rows: four dot products of each row, to `to` and to the next row of results. */
function tile(rows: usize, weights: usize, count: i32, to: usize): void {
  const parts = scratch + PARTS;
  for (let quarter: usize = 0; quarter < 4; quarter++) {
    tileQuarter(rows + quarter * (<usize>count << 5), weights + quarter * (<usize>count << 6), count, parts + (quarter << 7));
  }
  v128.store(to, finishTile(parts));
  v128.store(to + UNIT_STRIDE, finishTile(parts + 64));
}

/** One quarter of the lanes: sums of row 0 with weight rows 0 to 3, then of row 1. */
export function tileQuarter(x: usize, w: usize, count: i32, parts: usize): void {
  let a0 = f32x4.splat(0);
  let a1 = a0;
  let a2 = a0;
  let a3 = a0;
  let b0 = a0;
  let b1 = a0;
  let b2 = a0;
  let b3 = a0;
  for (let i = 0; i < count; i++) {
    const x0 = v128.load(x);
    const x1 = v128.load(x, 16);
    let weight = v128.load(w);
    a0 = f32x4.add(a0, f32x4.mul(weight, x0));
    b0 = f32x4.add(b0, f32x4.mul(weight, x1));
    weight = v128.load(w, 16);
    a1 = f32x4.add(a1, f32x4.mul(weight, x0));
    b1 = f32x4.add(b1, f32x4.mul(weight, x1));
    weight = v128.load(w, 32);
    a2 = f32x4.add(a2, f32x4.mul(weight, x0));
    b2 = f32x4.add(b2, f32x4.mul(weight, x1));
    weight = v128.load(w, 48);
    a3 = f32x4.add(a3, f32x4.mul(weight, x0));
    b3 = f32x4.add(b3, f32x4.mul(weight, x1));
    x += 32;
    w += 64;
  }
  v128.store(parts, a0);
  v128.store(parts, a1, 16);
  v128.store(parts, a2, 32);
  v128.store(parts, a3, 48);
  v128.store(parts, b0, 64);
  v128.store(parts, b1, 80);
  v128.store(parts, b2, 96);
  v128.store(parts, b3, 112);
}

/** The lanes of weight row `r`, 4-7 and 12-15 added in: the first two steps of the tree. */
@inline
function halfTree(parts: usize, r: usize): v128 {
  const at = parts + (r << 4);
  return f32x4.add(f32x4.add(v128.load(at), v128.load(at, 256)), f32x4.add(v128.load(at, 128), v128.load(at, 384)));
}

/** The tree of four dot products at once, by a transposition. */
function finishTile(parts: usize): v128 {
  const u0 = halfTree(parts, 0);
  const u1 = halfTree(parts, 1);
  const u2 = halfTree(parts, 2);
  const u3 = halfTree(parts, 3);
  const low01 = v128.shuffle<f32>(u0, u1, 0, 4, 1, 5); // lane 0 of u0 and u1, lane 1 of both
  const low23 = v128.shuffle<f32>(u2, u3, 0, 4, 1, 5);
  const high01 = v128.shuffle<f32>(u0, u1, 2, 6, 3, 7);
  const high23 = v128.shuffle<f32>(u2, u3, 2, 6, 3, 7);
  const even = f32x4.add(v128.shuffle<f32>(low01, low23, 0, 1, 4, 5), v128.shuffle<f32>(high01, high23, 0, 1, 4, 5));
  const odd = f32x4.add(v128.shuffle<f32>(low01, low23, 2, 3, 6, 7), v128.shuffle<f32>(high01, high23, 2, 3, 6, 7));
  return f32x4.add(even, odd);
}
