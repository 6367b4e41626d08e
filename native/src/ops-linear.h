/*
 * Linear layers: units are (block of rows, chunk of output columns), computed by dot.h into scratch and finished (bias,
 * rounding) on the way out.
 *
 * Invariants: up to STREAM_MOST rows are streamed over the weights once, STREAM_UNIT outs a unit; more rows go in
 * blocks over OUT_CHUNK outs a unit.
 */
#ifndef PL_OPS_LINEAR_H
#define PL_OPS_LINEAR_H

#include "dot.h"
#include "ops-basic.h"

enum { STREAM_UNIT = 8, DOTS = OUT_CHUNK * ROW_BLOCK /* room for the products of one piece of work */ };

INLINE pl_pairing weight_pairing(const pl_weight *weight) { return weight->pairs ? FIT_PAIRS : PERHAPS_PAIRS; }

/* How many rows of `rows` form one block: blocks of equal size, whole tiles, at most ROW_BLOCK. */
INLINE int64_t pl_block_rows(int64_t rows) {
  int64_t blocks = pl_ceil_div(rows, ROW_BLOCK);
  return pl_ceil_div(pl_ceil_div(rows, blocks), TILE_ROWS) * TILE_ROWS;
}

/* About what `outs` outputs of `rows` rows cost: the weights' way from memory, or the arithmetic. */
INLINE double pl_dot_cost(int64_t rows, int64_t outs, int64_t k, int64_t bytes) {
  double memory = (double)(outs * k * bytes) / 30.0, arithmetic = (double)(rows * outs * k) / (VF_LANES * 3.0);
  return 20 + (memory > arithmetic ? memory : arithmetic);
}

/* ---- linear ---- */

typedef struct {
  const int32_t *segments;
  int64_t rows, block_rows, unit_outs, units_per_block;
} pl_linear;

static pl_linear linear_shape(const pl_run *run, const int32_t *op) {
  pl_linear s = {.segments = op + LINEAR_FIRST_SEGMENT, .rows = pl_row_count(run, op[LINEAR_ROWS])};
  s.block_rows = s.rows <= STREAM_MOST ? s.rows : pl_block_rows(s.rows);
  s.unit_outs = s.rows <= STREAM_MOST ? STREAM_UNIT : OUT_CHUNK;
  for (int32_t i = 0; i < op[LINEAR_SEGMENTS]; i++) {
    s.units_per_block += pl_ceil_div(s.segments[i * LINEAR_SEGMENT_WORDS + SEGMENT_OUTS], s.unit_outs);
  }
  return s;
}

static pl_stage linear_prepare(const pl_run *run, const int32_t *op) {
  pl_linear s = linear_shape(run, op);
  if (s.rows == 0) return (pl_stage){0, 0};
  int64_t bytes = pl_dtype_bytes(run->plan->weights[s.segments[SEGMENT_WEIGHT]].dtype);
  return (pl_stage){pl_ceil_div(s.rows, s.block_rows) * s.units_per_block,
                    pl_dot_cost(s.block_rows, s.unit_outs, op[LINEAR_IN_WIDTH], bytes)};
}

/* Outs `first` .. `first + count` of one segment for rows `row` .. `row + rows`. */
static void linear_part(const pl_run *run, const int32_t *op, const int32_t *segment, int64_t row, int64_t rows,
                        int64_t first, int64_t count, pl_dot_scratch *scratch) {
  const pl_plan *plan = run->plan;
  const int64_t k = op[LINEAR_IN_WIDTH], out_width = segment[SEGMENT_OUT_WIDTH];
  const pl_weight *weight = &plan->weights[segment[SEGMENT_WEIGHT]];
  const pl_matrix matrix = {weight->data, k, weight->dtype, weight_pairing(weight)};
  const float *bias = segment[SEGMENT_BIAS] < 0 ? NULL : pl_vector(run, segment[SEGMENT_BIAS]) + first;
  for (int64_t r = 0; r < rows; r++) scratch->rows[r] = pl_at(run, op[LINEAR_IN], row + r, k);
  float *dots = scratch->dots[0];
  dot_rows(scratch->rows, (int)rows, &matrix, first, count, dots, count, scratch);
  for (int64_t r = 0; r < rows; r++) {
    float *out = pl_at(run, segment[SEGMENT_OUT], row + r, out_width) + segment[SEGMENT_OUT_COLUMN] + first;
    FOR_LANES (i, left, count) {
      int lanes = LANES_LEFT(left);
      f32x16 v = v_load_n(dots + r * count + i, lanes);
      if (bias) v = v_add(v, v_load_n(bias + i, lanes));
      v_store_n(out + i, v_act(plan, v), lanes);
    }
  }
}

