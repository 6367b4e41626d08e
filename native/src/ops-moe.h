/*
 * Mixtures of experts: the sorting of their choice by expert, the experts' matrices and the weighted sum.
 *
 * Invariants: as in linear layers, a unit is (an expert's block of rows, chunk of output columns); an expert's rows are
 * gathered by pointer, never copied; the list of active experts is made once a stage, by the thread that prepares it.
 */
#ifndef PL_OPS_MOE_H
#define PL_OPS_MOE_H

#include "ops-linear.h"

/* ---- experts ---- */

/* An expert that has rows in this call: its part of the pair list and of the stage's units. */
typedef struct {
  int32_t expert, first, rows, block_rows;
  int64_t unit, units_per_block;
} pl_expert;

INLINE int64_t pl_expert_unit_outs(const pl_expert *e) { return e->rows <= STREAM_MOST ? STREAM_UNIT : OUT_CHUNK; }

/* Lists the active experts in run->shared (count first) and adds up their units. `outs` columns, `matrices` a column.
 */
static pl_stage experts_prepare(const pl_run *run, int32_t offsets_at, int32_t experts, int32_t top_k, int64_t outs,
                                int64_t k, int64_t bytes) {
  const int32_t *offsets = (const int32_t *)(run->workspace + offsets_at);
  const int32_t pairs = run->call->rows * top_k;
  int64_t *count = (int64_t *)run->shared;
  pl_expert *list = (pl_expert *)(count + 1);
  int64_t units = 0, active = 0;
  double cost = 0;
  for (int32_t e = 0; e < experts; e++) {
    /* Offsets were written by moeGroup; the bounds hold whatever a plan points this op at. */
    int32_t first = offsets[e], end = offsets[e + 1];
    if (first < 0 || end > pairs || end <= first) continue;
    pl_expert x = {.expert = e, .first = first, .rows = end - first, .unit = units};
    x.block_rows = (int32_t)(x.rows <= STREAM_MOST ? x.rows : pl_block_rows(x.rows));
    x.units_per_block = pl_ceil_div(outs, pl_expert_unit_outs(&x));
    int64_t own = x.units_per_block * pl_ceil_div(x.rows, x.block_rows);
    units += own;
    cost += (double)own * pl_dot_cost(x.block_rows, pl_expert_unit_outs(&x), k, bytes);
    list[active++] = x;
  }
  *count = active;
  return (pl_stage){units, units ? cost / (double)units : 0};
}

/* One piece of work: rows of one expert and a run of its outs. Returns the units that it covers. */
typedef struct {
  const pl_expert *expert;
  int64_t row, rows, first, count, units;
} pl_expert_part;

static pl_expert_part expert_part(const pl_run *run, int64_t unit, int64_t to, int64_t outs) {
  const int64_t count = *(const int64_t *)run->shared;
  const pl_expert *list = (const pl_expert *)(run->shared + sizeof(int64_t));
  int64_t low = 0, high = count - 1;
  while (low < high) {
    int64_t middle = (low + high + 1) / 2;
    if (list[middle].unit <= unit)
      low = middle;
    else
      high = middle - 1;
  }
  const pl_expert *e = &list[low];
  const int64_t unit_outs = pl_expert_unit_outs(e), own = unit - e->unit;
  pl_expert_part part = {.expert = e, .row = own / e->units_per_block * e->block_rows};
  part.rows = pl_min(e->block_rows, e->rows - part.row);
  part.first = own % e->units_per_block * unit_outs;
  int64_t longest = e->rows <= STREAM_MOST ? DOTS / e->rows / STREAM_UNIT * STREAM_UNIT : OUT_CHUNK;
  part.count = pl_min(pl_min((to - unit) * unit_outs, longest), outs - part.first);
  part.units = pl_ceil_div(part.count, unit_outs);
  return part;
}

