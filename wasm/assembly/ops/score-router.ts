/**
 * Op scoreRouter: experts by their own scores, in groups of which the best are kept, or from a table by token. A unit of
 * work is a row.
 *
 * Invariants: equal values go to the lower index, NaN ranks as -infinity; the chosen stand in ascending order.
 */
import { bufferField, field, floatField, scratch, SCRATCH_BODY, tokenOf, trunkRows, weightField } from '../context';
import { sigmoidF32x4, softplusF64 } from '../exp';
import {
  SCORE_ROUTER_BIAS,
  SCORE_ROUTER_EXPERTS,
  SCORE_ROUTER_GROUPS,
  SCORE_ROUTER_GROUPS_KEPT,
  SCORE_ROUTER_LOGITS,
  SCORE_ROUTER_NORMALISE,
  SCORE_ROUTER_OUT_INDEX,
  SCORE_ROUTER_OUT_WEIGHT,
  SCORE_ROUTER_SCALING,
  SCORE_ROUTER_SCORE,
  SCORE_ROUTER_TABLE,
  SCORE_ROUTER_TOP_K,
} from '../plan-ops';
import { act, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { EXP_WORK } from '../work';
import { insertBest, rank } from './router';

const ROUTER_EPS: f32 = 1e-20;

/** Scores, values, values of groups, the kept groups and their marks. */
export function scoreRouterScratch(): usize {
  return SCRATCH_BODY + <usize>(field(SCORE_ROUTER_EXPERTS) + 3) * 17 + 8;
}

export function scoreRouterWork(): f64 {
  return <f64>trunkRows * <f64>field(SCORE_ROUTER_EXPERTS) * <f64>(EXP_WORK + 4 * field(SCORE_ROUTER_TOP_K));
}

export function scoreRouter(): void {
  const experts = field(SCORE_ROUTER_EXPERTS);
  const topK = field(SCORE_ROUTER_TOP_K);
  const scores = scratch + SCRATCH_BODY;
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    const index = bufferField(SCORE_ROUTER_OUT_INDEX) + (<usize>(row * topK) << 2);
    scoreRow(bufferField(SCORE_ROUTER_LOGITS) + (<usize>(row * experts) << 2), experts, scores);
    if (field(SCORE_ROUTER_TABLE) >= 0) takeFromTable(tokenOf(row), experts, topK, index);
    else chooseByValue(scores, experts, topK, index);
    weighRow(scores, index, topK, bufferField(SCORE_ROUTER_OUT_WEIGHT) + (<usize>(row * topK) << 2));
  }
}

function scoreRow(logits: usize, experts: i32, scores: usize): void {
  if (field(SCORE_ROUTER_SCORE) == 0) {
    for (let i = 0; i < experts; i += 4) {
      const at = <usize>i << 2;
      store4(scores + at, sigmoidF32x4(load4(logits + at, experts - i)), experts - i);
    }
    return;
  }
  for (let i = 0; i < experts; i++) {
    const at = <usize>i << 2;
    store<f32>(scores + at, sqrt<f32>(<f32>softplusF64(<f64>load<f32>(logits + at))));
  }
}

/** The experts of a token, ascending. */
function takeFromTable(token: i32, experts: i32, topK: i32, index: usize): void {
  const listed = weightField(SCORE_ROUTER_TABLE) + (<usize>token * <usize>topK << 2);
  for (let i = 0; i < topK; i++) {
    const expert = min(max(load<i32>(listed + (<usize>i << 2)), 0), experts - 1);
    let at = index + (<usize>i << 2);
    for (; at > index && load<i32>(at - 4) > expert; at -= 4) store<i32>(at, load<i32>(at - 4));
    store<i32>(at, expert);
  }
}

function chooseByValue(scores: usize, experts: i32, topK: i32, index: usize): void {
  const room = <usize>(experts + 3) << 2;
  const values = scores + room;
  const withBias = field(SCORE_ROUTER_BIAS) >= 0;
  for (let i = 0; i < experts; i += 4) {
    const at = <usize>i << 2;
    let t = load4(scores + at, experts - i);
    if (withBias) t = f32x4.add(t, load4(weightField(SCORE_ROUTER_BIAS) + at, experts - i));
    store4(values + at, t, experts - i);
  }
  const groups = field(SCORE_ROUTER_GROUPS);
  const size = experts / groups;
  const marks = groups > 1 ? keepGroups(values, groups, size, values + room, values + 2 * room) : 0;
  for (let slot = 0; slot < topK; slot++) insertBest(values, experts, index, slot, marks, size);
}

/** Marks the groups whose experts can be chosen; returns where the marks stand. */
function keepGroups(values: usize, groups: i32, size: i32, groupValues: usize, chosen: usize): usize {
  const keep = field(SCORE_ROUTER_GROUPS_KEPT);
  const marks = chosen + (<usize>(keep + 1) << 2);
  for (let g = 0; g < groups; g++) {
    let first: f32 = rank(load<f32>(values + (<usize>(g * size) << 2)));
    let second: f32 = -Infinity;
    for (let i = 1; i < size; i++) {
      const value = rank(load<f32>(values + (<usize>(g * size + i) << 2)));
      if (value > first) {
        second = first;
        first = value;
      } else if (value > second) {
        second = value;
      }
    }
    store<f32>(groupValues + (<usize>g << 2), size == 1 ? first : first + second);
    store<u8>(marks + <usize>g, 0);
  }
  for (let slot = 0; slot < keep; slot++) insertBest(groupValues, groups, chosen, slot, 0, 1);
  for (let slot = 0; slot < keep; slot++) store<u8>(marks + <usize>load<i32>(chosen + (<usize>slot << 2)), 1);
  return marks;
}

function weighRow(scores: usize, index: usize, topK: i32, weight: usize): void {
  let sum: f32 = 0;
  for (let slot = 0; slot < topK; slot++) sum += load<f32>(scores + (<usize>load<i32>(index + (<usize>slot << 2)) << 2));
  const divisor = sum + ROUTER_EPS;
  const normalise = field(SCORE_ROUTER_NORMALISE) != 0;
  for (let slot = 0; slot < topK; slot++) {
    const at = <usize>slot << 2;
    const s = load<f32>(scores + (<usize>load<i32>(index + at) << 2));
    store<f32>(weight + at, act((normalise ? s / divisor : s) * floatField(SCORE_ROUTER_SCALING)));
  }
}
