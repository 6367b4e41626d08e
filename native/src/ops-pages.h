/*
 * Heads on their way to attention: norm, rotary position, and the pages that keep keys and values.
 *
 * Invariants: an element of a page has the plan's kv type; a row writes the slot of its own position and no other.
 */
#ifndef PL_OPS_PAGES_H
#define PL_OPS_PAGES_H

#include "ops-basic.h"

/* Writes n values at element `at` of a page section of the plan's kv type. */
INLINE void pl_store_kv(const pl_plan *plan, uint8_t *section, int64_t at, const float *x, int64_t n) {
  FOR_LANES (i, left, n) {
    int lanes = LANES_LEFT(left);
    f32x16 v = v_load_n(x + i, lanes);
    if (plan->kv_type)
      v_store_bf16_part((uint16_t *)section + at + i, v, lanes);
    else
      v_store_n((float *)section + at + i, v, lanes);
  }
}
INLINE f32x16 pl_load_kv(const int kv_type, const uint8_t *section, int64_t at, int lanes) {
  if (kv_type == 0) return v_load_n((const float *)section + at, lanes);
  const uint16_t *p = (const uint16_t *)section + at;
  return lanes >= 16 ? v_load_bf16(p) : v_load_bf16_part(p, lanes);
}
INLINE int64_t pl_kv_bytes(const pl_plan *plan) { return plan->kv_type ? 2 : 4; }

/* Turns the pairs (a, b) in place by angles of these cosines and sines, or back by them. */
INLINE void pl_turn(const pl_plan *plan, f32x16 *a, f32x16 *b, f32x16 c, f32x16 s, int inverse) {
  f32x16 ac = v_mul(*a, c), bs = v_mul(*b, s), bc = v_mul(*b, c), as = v_mul(*a, s);
  if (!plan->mtplx) {
    ac = v_act(plan, ac);
    bs = v_act(plan, bs);
    bc = v_act(plan, bc);
    as = v_act(plan, as);
  }
  *a = v_act(plan, inverse ? v_add(ac, bs) : v_sub(ac, bs));
  *b = v_act(plan, inverse ? v_sub(bc, as) : v_add(bc, as));
}

/* Turns the first `rotary` elements of a head in place; `table` is the row of its position. */
INLINE void pl_rope(const pl_plan *plan, float *x, int64_t rotary, const float *table) {
  const int64_t half = rotary / 2;
  FOR_LANES (i, left, half) {
    int lanes = LANES_LEFT(left);
    f32x16 a = v_load_n(x + i, lanes), b = v_load_n(x + half + i, lanes);
    pl_turn(plan, &a, &b, v_load_n(table + i, lanes), v_load_n(table + half + i, lanes), 0);
    v_store_n(x + i, a, lanes);
    v_store_n(x + half + i, b, lanes);
  }
}

/* ---- attentionPrep ---- */

static pl_stage attention_prep_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){(int64_t)run->call->rows * (op[ATTENTION_PREP_HEADS] + op[ATTENTION_PREP_KV_HEADS]),
                    40 + op[ATTENTION_PREP_DIM] * 0.2};
}
static void attention_prep_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  const pl_plan *plan = run->plan;
  const pl_call *call = run->call;
  const int64_t heads = op[ATTENTION_PREP_HEADS], kv_heads = op[ATTENTION_PREP_KV_HEADS], dim = op[ATTENTION_PREP_DIM];
  const int64_t rotary = op[ATTENTION_PREP_ROTARY], units = heads + kv_heads;
  const float eps = pl_float(op[ATTENTION_PREP_EPS]);
  float *key = (float *)scratch;
  for (int64_t unit = from; unit < to; unit++) {
    const int64_t row = unit / units, head = unit % units, position = call->positions[row];
    const float *table = pl_vector(run, op[ATTENTION_PREP_ROPE]) + position * rotary;
    if (head < heads) {
      const float *q = pl_at(run, op[ATTENTION_PREP_Q], row, heads * 2 * dim) + head * 2 * dim;
      float *out = pl_at(run, op[ATTENTION_PREP_OUT_Q], row, heads * dim) + head * dim;
      pl_norm(plan, q, out, pl_vector(run, op[ATTENTION_PREP_Q_GAIN]), dim, eps);
      pl_rope(plan, out, rotary, table);
      continue;
    }
    const int64_t kv = head - heads;
    pl_norm(plan, pl_at(run, op[ATTENTION_PREP_K], row, kv_heads * dim) + kv * dim, key,
            pl_vector(run, op[ATTENTION_PREP_K_GAIN]), dim, eps);
    pl_rope(plan, key, rotary, table);
    uint8_t *page = call->sequences[call->sequence_of_row[row]].pages[position / plan->page_tokens];
    const int64_t at = (kv * plan->page_tokens + position % plan->page_tokens) * dim;
    pl_store_kv(plan, page + op[ATTENTION_PREP_KEYS], at, key, dim);
    pl_store_kv(plan, page + op[ATTENTION_PREP_VALUES], at,
                pl_at(run, op[ATTENTION_PREP_V], row, kv_heads * dim) + kv * dim, dim);
  }
}

#endif