/* The pairs of a part, into scratch->list; a pair out of range (a foreign list) becomes pair 0. */
INLINE void expert_pairs(const pl_run *run, int32_t list_at, int32_t top_k, const pl_expert_part *part,
                         pl_dot_scratch *scratch) {
  const int32_t *list = (const int32_t *)(run->workspace + list_at) + part->expert->first + part->row;
  const int32_t pairs = run->call->rows * top_k;
  for (int64_t r = 0; r < part->rows; r++) scratch->list[r] = list[r] >= 0 && list[r] < pairs ? list[r] : 0;
}

static pl_stage moe_up_prepare(const pl_run *run, const int32_t *op) {
  int64_t bytes = pl_dtype_bytes(run->plan->weights[op[MOE_UP_GATE]].dtype);
  pl_stage stage = experts_prepare(run, op[MOE_UP_OFFSETS], op[MOE_UP_EXPERTS], op[MOE_UP_TOP_K], op[MOE_UP_WIDTH],
                                   op[MOE_UP_HIDDEN], bytes);
  stage.nanoseconds *= 2;
  return stage;
}
static void moe_up_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *memory) {
  pl_dot_scratch *scratch = (pl_dot_scratch *)memory;
  begin_dots(scratch);
  const pl_plan *plan = run->plan;
  const int64_t hidden = op[MOE_UP_HIDDEN], width = op[MOE_UP_WIDTH];
  const int32_t top_k = op[MOE_UP_TOP_K];
  const float limit = pl_float(op[MOE_UP_LIMIT]);
  while (from < to) {
    pl_expert_part part = expert_part(run, from, to, width);
    from += part.units;
    expert_pairs(run, op[MOE_UP_LIST], top_k, &part, scratch);
    for (int64_t r = 0; r < part.rows; r++) {
      scratch->rows[r] = pl_at(run, op[MOE_UP_IN], scratch->list[r] / top_k, hidden);
    }
    for (int which = 0; which < 2; which++) {
      const pl_weight *weight = &plan->weights[op[which ? MOE_UP_UP : MOE_UP_GATE] + part.expert->expert];
      pl_matrix matrix = {weight->data, hidden, weight->dtype, weight_pairing(weight)};
      dot_rows(scratch->rows, (int)part.rows, &matrix, part.first, part.count, scratch->dots[which], part.count,
               scratch);
    }
    for (int64_t r = 0; r < part.rows; r++) {
      const float *gate = scratch->dots[0] + r * part.count, *up = scratch->dots[1] + r * part.count;
      float *out = pl_at(run, op[MOE_UP_OUT], scratch->list[r], width) + part.first;
      FOR_LANES (i, left, part.count) {
        int lanes = LANES_LEFT(left);
        f32x16 g = v_act(plan, v_load_n(gate + i, lanes)), u = v_act(plan, v_load_n(up + i, lanes));
        v_store_n(out + i, v_act(plan, v_swiglu(plan, g, u, limit)), lanes);
      }
    }
  }
}

static pl_stage moe_down_prepare(const pl_run *run, const int32_t *op) {
  int64_t bytes = pl_dtype_bytes(run->plan->weights[op[MOE_DOWN_DOWN]].dtype);
  return experts_prepare(run, op[MOE_DOWN_OFFSETS], op[MOE_DOWN_EXPERTS], op[MOE_DOWN_TOP_K], op[MOE_DOWN_HIDDEN],
                         op[MOE_DOWN_WIDTH], bytes);
}
static void moe_down_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *memory) {
  pl_dot_scratch *scratch = (pl_dot_scratch *)memory;
  begin_dots(scratch);
  const pl_plan *plan = run->plan;
  const int64_t hidden = op[MOE_DOWN_HIDDEN], width = op[MOE_DOWN_WIDTH];
  while (from < to) {
    pl_expert_part part = expert_part(run, from, to, hidden);
    from += part.units;
    expert_pairs(run, op[MOE_DOWN_LIST], op[MOE_DOWN_TOP_K], &part, scratch);
    for (int64_t r = 0; r < part.rows; r++) scratch->rows[r] = pl_at(run, op[MOE_DOWN_IN], scratch->list[r], width);
    const pl_weight *weight = &plan->weights[op[MOE_DOWN_DOWN] + part.expert->expert];
    pl_matrix matrix = {weight->data, width, weight->dtype, weight_pairing(weight)};
    dot_rows(scratch->rows, (int)part.rows, &matrix, part.first, part.count, scratch->dots[0], part.count, scratch);
    for (int64_t r = 0; r < part.rows; r++) {
      const float *dots = scratch->dots[0] + r * part.count;
      float *out = pl_at(run, op[MOE_DOWN_OUT], scratch->list[r], hidden) + part.first;
      FOR_LANES (i, left, part.count) {
        int lanes = LANES_LEFT(left);
        v_store_n(out + i, v_act(plan, v_load_n(dots + i, lanes)), lanes);
      }
    }
  }
}

