/*
 * Ops that treat each row by itself without matrices: embedding, norms, hyper-connections, gates, sums, copies.
 * The arithmetic is that of src/engine/plan/ops.ts, op by op.
 */
#ifndef PL_OPS_BASIC_H
#define PL_OPS_BASIC_H

#include "laws.h"

enum { COLUMNS = 512 }; /* elements of a row in one unit, where rows are cut */

INLINE int64_t pl_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
INLINE int64_t pl_min(int64_t a, int64_t b) { return a < b ? a : b; }
/* 0: the trunk's rows, 1: the selected ones, n >= 2: n rows for each of the trunk. */
INLINE int64_t pl_row_count(const pl_run *run, int32_t rows) {
  return rows == 1 ? run->call->out_rows : (int64_t)run->call->rows * (rows ? rows : 1);
}
INLINE float *pl_at(const pl_run *run, int32_t buffer, int64_t row, int64_t width) {
  return run->workspace + buffer + row * width;
}
INLINE const uint8_t *pl_weight_data(const pl_run *run, int32_t index) { return run->plan->weights[index].data; }
INLINE const float *pl_vector(const pl_run *run, int32_t index) { return (const float *)pl_weight_data(run, index); }

/* 1 / sqrt(mean + eps), where mean = dot(x, x) / n. */
INLINE float pl_norm_scale(const float *x, int64_t n, float eps) {
  float mean = pl_dot(x, x, n) / (float)n;
  return 1.0f / sqrtf(mean + eps);
}

/* One normed group, scaled alone without a gain; out may be x. */
INLINE void pl_norm(const pl_plan *plan, const float *x, float *out, const float *gain, int64_t n, float eps) {
  f32x16 scale = v_set(pl_norm_scale(x, n, eps));
  FOR_LANES (i, left, n) {
    int lanes = LANES_LEFT(left);
    f32x16 y = v_mul(v_load_n(x + i, lanes), scale);
    if (plan->mtplx || !gain) y = v_act(plan, y);
    if (gain) y = v_act(plan, v_mul(y, v_load_n(gain + i, lanes)));
    v_store_n(out + i, y, lanes);
  }
}

/* ---- embed ---- */

static pl_stage embed_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){run->call->rows, 30 + op[EMBED_WIDTH] * op[EMBED_COPIES] * 0.2};
}
static void embed_row(const pl_run *run, const pl_weight *weight, int64_t id, int64_t width, int64_t copies,
                      float *out) {
  const uint8_t *in = weight->data + id * width * pl_dtype_bytes(weight->dtype);
  FOR_LANES (i, left, width) {
    int lanes = LANES_LEFT(left);
    f32x16 v;
    if (weight->dtype == DTYPE_F32)
      v = v_load_n((const float *)in + i, lanes);
    else if (weight->dtype == DTYPE_BF16)
      v = v_load_bf16_part((const uint16_t *)in + i, lanes);
    else
      v = v_load_f16_part((const uint16_t *)in + i, lanes);
    v = v_act(run->plan, v);
    for (int64_t c = 0; c < copies; c++) v_store_n(out + c * width + i, v, lanes);
  }
}
static void embed_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t width = op[EMBED_WIDTH], copies = op[EMBED_COPIES];
  const pl_weight *weight = &run->plan->weights[op[EMBED_WEIGHT]];
  for (int64_t row = from; row < to; row++) {
    embed_row(run, weight, run->call->tokens[row], width, copies, pl_at(run, op[EMBED_OUT], row, width * copies));
  }
}

/* ---- embedGreedy ---- */

