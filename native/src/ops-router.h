/*
 * Which experts a row goes to.
 *
 * Invariants: a row's choice depends on its own logits and token only; equal values go to the lower index, NaN ranks as
 * -inf, and the chosen stand in ascending order.
 */
#ifndef PL_OPS_ROUTER_H
#define PL_OPS_ROUTER_H

#include "ops-basic.h"

/* Scores, values, values of groups and an order, and a mark for every group. */
enum { ROUTER_SCRATCH = 4 * PL_MAX_EXPERTS * 4 + PL_MAX_EXPERTS };

/* A value as it ranks. */
INLINE float pl_rank(float x) { return x == x ? x : -INFINITY; }

INLINE void sort_ascending(int32_t *list, int32_t count) {
  for (int32_t i = 1; i < count; i++) {
    int32_t e = list[i], at = i;
    for (; at > 0 && list[at - 1] > e; at--) list[at] = list[at - 1];
    list[at] = e;
  }
}

/* The indices of the `keep` greatest of `count` values, ascending. With `kept`: only those whose group of `size` is. */
static void choose_greatest(const float *values, int32_t count, int32_t keep, int32_t *chosen, const uint8_t *kept,
                            int32_t size) {
  int32_t filled = 0; /* the best so far, best first */
  for (int32_t e = 0; e < count; e++) {
    if (kept && !kept[e / size]) continue;
    const float value = pl_rank(values[e]);
    if (filled == keep) {
      if (!(value > pl_rank(values[chosen[filled - 1]]))) continue;
      filled--;
    }
    int32_t at = filled++;
    for (; at > 0 && value > pl_rank(values[chosen[at - 1]]); at--) chosen[at] = chosen[at - 1];
    chosen[at] = e;
  }
  sort_ascending(chosen, filled);
}

/* ---- router ---- */

static pl_stage router_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){run->call->rows, 50 + op[ROUTER_EXPERTS] * 2.0};
}
static void router_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *memory) {
  const int32_t experts = op[ROUTER_EXPERTS], top_k = op[ROUTER_TOP_K];
  float *weights = (float *)memory; /* e^(l - m) of every expert */
  int32_t *chosen = (int32_t *)(weights + experts);
  for (int64_t row = from; row < to; row++) {
    const float *logits = pl_at(run, op[ROUTER_LOGITS], row, experts);
    float m = -INFINITY;
    for (int32_t e = 0; e < experts; e++) m = logits[e] > m ? logits[e] : m;
    f32x16 sums = v_zero();
    const f32x16 greatest = v_set(m);
    FOR_LANES (i, left, experts) {
      int lanes = LANES_LEFT(left);
      v_store_n(weights + i, v_exp(v_sub(v_load_n(logits + i, lanes), greatest)), lanes);
      sums = v_add(sums, v_load_n(weights + i, lanes)); /* reloaded: lanes past the end must be 0 */
    }
    const float total = v_sum(sums);
    choose_greatest(logits, experts, top_k, chosen, NULL, 0);
    int32_t *index = (int32_t *)pl_at(run, op[ROUTER_OUT_INDEX], row, top_k);
    float *weight = pl_at(run, op[ROUTER_OUT_WEIGHT], row, top_k);
    float sum = 0.0f;
    for (int32_t i = 0; i < top_k; i++) {
      weight[i] = weights[chosen[i]] / total;
      sum = sum + weight[i];
    }
    for (int32_t i = 0; i < top_k; i++) {
      weight[i] = pl_act(run->plan, op[ROUTER_NORMALISE] ? weight[i] / sum : weight[i]);
      index[i] = chosen[i];
    }
  }
}

/* ---- scoreRouter ---- */

static pl_stage score_router_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){run->call->rows, 50 + op[SCORE_ROUTER_EXPERTS] * (op[SCORE_ROUTER_SCORE] ? 30.0 : 2.0)};
}

/* sigmoid(l), or the root of softplus(l). */
static void router_scores(const float *logits, int32_t experts, int root_softplus, float *scores) {
  if (!root_softplus) {
    FOR_LANES (i, left, experts) {
      int lanes = LANES_LEFT(left);
      v_store_n(scores + i, v_sigmoid(v_load_n(logits + i, lanes)), lanes);
    }
    return;
  }
  for (int32_t e = 0; e < experts; e++) scores[e] = sqrtf((float)pl_softplus_f64((double)logits[e]));
}

/* Marks the groups whose experts can be chosen. */
static void keep_groups(const float *values, int32_t groups, int32_t size, int32_t keep, float *group_values,
                        int32_t *chosen, uint8_t *kept) {
  for (int32_t g = 0; g < groups; g++) {
    float first = pl_rank(values[g * size]), second = -INFINITY;
    for (int32_t i = 1; i < size; i++) {
      const float value = pl_rank(values[g * size + i]);
      if (value > first) {
        second = first;
        first = value;
      } else if (value > second) {
        second = value;
      }
    }
    group_values[g] = size == 1 ? first : first + second;
    kept[g] = 0;
  }
  choose_greatest(group_values, groups, keep, chosen, NULL, 0);
  for (int32_t i = 0; i < keep; i++) kept[chosen[i]] = 1;
}

static void score_router_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *memory) {
  const int32_t experts = op[SCORE_ROUTER_EXPERTS], top_k = op[SCORE_ROUTER_TOP_K], groups = op[SCORE_ROUTER_GROUPS];
  const float scaling = pl_float(op[SCORE_ROUTER_SCALING]);
  float *scores = (float *)memory, *values = scores + experts, *group_values = values + experts;
  int32_t *best = (int32_t *)(group_values + experts); /* experts, or groups: no more than experts either */
  uint8_t *kept = (uint8_t *)(best + experts);
  for (int64_t row = from; row < to; row++) {
    int32_t *index = (int32_t *)pl_at(run, op[SCORE_ROUTER_OUT_INDEX], row, top_k);
    float *weight = pl_at(run, op[SCORE_ROUTER_OUT_WEIGHT], row, top_k);
    router_scores(pl_at(run, op[SCORE_ROUTER_LOGITS], row, experts), experts, op[SCORE_ROUTER_SCORE], scores);
    if (op[SCORE_ROUTER_TABLE] >= 0) {
      const int32_t *listed =
          (const int32_t *)pl_weight_data(run, op[SCORE_ROUTER_TABLE]) + (int64_t)run->call->tokens[row] * top_k;
      for (int32_t i = 0; i < top_k; i++) index[i] = listed[i] < 0 ? 0 : listed[i] < experts ? listed[i] : experts - 1;
      sort_ascending(index, top_k);
    } else {
      const float *bias = op[SCORE_ROUTER_BIAS] < 0 ? NULL : pl_vector(run, op[SCORE_ROUTER_BIAS]);
      for (int32_t e = 0; e < experts; e++) values[e] = bias ? scores[e] + bias[e] : scores[e];
      const int32_t size = experts / groups;
      if (groups > 1) keep_groups(values, groups, size, op[SCORE_ROUTER_GROUPS_KEPT], group_values, best, kept);
      choose_greatest(values, experts, top_k, index, groups > 1 ? kept : NULL, size);
    }
    float sum = 0.0f;
    for (int32_t i = 0; i < top_k; i++) sum = sum + scores[index[i]];
    const float divisor = sum + (float)1e-20;
    for (int32_t i = 0; i < top_k; i++) {
      const float s = scores[index[i]];
      weight[i] = pl_act(run->plan, (op[SCORE_ROUTER_NORMALISE] ? s / divisor : s) * scaling);
    }
  }
}

#endif