/* ---- moeGroup, moeCombine ---- */

static pl_stage moe_group_prepare(const pl_run *run, const int32_t *op) {
  (void)op;
  (void)run;
  return (pl_stage){1, 0}; /* a counting sort: one unit, always run where it is prepared */
}
static void moe_group_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)from, (void)to, (void)scratch;
  const int32_t experts = op[MOE_GROUP_EXPERTS], pairs = run->call->rows * op[MOE_GROUP_TOP_K];
  const int32_t *index = (const int32_t *)(run->workspace + op[MOE_GROUP_INDEX]);
  int32_t *offsets = (int32_t *)(run->workspace + op[MOE_GROUP_OUT_OFFSETS]);
  int32_t *list = (int32_t *)(run->workspace + op[MOE_GROUP_OUT_LIST]);
  memset(offsets, 0, ((size_t)experts + 1) * 4);
  for (int32_t p = 0; p < pairs; p++) {
    if (index[p] >= 0 && index[p] < experts) offsets[index[p] + 1]++;
  }
  for (int32_t e = 0; e < experts; e++) offsets[e + 1] += offsets[e];
  for (int32_t p = 0; p < pairs; p++) {
    if (index[p] >= 0 && index[p] < experts) list[offsets[index[p]]++] = p;
  }
  /* Every offset has walked to the start of the next expert: back by one place. */
  for (int32_t e = experts; e > 0; e--) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

static pl_stage moe_combine_prepare(const pl_run *run, const int32_t *op) {
  int64_t cuts = pl_ceil_div(op[MOE_COMBINE_HIDDEN], COLUMNS);
  return (pl_stage){run->call->rows * cuts, 30 + COLUMNS * 0.05 * (op[MOE_COMBINE_TOP_K] + 3)};
}
static void moe_combine_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_plan *plan = run->plan;
  const int64_t hidden = op[MOE_COMBINE_HIDDEN], top_k = op[MOE_COMBINE_TOP_K], cuts = pl_ceil_div(hidden, COLUMNS);
  for (int64_t unit = from; unit < to; unit++) {
    int64_t row = unit / cuts, at = unit % cuts * COLUMNS;
    const float *weights = pl_at(run, op[MOE_COMBINE_WEIGHTS], row, top_k);
    const float *down = pl_at(run, op[MOE_COMBINE_DOWN], row * top_k, hidden) + at;
    const float *shared = pl_at(run, op[MOE_COMBINE_SHARED], row, hidden) + at;
    float *out = pl_at(run, op[MOE_COMBINE_OUT], row, hidden) + at;
    f32x16 s = v_set(1.0f);
    if (op[MOE_COMBINE_SHARED_GATE] >= 0) {
      s = v_set(*pl_at(run, op[MOE_COMBINE_SHARED_GATE], row, 1));
      s = op[MOE_COMBINE_LOWERING] ? v_gate(plan, s, 1) : v_sigma(plan, s);
    }
    FOR_LANES (i, left, pl_min(COLUMNS, hidden - at)) {
      int lanes = LANES_LEFT(left);
      f32x16 y = v_zero();
      for (int64_t slot = 0; slot < top_k; slot++) {
        y = v_fma(v_set(weights[slot]), v_load_n(down + slot * hidden + i, lanes), y);
      }
      f32x16 extra = v_act(plan, v_mul(s, v_load_n(shared + i, lanes)));
      v_store_n(out + i, v_act(plan, v_add(v_act(plan, y), extra)), lanes);
    }
  }
}

#endif