/* The lowest index of the greatest by `>` from -inf; 0 where nothing is greater. */
static int64_t pl_greatest(const float *x, int64_t n) {
  enum { STRETCH = 256 }; /* the index is looked for in the one that holds the greatest */
  float best = -INFINITY;
  int64_t first = 0;
  for (int64_t at = 0; at < n; at += STRETCH) {
    const int64_t end = pl_min(at + STRETCH, n);
    f32x16 lanes = v_set(-INFINITY);
    int64_t i = at;
    for (; i + 16 <= end; i += 16) {
      f32x16 v = v_load(x + i);
      lanes = v_select(v_gt(v, lanes), v, lanes);
    }
    float parts[16], most = -INFINITY;
    v_store(parts, lanes);
    for (int l = 0; l < 16; l++) most = parts[l] > most ? parts[l] : most;
    for (; i < end; i++) most = x[i] > most ? x[i] : most;
    if (!(most > best)) continue;
    best = most;
    first = at;
  }
  if (!(best > -INFINITY)) return 0;
  while (x[first] != best) first++;
  return first;
}

static pl_stage embed_greedy_prepare(const pl_run *run, const int32_t *op) {
  double width = op[EMBED_GREEDY_WIDTH] * (double)op[EMBED_GREEDY_COPIES];
  return (pl_stage){run->call->rows, 50 + op[EMBED_GREEDY_VOCAB] * 0.1 + width * 0.2};
}
static void embed_greedy_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t width = op[EMBED_GREEDY_WIDTH], copies = op[EMBED_GREEDY_COPIES], vocab = op[EMBED_GREEDY_VOCAB];
  const pl_weight *weight = &run->plan->weights[op[EMBED_GREEDY_WEIGHT]];
  int32_t *ids = (int32_t *)(run->workspace + op[EMBED_GREEDY_OUT_IDS]);
  for (int64_t row = from; row < to; row++) {
    ids[row] = (int32_t)pl_greatest(pl_at(run, op[EMBED_GREEDY_LOGITS], row, vocab), vocab);
    embed_row(run, weight, ids[row], width, copies, pl_at(run, op[EMBED_GREEDY_OUT], row, width * copies));
  }
}

/* ---- norm ---- */

static pl_stage norm_prepare(const pl_run *run, const int32_t *op) {
  int64_t rows = pl_row_count(run, op[NORM_ROWS]);
  return (pl_stage){rows * (op[NORM_WIDTH] / op[NORM_GROUP]), 20 + op[NORM_GROUP] * 0.15};
}
static void norm_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t width = op[NORM_WIDTH], group = op[NORM_GROUP], groups = width / group;
  const float *gain = op[NORM_GAIN] < 0 ? NULL : pl_vector(run, op[NORM_GAIN]);
  for (int64_t unit = from; unit < to; unit++) {
    int64_t row = unit / groups, at = unit % groups * group;
    pl_norm(run->plan, pl_at(run, op[NORM_IN], row, width) + at, pl_at(run, op[NORM_OUT], row, width) + at,
            gain ? gain + at : NULL, group, pl_float(op[NORM_EPS]));
  }
}

/* ---- layerNorm: a unit is a row ---- */

static pl_stage layer_norm_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){pl_row_count(run, op[LAYER_NORM_ROWS]), 20 + op[LAYER_NORM_WIDTH] * 0.3};
}
static void layer_norm_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t width = op[LAYER_NORM_WIDTH];
  const float *gain = pl_vector(run, op[LAYER_NORM_GAIN]), *bias = pl_vector(run, op[LAYER_NORM_BIAS]);
  for (int64_t row = from; row < to; row++) {
    const float *x = pl_at(run, op[LAYER_NORM_IN], row, width);
    float *out = pl_at(run, op[LAYER_NORM_OUT], row, width);
    f32x16 sums = v_zero();
    FOR_LANES (i, left, width) sums = v_add(sums, v_load_n(x + i, LANES_LEFT(left)));
    const f32x16 mean = v_set(v_sum(sums) / (float)width);
    FOR_LANES (i, left, width) {
      int lanes = LANES_LEFT(left);
      v_store_n(out + i, v_sub(v_load_n(x + i, lanes), mean), lanes);
    }
    const f32x16 scale = v_set(pl_norm_scale(out, width, pl_float(op[LAYER_NORM_EPS])));
    FOR_LANES (i, left, width) {
      int lanes = LANES_LEFT(left);
      f32x16 y = v_mul(v_mul(v_load_n(out + i, lanes), scale), v_load_n(gain + i, lanes));
      v_store_n(out + i, v_act(run->plan, v_add(y, v_load_n(bias + i, lanes))), lanes);
    }
  }
}

