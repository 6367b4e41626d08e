/*
 * The indexer of sparse attention: raw keys, block keys, and the choice of blocks that a query may see.
 *
 * Invariants: a block key depends on its own tokens only and is written by the row that completes the block; scores
 * without weights are sums of non-negative terms, so they rank by their bits, the others by keys made of their bits;
 * equal scores go to the lower block.
 */
#ifndef PL_OPS_INDEX_H
#define PL_OPS_INDEX_H

#include "ops-attention.h"

/* ---- indexPrep: a unit is a row`s query head, or (last) its raw key ---- */

static pl_stage index_prep_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){(int64_t)run->call->rows * (op[INDEX_PREP_HEADS] + 1), 40 + op[INDEX_PREP_DIM] * 0.2};
}
static void index_prep_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_plan *plan = run->plan;
  const pl_call *call = run->call;
  const int64_t heads = op[INDEX_PREP_HEADS], dim = op[INDEX_PREP_DIM], rotary = op[INDEX_PREP_ROTARY];
  for (int64_t unit = from; unit < to; unit++) {
    const int64_t row = unit / (heads + 1), head = unit % (heads + 1), position = call->positions[row];
    const float *in = pl_at(run, op[INDEX_PREP_QK], row, (heads + 1) * dim) + head * dim;
    if (head < heads) {
      float *out = pl_at(run, op[INDEX_PREP_OUT_Q], row, heads * dim) + head * dim;
      pl_norm(plan, in, out, pl_vector(run, op[INDEX_PREP_Q_GAIN]), dim, pl_float(op[INDEX_PREP_EPS]));
      pl_rope(plan, out, rotary, pl_vector(run, op[INDEX_PREP_ROPE]) + position * rotary);
    } else {
      uint8_t *page = call->sequences[call->sequence_of_row[row]].pages[position / plan->page_tokens];
      pl_store_kv(plan, page + op[INDEX_PREP_RAW], position % plan->page_tokens * dim, in, dim);
    }
  }
}

/* ---- indexBlocks: a unit is a row ---- */

static pl_stage index_blocks_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){run->call->rows, 10 + op[INDEX_BLOCKS_DIM] * 0.3};
}
static void index_blocks_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  const pl_plan *plan = run->plan;
  const pl_call *call = run->call;
  const int64_t dim = op[INDEX_BLOCKS_DIM], block = op[INDEX_BLOCKS_BLOCK], rotary = op[INDEX_BLOCKS_ROTARY];
  float *key = (float *)scratch;
  for (int64_t row = from; row < to; row++) {
    const int64_t position = call->positions[row];
    if ((position + 1) % block != 0) continue;
    const int64_t first = position + 1 - block;
    uint8_t *page = call->sequences[call->sequence_of_row[row]].pages[first / plan->page_tokens];
    const uint8_t *raw = page + op[INDEX_BLOCKS_RAW];
    const int64_t at = first % plan->page_tokens; /* pages hold whole blocks */
    FOR_LANES (i, left, dim) {
      int lanes = LANES_LEFT(left);
      f32x16 sum = v_zero();
      for (int64_t t = 0; t < block; t++) sum = v_add(sum, pl_load_kv(plan->kv_type, raw, (at + t) * dim + i, lanes));
      v_store_n(key + i, v_act(plan, v_div(sum, v_set((float)block))), lanes);
    }
    pl_norm(plan, key, key, pl_vector(run, op[INDEX_BLOCKS_K_GAIN]), dim, pl_float(op[INDEX_BLOCKS_EPS]));
    pl_rope(plan, key, rotary, pl_vector(run, op[INDEX_BLOCKS_ROPE]) + first * rotary);
    pl_store_kv(plan, page + op[INDEX_BLOCKS_BLOCKS], at / block * dim, key, dim);
  }
}

/* ---- indexSelect: a unit is a row ---- */

static pl_stage index_select_prepare(const pl_run *run, const int32_t *op) {
  int64_t blocks = (run->call->max_position + 1) / op[INDEX_SELECT_BLOCK];
  double cost = blocks <= op[INDEX_SELECT_BUDGET_BLOCKS]
                    ? 0
                    : (double)blocks * op[INDEX_SELECT_HEADS] * op[INDEX_SELECT_DIM] * 0.05;
  return (pl_stage){run->call->rows, 10 + cost};
}

/* Scratch beside the dot products`: scores of a row, and dots of its heads with one page of block keys. */
static int64_t index_scratch_bytes(const pl_plan *plan, const pl_call *call) {
  int64_t positions = (int64_t)call->max_position + 1 + plan->page_tokens;
  return plan->selects ? positions * 4 + PL_MAX_INDEX_HEADS * ROW_BLOCK * 4 + (1 << 16) : 0;
}

