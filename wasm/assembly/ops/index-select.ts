/**
 * Op indexSelect: which complete blocks a row attends to. A unit of work is a row.
 *
 * Invariants: scores are sums of positive parts, so they are never negative nor NaN, and their bits order as integers: the
 * smallest chosen score is found bit by bit, and of equal ones the lower blocks are taken.
 */
import {
  bufferField,
  field,
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
  INDEX_SELECT_HEADS,
  INDEX_SELECT_OUT,
  INDEX_SELECT_Q,
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

/** score[b] = sum over heads ascending of max(0, dot(q[head], blockKey[b])), NaN counting as 0. */
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
    addPositive(scores, products, complete);
  }
}

function addPositive(scores: usize, products: usize, count: i32): void {
  for (let i = 0; i < count; i += 4) {
    const at = <usize>i << 2;
    const x = load4(products + at, count - i);
    const positive = v128.and(x, f32x4.gt(x, f32x4.splat(0)));
    store4(scores + at, f32x4.add(load4(scores + at, count - i), positive), count - i);
  }
}

/** The `budget` blocks of highest score in ascending order. */
function choose(scores: usize, count: i32, budget: i32, out: usize): void {
  let least: i32 = 0; // the greatest value that at least `budget` scores reach
  for (let bit: i32 = 1 << 30; bit > 0; bit >>= 1) {
    if (countReaching(scores, count, least | bit) >= budget) least |= bit;
  }
  let ties = budget - countReaching(scores, count, least + 1);
  for (let b = 0; b < count; b++) {
    const score = load<i32>(scores + (<usize>b << 2));
    if (score < least) continue;
    if (score == least && ties-- <= 0) continue;
    store<i32>(out, b);
    out += 4;
  }
}

function countReaching(scores: usize, count: i32, least: i32): i32 {
  let reaching = 0;
  for (let b = 0; b < count; b++) reaching += <i32>(load<i32>(scores + (<usize>b << 2)) >= least);
  return reaching;
}