/* ---- hyper-connections ---- */

static pl_stage hc_act_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){pl_row_count(run, op[HC_ACT_ROWS]), 30 + op[HC_ACT_RANK] * 1.0};
}
static void hc_act_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_plan *plan = run->plan;
  const int64_t rank = op[HC_ACT_RANK], streams = op[HC_ACT_STREAMS];
  const f32x16 divisor = v_set((float)streams);
  for (int64_t row = from; row < to; row++) {
    float *down = pl_at(run, op[HC_ACT_DOWN], row, rank);
    FOR_LANES (i, left, rank) {
      int lanes = LANES_LEFT(left);
      f32x16 v = v_act(plan, v_div(v_load_n(down + i, lanes), divisor));
      v_store_n(down + i, v_silu(plan, v), lanes);
    }
    if (op[HC_ACT_INJECT] < 0) continue;
    float *inject = pl_at(run, op[HC_ACT_INJECT], row, streams);
    FOR_LANES (i, left, streams) {
      int lanes = LANES_LEFT(left);
      f32x16 v = v_act(plan, v_div(v_load_n(inject + i, lanes), divisor));
      v = v_mul(v_set(2.0f), v_gate(plan, v, op[HC_ACT_LOWERING]));
      v_store_n(inject + i, v_act(plan, v), lanes);
    }
  }
}

static pl_stage hc_mix_prepare(const pl_run *run, const int32_t *op) {
  int64_t cuts = pl_ceil_div(op[HC_MIX_HIDDEN], COLUMNS);
  double elements = (double)op[HC_MIX_HIDDEN] / (double)cuts * op[HC_MIX_STREAMS];
  return (pl_stage){pl_row_count(run, op[HC_MIX_ROWS]) * cuts, 10 + elements * 0.9};
}
static void hc_mix_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_plan *plan = run->plan;
  const int64_t hidden = op[HC_MIX_HIDDEN], streams = op[HC_MIX_STREAMS], cuts = pl_ceil_div(hidden, COLUMNS);
  const f32x16 divisor = v_set((float)streams);
  for (int64_t unit = from; unit < to; unit++) {
    int64_t row = unit / cuts, at = unit % cuts * COLUMNS;
    const float *mix = pl_at(run, op[HC_MIX_MIX], row, hidden * streams) + at;
    const float *normed = pl_at(run, op[HC_MIX_NORMED], row, hidden * streams) + at;
    float *out = pl_at(run, op[HC_MIX_OUT], row, hidden) + at;
    FOR_LANES (i, left, pl_min(COLUMNS, hidden - at)) {
      int lanes = LANES_LEFT(left);
      f32x16 sum = v_zero();
      int64_t c = 0;
      for (; c + SIDE_BY_SIDE <= streams; c += SIDE_BY_SIDE) {
        f32x16 w[SIDE_BY_SIDE];
        EACH(s, SIDE_BY_SIDE) w[s] = v_load_n(mix + (c + s) * hidden + i, lanes);
        v_sigmas(SIDE_BY_SIDE, plan, w);
        EACH(s, SIDE_BY_SIDE) w[s] = v_act(plan, v_mul(w[s], v_load_n(normed + (c + s) * hidden + i, lanes)));
        EACH(s, SIDE_BY_SIDE) sum = v_add(sum, w[s]);
      }
      for (; c < streams; c++) {
        f32x16 weight = v_sigma(plan, v_load_n(mix + c * hidden + i, lanes));
        sum = v_add(sum, v_act(plan, v_mul(weight, v_load_n(normed + c * hidden + i, lanes))));
      }
      v_store_n(out + i, v_act(plan, v_div(sum, divisor)), lanes);
    }
  }
}

