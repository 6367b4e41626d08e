/*
 * The gated delta rule, with one decay a head (gatedDelta) or one a key channel (kda). States are read from a
 * sequence`s input slab and written to its output slab.
 *
 * Invariants: value columns are independent of each other, so a unit owns some of them for all rows of one sequence;
 * tokens are walked one by one. The rule keeps its columns of S in the first-level cache and joins the update of one
 * token with the decay of the next in one pass over them; the operations and their order stay those of the op table.
 */
#ifndef PL_OPS_DELTA_H
#define PL_OPS_DELTA_H

#include "ops-basic.h"

/* ---- first stage: normed queries and keys, decays and beta of every row, into run->shared ---- */

typedef struct {
  float *qk;    /* [rows][2][keyHeads][keyDim]: queries, then keys */
  float *gates; /* [rows][valueHeads][decays + 1]: decays, beta */
  int64_t key_heads, value_heads, key_dim, value_dim;
  int64_t decays;           /* 1, or one for every key channel */
  int32_t conv, out, state; /* buffers, and the place of S in a slab */
} pl_delta;

static pl_delta delta_shape(const pl_run *run, const int32_t *op) {
  pl_delta s = {.key_heads = op[GATED_DELTA_KEY_HEADS], .value_heads = op[GATED_DELTA_VALUE_HEADS]};
  s.key_dim = op[GATED_DELTA_KEY_DIM];
  s.value_dim = op[GATED_DELTA_VALUE_DIM];
  s.decays = 1;
  s.conv = op[GATED_DELTA_CONV];
  s.out = op[GATED_DELTA_OUT];
  s.state = op[GATED_DELTA_STATE];
  s.qk = (float *)run->shared;
  s.gates = s.qk + run->call->rows * 2 * s.key_heads * s.key_dim;
  return s;
}
static pl_delta kda_shape(const pl_run *run, const int32_t *op) {
  pl_delta s = {.key_heads = op[KDA_HEADS], .value_heads = op[KDA_HEADS]};
  s.key_dim = s.value_dim = s.decays = op[KDA_DIM];
  s.conv = op[KDA_CONV];
  s.out = op[KDA_OUT];
  s.state = op[KDA_STATE];
  s.qk = (float *)run->shared;
  s.gates = s.qk + run->call->rows * 2 * s.key_heads * s.key_dim;
  return s;
}
INLINE int64_t delta_conv_width(const pl_delta *s) {
  return 2 * s->key_heads * s->key_dim + s->value_heads * s->value_dim;
}

INLINE float *delta_gates(const pl_delta *s, int64_t row, int64_t head) {
  return s->gates + (row * s->value_heads + head) * (s->decays + 1);
}

/* Query head or key head `which` of a row, normed. */
INLINE void delta_normed(const pl_run *run, const pl_delta *s, int64_t row, int64_t which, int mtplx) {
  const pl_plan *plan = run->plan;
  const float *x = pl_at(run, s->conv, row, delta_conv_width(s)) + which * s->key_dim;
  float *out = s->qk + (row * 2 * s->key_heads + which) * s->key_dim;
  const f32x16 scale = v_set(1.0f / sqrtf(pl_dot(x, x, s->key_dim) + (float)1e-6));
  float root = (float)(1.0 / sqrt((double)s->key_dim));
  if (mtplx) root = pl_act(plan, root);
  FOR_LANES (i, left, s->key_dim) {
    int lanes = LANES_LEFT(left);
    f32x16 n = v_mul(v_load_n(x + i, lanes), scale);
    if (mtplx) n = v_act(plan, n);
    if (which < s->key_heads) {
      n = v_mul(n, v_set(root));
      if (mtplx) n = v_act(plan, n);
    }
    v_store_n(out + i, n, lanes);
  }
}