/* The bits that the `budget`-th greatest of the scores has; they rank as unsigned integers. */
static uint32_t select_threshold(const uint32_t *bits, int64_t count, int64_t budget, int64_t *above) {
  uint32_t prefix = 0, mask = 0;
  *above = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    int64_t histogram[256] = {0};
    for (int64_t i = 0; i < count; i++) {
      if ((bits[i] & mask) == prefix) histogram[(bits[i] >> shift) & 255]++;
    }
    int digit = 255;
    for (; digit > 0 && *above + histogram[digit] < budget; digit--) *above += histogram[digit];
    prefix |= (uint32_t)digit << shift;
    mask |= 255u << shift;
  }
  return prefix;
}

/* Scores of `n` blocks from the dots of every head: their positive parts added. */
INLINE void sum_positive(const float *dots, int64_t heads, int64_t n, float *scores) {
  FOR_LANES (i, left, n) {
    int lanes = LANES_LEFT(left);
    f32x16 score = v_zero();
    for (int64_t h = 0; h < heads; h++) {
      f32x16 d = v_load_n(dots + h * n + i, lanes);
      score = v_add(score, v_select(v_gt(d, v_zero()), d, v_zero()));
    }
    v_store_n(scores + i, score, lanes);
  }
}

/* Keys that rank as unsigned integers the way the scores rank as numbers: NaN as -inf, -0 as +0. */
INLINE void rank_keys(float *scores, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const float score = scores[i] != scores[i] ? -INFINITY : scores[i] + 0.0f;
    uint32_t bits;
    memcpy(&bits, &score, 4);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    memcpy(scores + i, &bits, 4);
  }
}

/* Keys of the scores of `n` blocks, every head with the row's weight. */
INLINE void sum_weighted(const pl_run *run, const int32_t *op, int64_t row, const float *dots, int64_t n,
                         float *scores) {
  const int64_t heads = op[INDEX_SELECT_HEADS];
  const float *weights = pl_at(run, op[INDEX_SELECT_WEIGHTS], row, heads);
  const float weight_scale = pl_float(op[INDEX_SELECT_WEIGHT_SCALE]);
  const f32x16 dot_scale = v_set(pl_float(op[INDEX_SELECT_DOT_SCALE]));
  FOR_LANES (i, left, n) {
    int lanes = LANES_LEFT(left);
    f32x16 score = v_zero();
    for (int64_t h = 0; h < heads; h++) {
      f32x16 d = v_mul(v_load_n(dots + h * n + i, lanes), dot_scale);
      d = v_select(v_gt(d, v_zero()), d, v_zero());
      score = v_fma(v_set(weights[h] * weight_scale), d, score);
    }
    v_store_n(scores + i, score, lanes);
  }
  rank_keys(scores, n);
}

static void index_select_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *memory) {
  const pl_plan *plan = run->plan;
  const pl_call *call = run->call;
  pl_dot_scratch *scratch = (pl_dot_scratch *)memory;
  const int64_t heads = op[INDEX_SELECT_HEADS], dim = op[INDEX_SELECT_DIM], block = op[INDEX_SELECT_BLOCK];
  const int64_t budget = op[INDEX_SELECT_BUDGET_BLOCKS], page_blocks = plan->page_tokens / block;
  float *scores = (float *)(memory + sizeof(pl_dot_scratch));
  float *dots = scores + ((int64_t)call->max_position + 1 + plan->page_tokens) / block + 16;
  for (int64_t row = from; row < to; row++) {
    int32_t *out = (int32_t *)pl_at(run, op[INDEX_SELECT_OUT], row, 1 + budget);
    const int64_t blocks = ((int64_t)call->positions[row] + 1) / block;
    if (blocks <= budget) {
      out[0] = -1;
      continue;
    }
    for (int64_t h = 0; h < heads; h++) scratch->rows[h] = pl_at(run, op[INDEX_SELECT_Q], row, heads * dim) + h * dim;
    uint8_t *const *pages = call->sequences[call->sequence_of_row[row]].pages;
    for (int64_t page = 0; page * page_blocks < blocks; page++) {
      pl_matrix keys = {pages[page] + op[INDEX_SELECT_BLOCKS], dim, plan->kv_type ? DTYPE_BF16 : DTYPE_F32, NO_PAIRS};
      int64_t count = pl_min(page_blocks, blocks - page * page_blocks);
      for (int64_t first = 0; first < count; first += ROW_BLOCK) {
        int64_t n = pl_min(ROW_BLOCK, count - first);
        dot_rows(scratch->rows, (int)heads, &keys, first, n, dots, n, scratch);
        float *to = scores + page * page_blocks + first;
        if (op[INDEX_SELECT_WEIGHTS] < 0)
          sum_positive(dots, heads, n, to);
        else
          sum_weighted(run, op, row, dots, n, to);
      }
    }
    int64_t above, taken = 0;
    const uint32_t *bits = (const uint32_t *)scores;
    const uint32_t threshold = select_threshold(bits, blocks, budget, &above);
    int64_t ties = budget - above;
    out[0] = (int32_t)budget;
    for (int64_t b = 0; b < blocks && taken < budget; b++) {
      if (bits[b] > threshold || (bits[b] == threshold && ties-- > 0)) out[1 + taken++] = (int32_t)b;
    }
  }
}

#endif
