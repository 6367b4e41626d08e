/*
 * Manifold hyper-connections: the weights of a row, the read of its streams and the write back into all of them.
 *
 * Invariants: sums run over streams and rows of the mixing matrix in ascending order; a write holds all streams of a
 * column in registers before it stores the first.
 */
#ifndef PL_OPS_MANIFOLD_H
#define PL_OPS_MANIFOLD_H

#include "ops-basic.h"

enum { MHC_WIDTH = (2 + PL_MAX_STREAMS) * PL_MAX_STREAMS };

/* ---- mhcWeights: a unit is a row ---- */

static pl_stage mhc_weights_prepare(const pl_run *run, const int32_t *op) {
  const int64_t streams = op[MHC_WEIGHTS_STREAMS];
  return (pl_stage){pl_row_count(run, op[MHC_WEIGHTS_ROWS]),
                    60 + (double)(streams * streams) * (2 + op[MHC_WEIGHTS_ITERATIONS]) * 8};
}

/* Divides `count` elements, `stride` apart, by their sum + eps. */
INLINE void mhc_normalise(float *x, int64_t stride, int64_t count, float eps) {
  float sum = 0.0f;
  for (int64_t i = 0; i < count; i++) sum = sum + x[i * stride];
  const float divisor = sum + eps;
  for (int64_t i = 0; i < count; i++) x[i * stride] = x[i * stride] / divisor;
}

/* In place: the softmax of every row + eps, then columns, then `iterations` - 1 times rows and columns. */
static void mhc_mixing(float *comb, int64_t streams, int32_t iterations, float eps) {
  for (int64_t j = 0; j < streams; j++) {
    float *row = comb + j * streams, most = -INFINITY, total = 0.0f;
    for (int64_t k = 0; k < streams; k++) most = row[k] > most ? row[k] : most;
    for (int64_t k = 0; k < streams; k++) row[k] = row[k] - most;
    FOR_LANES (k, left, streams) {
      int lanes = LANES_LEFT(left);
      v_store_n(row + k, v_exp(v_load_n(row + k, lanes)), lanes);
    }
    for (int64_t k = 0; k < streams; k++) total = total + row[k];
    for (int64_t k = 0; k < streams; k++) row[k] = row[k] / total + eps;
  }
  for (int64_t k = 0; k < streams; k++) mhc_normalise(comb + k, streams, streams, eps);
  for (int32_t i = 1; i < iterations; i++) {
    for (int64_t j = 0; j < streams; j++) mhc_normalise(comb + j * streams, 1, streams, eps);
    for (int64_t k = 0; k < streams; k++) mhc_normalise(comb + k, streams, streams, eps);
  }
}

static void mhc_weights_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t streams = op[MHC_WEIGHTS_STREAMS];
  const int32_t iterations = op[MHC_WEIGHTS_ITERATIONS];
  const int64_t width = iterations ? (2 + streams) * streams : streams;
  const float eps = pl_float(op[MHC_WEIGHTS_EPS]);
  const float *scale = pl_vector(run, op[MHC_WEIGHTS_SCALE]), *base = pl_vector(run, op[MHC_WEIGHTS_BASE]);
  float v[MHC_WIDTH], sigmoids[2 * PL_MAX_STREAMS];
  for (int64_t row = from; row < to; row++) {
    const float *in = pl_at(run, op[MHC_WEIGHTS_IN], row, width);
    float *out = pl_at(run, op[MHC_WEIGHTS_OUT], row, width);
    for (int64_t i = 0; i < width; i++) v[i] = in[i] * scale[i < streams ? 0 : i < 2 * streams ? 1 : 2] + base[i];
    const int64_t gates = iterations ? 2 * streams : streams;
    FOR_LANES (i, left, gates) {
      int lanes = LANES_LEFT(left);
      v_store_n(sigmoids + i, v_sigmoid(v_load_n(v + i, lanes)), lanes);
    }
    for (int64_t h = 0; h < gates; h++) out[h] = h < streams ? sigmoids[h] + eps : 2.0f * sigmoids[h];
    if (!iterations) continue;
    mhc_mixing(v + 2 * streams, streams, iterations, eps);
    memcpy(out + 2 * streams, v + 2 * streams, (size_t)(streams * streams) * 4);
  }
}