INLINE float delta_beta(const pl_run *run, int32_t buffer, int64_t row, int64_t heads, int64_t head) {
  float beta[16];
  v_store(beta, v_sigma(run->plan, v_set(pl_at(run, buffer, row, heads)[head])));
  return beta[0];
}

static pl_stage delta_gates_prepare(const pl_run *run, const int32_t *op) {
  pl_delta s = delta_shape(run, op);
  return (pl_stage){(int64_t)run->call->rows * (2 * s.key_heads + s.value_heads), 60};
}
static void delta_gates_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_plan *plan = run->plan;
  const pl_delta s = delta_shape(run, op);
  const int64_t units = 2 * s.key_heads + s.value_heads;
  for (int64_t unit = from; unit < to; unit++) {
    const int64_t row = unit / units, which = unit % units, h = which - 2 * s.key_heads;
    if (h < 0) {
      delta_normed(run, &s, row, which, plan->mtplx);
      continue;
    }
    float *gates = delta_gates(&s, row, h);
    float sum = pl_at(run, op[GATED_DELTA_A], row, s.value_heads)[h] + pl_vector(run, op[GATED_DELTA_DT_BIAS])[h];
    if (plan->mtplx) sum = pl_act(plan, sum);
    float g = pl_vector(run, op[GATED_DELTA_NEG_EXP_A])[h] * (float)pl_softplus_f64((double)sum);
    gates[0] = g == g ? (float)pl_exp_f64((double)g) : g;
    gates[1] = delta_beta(run, op[GATED_DELTA_B], row, s.value_heads, h);
  }
}

static pl_stage kda_gates_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){(int64_t)run->call->rows * 3 * op[KDA_HEADS], 60 + op[KDA_DIM] * 1.0};
}
static void kda_gates_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_delta s = kda_shape(run, op);
  const int64_t heads = s.value_heads, dim = s.key_dim, units = 3 * heads;
  const float bound = pl_float(op[KDA_BOUND]);
  for (int64_t unit = from; unit < to; unit++) {
    const int64_t row = unit / units, which = unit % units, h = which - 2 * heads;
    if (h < 0) {
      delta_normed(run, &s, row, which, 0);
      continue;
    }
    float *gates = delta_gates(&s, row, h);
    const float *f = pl_at(run, op[KDA_F], row, heads * dim) + h * dim;
    const float *bias = pl_vector(run, op[KDA_DT_BIAS]) + h * dim, a = pl_vector(run, op[KDA_EXP_A])[h];
    FOR_LANES (i, left, dim) {
      int lanes = LANES_LEFT(left);
      f32x16 g = v_add(v_load_n(f + i, lanes), v_load_n(bias + i, lanes));
      if (bound != 0.0f) {
        g = v_mul(v_set(-bound), v_sigmoid(v_mul(v_set(a), g)));
      } else {
        float z[16];
        v_store(z, g);
        for (int c = 0; c < lanes; c++) z[c] = (float)pl_softplus_f64((double)z[c]);
        g = v_mul(v_set(-a), v_load(z));
      }
      v_store_n(gates + i, v_exp(g), lanes);
    }
    gates[dim] = delta_beta(run, op[KDA_B], row, heads, h);
  }
}

/* ---- second stage: the recurrence; a unit is (sequence, value head, columns) ---- */

enum { DELTA_VECTORS = 4, DELTA_COLUMNS = DELTA_VECTORS * 16 };

static pl_stage delta_stage(const pl_run *run, const pl_delta *s) {
  int64_t cuts = pl_ceil_div(s->value_dim, DELTA_COLUMNS);
  double rows = (double)run->call->rows / run->call->sequence_count;
  return (pl_stage){run->call->sequence_count * s->value_heads * cuts, 50 + (rows + 3) * (double)s->key_dim * 3.5};
}
static pl_stage delta_prepare(const pl_run *run, const int32_t *op) {
  const pl_delta s = delta_shape(run, op);
  return delta_stage(run, &s);
}
static pl_stage kda_prepare(const pl_run *run, const int32_t *op) {
  const pl_delta s = kda_shape(run, op);
  return delta_stage(run, &s);
}