static pl_stage hc_write_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){(int64_t)run->call->rows * op[HC_WRITE_STREAMS], 10 + op[HC_WRITE_HIDDEN] * 0.1};
}
static void hc_write_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_plan *plan = run->plan;
  const int64_t hidden = op[HC_WRITE_HIDDEN], streams = op[HC_WRITE_STREAMS];
  for (int64_t unit = from; unit < to; unit++) {
    int64_t row = unit / streams, c = unit % streams;
    float *residual = pl_at(run, op[HC_WRITE_RESIDUAL], row, hidden * streams) + c * hidden;
    const float *y = pl_at(run, op[HC_WRITE_Y], row, hidden);
    const f32x16 inject = v_set(op[HC_WRITE_INJECT] < 0 ? 1.0f : pl_at(run, op[HC_WRITE_INJECT], row, streams)[c]);
    FOR_LANES (i, left, hidden) {
      int lanes = LANES_LEFT(left);
      f32x16 step = v_act(plan, v_mul(inject, v_load_n(y + i, lanes)));
      v_store_n(residual + i, v_act(plan, v_add(v_load_n(residual + i, lanes), step)), lanes);
    }
  }
}

/* ---- gatedNorm ---- */

static pl_stage gated_norm_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){(int64_t)run->call->rows * op[GATED_NORM_HEADS], 20 + op[GATED_NORM_DIM] * 0.8};
}
static void gated_norm_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_plan *plan = run->plan;
  const int64_t dim = op[GATED_NORM_DIM];
  const float *weight = pl_vector(run, op[GATED_NORM_WEIGHT]);
  for (int64_t unit = from; unit < to; unit++) {
    const float *x = pl_at(run, op[GATED_NORM_IN], unit, dim);
    const float *z = pl_at(run, op[GATED_NORM_Z], unit, dim);
    float *out = pl_at(run, op[GATED_NORM_OUT], unit, dim);
    f32x16 scale = v_set(pl_norm_scale(x, dim, pl_float(op[GATED_NORM_EPS])));
    FOR_LANES (i, left, dim) {
      int lanes = LANES_LEFT(left);
      f32x16 n = v_act(plan, v_mul(v_load_n(x + i, lanes), scale));
      f32x16 w = v_act(plan, v_mul(n, v_load_n(weight + i, lanes)));
      f32x16 gate = v_load_n(z + i, lanes);
      f32x16 f = v_sigmoid(gate);
      if (op[GATED_NORM_SILU]) f = v_mul(gate, f);
      v_store_n(out + i, v_act(plan, v_mul(w, f)), lanes);
    }
  }
}

/* ---- swiglu, add, pleAdd ---- */

static pl_stage swiglu_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){run->call->rows * pl_ceil_div(op[SWIGLU_WIDTH], COLUMNS), 10 + COLUMNS * 0.8};
}
static void swiglu_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_plan *plan = run->plan;
  const int64_t width = op[SWIGLU_WIDTH], cuts = pl_ceil_div(width, COLUMNS);
  const float limit = pl_float(op[SWIGLU_LIMIT]);
  for (int64_t unit = from; unit < to; unit++) {
    int64_t at = unit / cuts * width + unit % cuts * COLUMNS;
    const float *gate = run->workspace + op[SWIGLU_GATE] + at;
    const float *up = run->workspace + op[SWIGLU_UP] + at;
    float *out = run->workspace + op[SWIGLU_OUT] + at;
    FOR_LANES (i, left, pl_min(COLUMNS, width - unit % cuts * COLUMNS)) {
      int lanes = LANES_LEFT(left);
      f32x16 v = v_swiglu(plan, v_load_n(gate + i, lanes), v_load_n(up + i, lanes), limit);
      v_store_n(out + i, v_act(plan, v), lanes);
    }
  }
}