/* ---- mhcSum: units are (row, columns) ---- */

static pl_stage mhc_sum_prepare(const pl_run *run, const int32_t *op) {
  const int64_t cuts = pl_ceil_div(op[MHC_SUM_HIDDEN], COLUMNS);
  return (pl_stage){pl_row_count(run, op[MHC_SUM_ROWS]) * cuts, 10 + COLUMNS * 0.06 * op[MHC_SUM_STREAMS]};
}
static void mhc_sum_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t hidden = op[MHC_SUM_HIDDEN], streams = op[MHC_SUM_STREAMS], cuts = pl_ceil_div(hidden, COLUMNS);
  const f32x16 divisor = v_set((float)streams);
  for (int64_t unit = from; unit < to; unit++) {
    const int64_t row = unit / cuts, at = unit % cuts * COLUMNS;
    const float *weights =
        op[MHC_SUM_WEIGHTS] < 0 ? NULL : pl_at(run, op[MHC_SUM_WEIGHTS], row, op[MHC_SUM_WEIGHTS_WIDTH]);
    const float *residual = pl_at(run, op[MHC_SUM_RESIDUAL], row, hidden * streams) + at;
    float *out = pl_at(run, op[MHC_SUM_OUT], row, hidden) + at;
    FOR_LANES (i, left, pl_min(COLUMNS, hidden - at)) {
      int lanes = LANES_LEFT(left);
      f32x16 sum = v_zero();
      for (int64_t h = 0; h < streams; h++) {
        const f32x16 x = v_load_n(residual + h * hidden + i, lanes);
        sum = weights ? v_fma(v_set(weights[h]), x, sum) : v_add(sum, x);
      }
      v_store_n(out + i, v_act(run->plan, weights ? sum : v_div(sum, divisor)), lanes);
    }
  }
}

/* ---- mhcWrite: units are (row, columns) ---- */

static pl_stage mhc_write_prepare(const pl_run *run, const int32_t *op) {
  const int64_t cuts = pl_ceil_div(op[MHC_WRITE_HIDDEN], COLUMNS), streams = op[MHC_WRITE_STREAMS];
  return (pl_stage){run->call->rows * cuts, 20 + COLUMNS * 0.06 * (double)(streams * streams)};
}

/* Sixteen (or `lanes`) columns of all streams of a row. */
INLINE void mhc_write_columns(const pl_plan *plan, float *residual, int64_t hidden, int64_t streams,
                              const float *weights, const float *y, int lanes) {
  f32x16 old[PL_MAX_STREAMS];
  const f32x16 fresh = v_load_n(y, lanes);
  for (int64_t j = 0; j < streams; j++) old[j] = v_load_n(residual + j * hidden, lanes);
  for (int64_t k = 0; k < streams; k++) {
    f32x16 sum = v_mul(v_set(weights[streams + k]), fresh);
    for (int64_t j = 0; j < streams; j++) sum = v_fma(v_set(weights[2 * streams + j * streams + k]), old[j], sum);
    v_store_n(residual + k * hidden, v_act(plan, sum), lanes);
  }
}

static void mhc_write_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t hidden = op[MHC_WRITE_HIDDEN], streams = op[MHC_WRITE_STREAMS], cuts = pl_ceil_div(hidden, COLUMNS);
  for (int64_t unit = from; unit < to; unit++) {
    const int64_t row = unit / cuts, at = unit % cuts * COLUMNS;
    float *residual = pl_at(run, op[MHC_WRITE_RESIDUAL], row, hidden * streams) + at;
    const float *weights = pl_at(run, op[MHC_WRITE_WEIGHTS], row, op[MHC_WRITE_WEIGHTS_WIDTH]);
    const float *y = pl_at(run, op[MHC_WRITE_Y], row, hidden) + at;
    FOR_LANES (i, left, pl_min(COLUMNS, hidden - at)) {
      if (streams == 4)
        mhc_write_columns(run->plan, residual + i, hidden, 4, weights, y + i, LANES_LEFT(left));
      else
        mhc_write_columns(run->plan, residual + i, hidden, streams, weights, y + i, LANES_LEFT(left));
    }
  }
}

#endif