static void linear_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  const pl_linear s = linear_shape(run, op);
  begin_dots((pl_dot_scratch *)scratch);
  const int64_t longest = s.rows <= STREAM_MOST ? DOTS / s.rows / STREAM_UNIT * STREAM_UNIT : OUT_CHUNK;
  while (from < to) {
    int64_t row = from / s.units_per_block * s.block_rows, unit = from % s.units_per_block;
    const int32_t *segment = s.segments;
    for (;; segment += LINEAR_SEGMENT_WORDS) {
      int64_t units = pl_ceil_div(segment[SEGMENT_OUTS], s.unit_outs);
      if (unit < units) break;
      unit -= units;
    }
    /* As many of the following units as lie in the same segment and fit the scratch go in one sweep. */
    int64_t first = unit * s.unit_outs;
    int64_t count = pl_min(pl_min((to - from) * s.unit_outs, longest), segment[SEGMENT_OUTS] - first);
    linear_part(run, op, segment, row, pl_min(s.block_rows, s.rows - row), first, count, (pl_dot_scratch *)scratch);
    from += pl_ceil_div(count, s.unit_outs);
  }
}

/* ---- groupedLinear: units are (block of rows, group, chunk of the group's outs) ---- */

typedef struct {
  int64_t rows, block_rows, unit_outs, units_per_group, units_per_block;
} pl_grouped;

static pl_grouped grouped_shape(const pl_run *run, const int32_t *op) {
  pl_grouped s = {.rows = pl_row_count(run, op[GROUPED_LINEAR_ROWS])};
  s.block_rows = s.rows <= STREAM_MOST ? s.rows : pl_block_rows(s.rows);
  s.unit_outs = s.rows <= STREAM_MOST ? STREAM_UNIT : OUT_CHUNK;
  s.units_per_group = pl_ceil_div(op[GROUPED_LINEAR_GROUP_OUT], s.unit_outs);
  s.units_per_block = s.units_per_group * op[GROUPED_LINEAR_GROUPS];
  return s;
}

static pl_stage grouped_linear_prepare(const pl_run *run, const int32_t *op) {
  const pl_grouped s = grouped_shape(run, op);
  if (s.rows == 0) return (pl_stage){0, 0};
  const int64_t bytes = pl_dtype_bytes(run->plan->weights[op[GROUPED_LINEAR_WEIGHT]].dtype);
  return (pl_stage){pl_ceil_div(s.rows, s.block_rows) * s.units_per_block,
                    pl_dot_cost(s.block_rows, s.unit_outs, op[GROUPED_LINEAR_GROUP_IN], bytes)};
}

static void grouped_linear_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *memory) {
  pl_dot_scratch *scratch = (pl_dot_scratch *)memory;
  begin_dots(scratch);
  const pl_grouped s = grouped_shape(run, op);
  const int64_t groups = op[GROUPED_LINEAR_GROUPS], k = op[GROUPED_LINEAR_GROUP_IN], outs = op[GROUPED_LINEAR_GROUP_OUT];
  const pl_weight *weight = &run->plan->weights[op[GROUPED_LINEAR_WEIGHT]];
  const pl_matrix matrix = {weight->data, k, weight->dtype, weight_pairing(weight)};
  const int64_t longest = s.rows <= STREAM_MOST ? DOTS / s.rows / STREAM_UNIT * STREAM_UNIT : OUT_CHUNK;
  while (from < to) {
    const int64_t row = from / s.units_per_block * s.block_rows, rows = pl_min(s.block_rows, s.rows - row);
    const int64_t group = from % s.units_per_block / s.units_per_group, first = from % s.units_per_group * s.unit_outs;
    const int64_t count = pl_min(pl_min((to - from) * s.unit_outs, longest), outs - first);
    for (int64_t r = 0; r < rows; r++)
      scratch->rows[r] = pl_at(run, op[GROUPED_LINEAR_IN], (row + r) * groups + group, k);
    float *dots = scratch->dots[0];
    const int64_t at = group * op[GROUPED_LINEAR_ROW_STRIDE] + op[GROUPED_LINEAR_ROW_OFFSET] + first;
    dot_rows(scratch->rows, (int)rows, &matrix, at, count, dots, count, scratch);
    for (int64_t r = 0; r < rows; r++) {
      float *out = pl_at(run, op[GROUPED_LINEAR_OUT], (row + r) * groups + group, outs) + first;
      FOR_LANES (i, left, count) {
        int lanes = LANES_LEFT(left);
        v_store_n(out + i, v_act(run->plan, v_load_n(dots + r * count + i, lanes)), lanes);
      }
    }
    from += pl_ceil_div(count, s.unit_outs);
  }
}

#endif