static pl_stage add_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){pl_row_count(run, op[ADD_ROWS]), 5 + op[ADD_WIDTH] * 0.1};
}
static void add_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t width = op[ADD_WIDTH];
  for (int64_t row = from; row < to; row++) {
    const float *a = pl_at(run, op[ADD_A], row, width), *b = pl_at(run, op[ADD_B], row, width);
    float *out = pl_at(run, op[ADD_OUT], row, width);
    FOR_LANES (i, left, width) {
      int lanes = LANES_LEFT(left);
      v_store_n(out + i, v_act(run->plan, v_add(v_load_n(a + i, lanes), v_load_n(b + i, lanes))), lanes);
    }
  }
}

static pl_stage ple_add_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){run->call->rows, 5 + op[PLE_ADD_WIDTH] * 0.15};
}
static void ple_add_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_plan *plan = run->plan;
  const int64_t width = op[PLE_ADD_WIDTH];
  for (int64_t row = from; row < to; row++) {
    float *residual = pl_at(run, op[PLE_ADD_RESIDUAL], row, width);
    const float *u = pl_at(run, op[PLE_ADD_U], row, width), *conv = pl_at(run, op[PLE_ADD_CONV], row, width);
    FOR_LANES (i, left, width) {
      int lanes = LANES_LEFT(left);
      f32x16 step = v_act(plan, v_add(v_load_n(u + i, lanes), v_load_n(conv + i, lanes)));
      v_store_n(residual + i, v_act(plan, v_add(v_load_n(residual + i, lanes), step)), lanes);
    }
  }
}

/* ---- pleGate ---- */

static pl_stage ple_gate_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){(int64_t)run->call->rows * op[PLE_GATE_STREAMS], 60 + op[PLE_GATE_HIDDEN] * 0.2};
}
static void ple_gate_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_plan *plan = run->plan;
  const int64_t hidden = op[PLE_GATE_HIDDEN], streams = op[PLE_GATE_STREAMS];
  const float least = (float)1e-6;
  for (int64_t unit = from; unit < to; unit++) {
    const float *key = pl_at(run, op[PLE_GATE_KEY], unit, hidden),
                *query = pl_at(run, op[PLE_GATE_QUERY], unit, hidden);
    const float *value = pl_at(run, op[PLE_GATE_VALUE], unit / streams, hidden);
    float *out = pl_at(run, op[PLE_GATE_OUT], unit, hidden);
    f32x16 sums = v_zero();
    FOR_LANES (i, left, hidden) {
      int lanes = LANES_LEFT(left);
      sums = v_add(sums, v_act(plan, v_mul(v_load_n(key + i, lanes), v_load_n(query + i, lanes))));
    }
    float a = pl_act(plan, pl_act(plan, v_sum(sums)) / pl_float(op[PLE_GATE_ROOT_HIDDEN]));
    float magnitude = fabsf(a);
    float t = pl_act(plan, sqrtf(magnitude < least ? least : magnitude)); /* NaN fails the comparison and stays */
    float s = a > 0.0f ? t : a < 0.0f ? -t : a == 0.0f ? 0.0f : t;
    f32x16 gate = v_set(s);
    gate = op[PLE_GATE_LOWERING] ? v_gate(plan, gate, 1) : v_sigma(plan, gate);
    FOR_LANES (i, left, hidden) {
      int lanes = LANES_LEFT(left);
      v_store_n(out + i, v_act(plan, v_mul(gate, v_load_n(value + i, lanes))), lanes);
    }
  }
}

/* ---- gather, tap ---- */

static pl_stage gather_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){run->call->out_rows, 10 + op[GATHER_WIDTH] * 0.05};
}
static void gather_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t width = op[GATHER_WIDTH];
  for (int64_t m = from; m < to; m++) {
    memmove(pl_at(run, op[GATHER_OUT], m, width), pl_at(run, op[GATHER_IN], run->call->selected[m], width),
            (size_t)width * 4);
  }
}

static pl_stage tap_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){run->call->rows, 10 + op[TAP_WIDTH] * 0.05};
}
static void tap_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t width = op[TAP_WIDTH];
  memmove(pl_at(run, op[TAP_OUT], from, width), pl_at(run, op[TAP_IN], from, width), (size_t)((to - from) * width) * 4);
}

#endif
