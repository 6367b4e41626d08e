/**
 * Op indexSelect: which complete blocks a row attends to. A unit of work is a row.
 *
 * Invariants: scores without weights are sums of positive parts, so they are never negative nor NaN and their bits order
 * as unsigned integers; the others become keys that do. The smallest chosen one is found bit by bit, and of equal ones the
 * lower blocks are taken.
 */
import {
  bufferField,
  field,
  floatField,
  mostVisible,
  pageAddress,
  pageTokens,
  positionOf,
  scratch,
  SCRATCH_BODY,
  sequenceOf,
  trunkRows,
} from '../context';
import { dots, prepareBf16 } from '../dot';
import { kvDtype } from '../pages';
import {
  INDEX_SELECT_BLOCK,
  INDEX_SELECT_BLOCKS,
  INDEX_SELECT_BUDGET_BLOCKS,
  INDEX_SELECT_DIM,
  INDEX_SELECT_DOT_SCALE,
  INDEX_SELECT_HEADS,
  INDEX_SELECT_OUT,
  INDEX_SELECT_Q,
  INDEX_SELECT_WEIGHT_SCALE,
  INDEX_SELECT_WEIGHTS,
  DTYPE_BF16,
} from '../plan-ops';
import { load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK } from '../work';

@inline
function rounded(elements: i32): usize {
  return <usize>((elements + 15) & ~15) << 2;
}

/** A prepared query, the scores and one head's products. */
export function indexSelectScratch(): usize {
  return SCRATCH_BODY + rounded(field(INDEX_SELECT_DIM)) + 2 * rounded(mostVisible / field(INDEX_SELECT_BLOCK));
}

export function indexSelectWork(): f64 {
  const blocks = mostVisible / field(INDEX_SELECT_BLOCK);
  if (blocks <= field(INDEX_SELECT_BUDGET_BLOCKS)) return 0;
  const products = <f64>field(INDEX_SELECT_HEADS) * <f64>field(INDEX_SELECT_DIM);
  return <f64>trunkRows * <f64>blocks * (products + 32 * ELEMENT_WORK);
}

export function indexSelect(): void {
  const budget = field(INDEX_SELECT_BUDGET_BLOCKS);
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    const out = bufferField(INDEX_SELECT_OUT) + (<usize>(row * (1 + budget)) << 2);
    const complete = (positionOf(row) + 1) / field(INDEX_SELECT_BLOCK);
    if (complete <= budget) {
      store<i32>(out, -1);
      continue;
    }
    const scores = scratch + SCRATCH_BODY + rounded(field(INDEX_SELECT_DIM));
    scoreBlocks(row, complete, scores);
    store<i32>(out, budget);
    choose(scores, complete, budget, out + 4);
  }
}

/** Scores of the complete blocks, heads ascending; with weights their keys. */
function scoreBlocks(row: i32, complete: i32, scores: usize): void {
  const heads = field(INDEX_SELECT_HEADS);
  const dim = field(INDEX_SELECT_DIM);
  const perPage = pageTokens / field(INDEX_SELECT_BLOCK);
  const sequence = sequenceOf(row);
  const prepared = scratch + SCRATCH_BODY;
  const products = scores + rounded(mostVisible / field(INDEX_SELECT_BLOCK));
  memory.fill(scores, 0, <usize>complete << 2);
  for (let h = 0; h < heads; h++) {
    let q = bufferField(INDEX_SELECT_Q) + (<usize>(row * heads + h) * <usize>dim << 2);
    if (kvDtype() == DTYPE_BF16) {
      prepareBf16(q, dim, prepared);
      q = prepared;
    }
    for (let first = 0, page = 0; first < complete; first += perPage, page++) {
      const keys = pageAddress(sequence, page) + <usize>field(INDEX_SELECT_BLOCKS);
      dots(keys, kvDtype(), min(perPage, complete - first), q, dim, products + (<usize>first << 2), 0);
    }
    if (field(INDEX_SELECT_WEIGHTS) < 0) {
      addPositive(scores, products, complete);
    } else {
      const weight = load<f32>(bufferField(INDEX_SELECT_WEIGHTS) + (<usize>(row * heads + h) << 2));
      addWeighted(scores, products, complete, weight * floatField(INDEX_SELECT_WEIGHT_SCALE));
    }
  }
  if (field(INDEX_SELECT_WEIGHTS) >= 0) rankKeys(scores, complete);
}

function addPositive(scores: usize, products: usize, count: i32): void {
  for (let i = 0; i < count; i += 4) {
    const at = <usize>i << 2;
    const x = load4(products + at, count - i);
    const positive = v128.and(x, f32x4.gt(x, f32x4.splat(0)));
    store4(scores + at, f32x4.add(load4(scores + at, count - i), positive), count - i);
  }
}

/** scores += weight * max(0, dot * dotScale). */
function addWeighted(scores: usize, products: usize, count: i32, weight: f32): void {
  const scale = f32x4.splat(floatField(INDEX_SELECT_DOT_SCALE));
  for (let i = 0; i < count; i += 4) {
    const at = <usize>i << 2;
    const x = f32x4.mul(load4(products + at, count - i), scale);
    const term = f32x4.mul(f32x4.splat(weight), v128.and(x, f32x4.gt(x, f32x4.splat(0))));
    store4(scores + at, f32x4.add(term, load4(scores + at, count - i)), count - i);
  }
}

/** In place: keys that rank as unsigned integers the way scores rank as numbers, NaN as -inf, -0 as +0. */
function rankKeys(scores: usize, count: i32): void {
  for (let b = 0; b < count; b++) {
    const at = scores + (<usize>b << 2);
    const score = load<f32>(at);
    const bits = reinterpret<u32>(score != score ? -Infinity : score + 0);
    store<u32>(at, bits >> 31 ? ~bits : bits | 0x80000000);
  }
}

/** The `budget` blocks of highest score in ascending order. */
function choose(scores: usize, count: i32, budget: i32, out: usize): void {
  let least: u32 = 0; // the greatest value that at least `budget` scores reach
  for (let bit: u32 = 1 << 31; bit > 0; bit >>= 1) {
    if (countReaching(scores, count, least | bit) >= budget) least |= bit;
  }
  let ties = budget - countReaching(scores, count, least + 1);
  for (let b = 0; b < count; b++) {
    const score = load<u32>(scores + (<usize>b << 2));
    if (score < least) continue;
    if (score == least && ties-- <= 0) continue;
    store<i32>(out, b);
    out += 4;
  }
}

function countReaching(scores: usize, count: i32, least: u32): i32 {
  let reaching = 0;
  for (let b = 0; b < count; b++) reaching += <i32>(load<u32>(scores + (<usize>b << 2)) >= least);
  return reaching;
}