/* One token`s vectors for one head. */
typedef struct {
  const float *q, *k, *decays;
  float beta;
} pl_delta_token;

/*
 * S = decay * S from `in` to `to`; kv += k * S. The vectors are `nv` (a constant) wide, the last `lanes` of them used.
 * `channels` (a constant): every key channel has a decay of its own.
 */
INLINE void delta_decay(const int nv, const int channels, const pl_delta_token *t, int64_t key_dim, const float *in, int64_t in_stride,
                        float *to, int lanes, f32x16 *kv) {
  const f32x16 one = v_set(t->decays[0]);
  f32x16 sum[DELTA_VECTORS];
  UNROLL
  for (int c = 0; c < nv; c++) sum[c] = v_zero();
  for (int64_t i = 0; i < key_dim; i++) {
    const f32x16 k = v_set(t->k[i]), decay = channels ? v_set(t->decays[i]) : one;
    UNROLL
    for (int c = 0; c < nv; c++) {
      f32x16 s = v_mul(decay, v_load_n(in + i * in_stride + c * 16, c == nv - 1 ? lanes : 16));
      sum[c] = v_fma(k, s, sum[c]);
      v_store(to + i * DELTA_COLUMNS + c * 16, s);
    }
  }
  UNROLL
  for (int c = 0; c < nv; c++) kv[c] = sum[c];
}

/* S = fma(k, delta, S); o += q * S; written to `to`. */
INLINE void delta_update(const int nv, const pl_delta_token *t, int64_t key_dim, const float *in, float *to,
                         int64_t to_stride, int lanes, const f32x16 *delta, f32x16 *o) {
  f32x16 sum[DELTA_VECTORS], d[DELTA_VECTORS];
  UNROLL
  for (int c = 0; c < nv; c++) {
    sum[c] = v_zero();
    d[c] = delta[c];
  }
  for (int64_t i = 0; i < key_dim; i++) {
    const f32x16 k = v_set(t->k[i]), q = v_set(t->q[i]);
    UNROLL
    for (int c = 0; c < nv; c++) {
      f32x16 s = v_fma(k, d[c], v_load(in + i * DELTA_COLUMNS + c * 16));
      sum[c] = v_fma(q, s, sum[c]);
      v_store_n(to + i * to_stride + c * 16, s, c == nv - 1 ? lanes : 16);
    }
  }
  UNROLL
  for (int c = 0; c < nv; c++) o[c] = sum[c];
}

/* The update of one token and the decay of the next in one pass. */
INLINE void delta_step(const int nv, const int channels, const pl_delta_token *t, const pl_delta_token *next, int64_t key_dim, float *state,
                       const f32x16 *delta, f32x16 *o, f32x16 *kv) {
  const f32x16 one = v_set(next->decays[0]);
  f32x16 out[DELTA_VECTORS], sum[DELTA_VECTORS], d[DELTA_VECTORS];
  UNROLL
  for (int c = 0; c < nv; c++) {
    out[c] = v_zero();
    sum[c] = v_zero();
    d[c] = delta[c];
  }
  for (int64_t i = 0; i < key_dim; i++) {
    const f32x16 k = v_set(t->k[i]), q = v_set(t->q[i]), k2 = v_set(next->k[i]);
    const f32x16 decay = channels ? v_set(next->decays[i]) : one;
    UNROLL
    for (int c = 0; c < nv; c++) {
      float *at = state + i * DELTA_COLUMNS + c * 16;
      f32x16 s = v_fma(k, d[c], v_load(at));
      out[c] = v_fma(q, s, out[c]);
      s = v_mul(decay, s);
      sum[c] = v_fma(k2, s, sum[c]);
      v_store(at, s);
    }
  }
  UNROLL
  for (int c = 0; c < nv; c++) {
    o[c] = out[c];
    kv[c] = sum[c];
  }
}

INLINE pl_delta_token delta_token(const pl_delta *s, int64_t row, int64_t head) {
  const int64_t key_head = head / (s->value_heads / s->key_heads);
  const float *q = s->qk + (row * 2 * s->key_heads + key_head) * s->key_dim;
  const float *gates = delta_gates(s, row, head);
  return (pl_delta_token){q, q + s->key_heads * s->key_dim, gates, gates[s->decays]};
}

/* `nv` vectors of columns from `column`, the last of them `lanes` wide, through all rows of a sequence. */
INLINE void delta_columns(const int nv, const int channels, const pl_run *run, const pl_delta *s,
                          const pl_sequence *sequence, int64_t head, int64_t column, int lanes, float *state) {
  const int64_t at = head * s->key_dim * s->value_dim + column, conv_width = delta_conv_width(s);
  const float *in = (const float *)(sequence->fixed_in + s->state) + at;
  float *fresh = (float *)(sequence->fixed_out + s->state) + at;
  const int64_t end = sequence->row_start + sequence->row_count;
  f32x16 kv[DELTA_VECTORS], delta[DELTA_VECTORS], o[DELTA_VECTORS];
  pl_delta_token token = delta_token(s, sequence->row_start, head);
  delta_decay(nv, channels, &token, s->key_dim, in, s->value_dim, state, lanes, kv);
  for (int64_t row = sequence->row_start; row < end; row++) {
    const float *v = pl_at(run, s->conv, row, conv_width) + 2 * s->key_heads * s->key_dim +
                     head * s->value_dim + column;
    const f32x16 beta = v_set(token.beta);
    UNROLL
    for (int c = 0; c < nv; c++) {
      delta[c] = v_mul(beta, v_sub(v_load_n(v + c * 16, c == nv - 1 ? lanes : 16), kv[c]));
    }
    if (row + 1 < end) {
      pl_delta_token next = delta_token(s, row + 1, head);
      delta_step(nv, channels, &token, &next, s->key_dim, state, delta, o, kv);
      token = next;
    } else {
      delta_update(nv, &token, s->key_dim, state, fresh, s->value_dim, lanes, delta, o);
    }
    float *out = pl_at(run, s->out, row, s->value_heads * s->value_dim) + head * s->value_dim + column;
    UNROLL
    for (int c = 0; c < nv; c++) v_store_n(out + c * 16, v_act(run->plan, o[c]), c == nv - 1 ? lanes : 16);
  }
}

INLINE void delta_units(const int channels, const pl_run *run, const pl_delta *s, int64_t from, int64_t to,
                        float *state) {
  const int64_t cuts = pl_ceil_div(s->value_dim, DELTA_COLUMNS);
  for (int64_t unit = from; unit < to; unit++) {
    const pl_sequence *sequence = &run->call->sequences[unit / (s->value_heads * cuts)];
    const int64_t head = unit / cuts % s->value_heads, column = unit % cuts * DELTA_COLUMNS;
    const int64_t columns = pl_min(DELTA_COLUMNS, s->value_dim - column), vectors = pl_ceil_div(columns, 16);
    const int lanes = (int)(columns - (vectors - 1) * 16);
    if (vectors == 4)
      delta_columns(4, channels, run, s, sequence, head, column, lanes, state);
    else if (vectors == 3)
      delta_columns(3, channels, run, s, sequence, head, column, lanes, state);
    else if (vectors == 2)
      delta_columns(2, channels, run, s, sequence, head, column, lanes, state);
    else
      delta_columns(1, channels, run, s, sequence, head, column, lanes, state);
  }
}

static void delta_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  const pl_delta s = delta_shape(run, op);
  delta_units(0, run, &s, from, to, (float *)scratch);
}
static void kda_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  const pl_delta s = kda_shape(run, op);
  delta_units(1, run, &s, from, to, (float *)scratch);
}

#endif
