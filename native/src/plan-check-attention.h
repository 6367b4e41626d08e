/* The op table's rules for attention and its indexer: the part of plan-check.c that speaks of pages. */
#ifndef PL_PLAN_CHECK_ATTENTION_H
#define PL_PLAN_CHECK_ATTENTION_H

#include "plan-fields.h"

static bool check_attention_prep(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t heads = op[ATTENTION_PREP_HEADS], kv_heads = op[ATTENTION_PREP_KV_HEADS], dim = op[ATTENTION_PREP_DIM];
  const int64_t elements = times(times(kv_heads, c->plan->page_tokens), dim);
  return any_size(c, "heads", heads) && any_size(c, "kvHeads", kv_heads) &&
         divides(c, "kvHeads", kv_heads, "heads", heads) && head_dim(c, dim) &&
         rope(c, op[ATTENTION_PREP_ROPE], op[ATTENTION_PREP_ROTARY], dim) &&
         positive_float(c, "eps", op[ATTENTION_PREP_EPS]) && vector(c, "qGain", op[ATTENTION_PREP_Q_GAIN], dim) &&
         vector(c, "kGain", op[ATTENTION_PREP_K_GAIN], dim) && page(c, "keys", op[ATTENTION_PREP_KEYS], elements) &&
         page(c, "values", op[ATTENTION_PREP_VALUES], elements) &&
         buffer(c, "q", op[ATTENTION_PREP_Q], PL_IN, R, times(2, times(heads, dim))) &&
         buffer(c, "k", op[ATTENTION_PREP_K], PL_IN, R, times(kv_heads, dim)) &&
         buffer(c, "v", op[ATTENTION_PREP_V], PL_IN, R, times(kv_heads, dim)) &&
         buffer(c, "outQ", op[ATTENTION_PREP_OUT_Q], PL_OUT, R, times(heads, dim));
}

static bool check_index_prep(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t heads = op[INDEX_PREP_HEADS], dim = op[INDEX_PREP_DIM];
  return size_field(c, "heads", heads, PL_MAX_INDEX_HEADS) && head_dim(c, dim) &&
         rope(c, op[INDEX_PREP_ROPE], op[INDEX_PREP_ROTARY], dim) && positive_float(c, "eps", op[INDEX_PREP_EPS]) &&
         vector(c, "qGain", op[INDEX_PREP_Q_GAIN], dim) &&
         page(c, "raw", op[INDEX_PREP_RAW], times(c->plan->page_tokens, dim)) &&
         buffer(c, "qk", op[INDEX_PREP_QK], PL_IN, R, times(heads + 1, dim)) &&
         buffer(c, "outQ", op[INDEX_PREP_OUT_Q], PL_OUT, R, times(heads, dim));
}

static bool check_index_blocks(pl_check *c, const int32_t *op) {
  const int32_t dim = op[INDEX_BLOCKS_DIM], block = op[INDEX_BLOCKS_BLOCK];
  return head_dim(c, dim) && block_fits(c, block) && rope(c, op[INDEX_BLOCKS_ROPE], op[INDEX_BLOCKS_ROTARY], dim) &&
         positive_float(c, "eps", op[INDEX_BLOCKS_EPS]) && vector(c, "kGain", op[INDEX_BLOCKS_K_GAIN], dim) &&
         page(c, "raw", op[INDEX_BLOCKS_RAW], times(c->plan->page_tokens, dim)) &&
         page(c, "blocks", op[INDEX_BLOCKS_BLOCKS], times(c->plan->page_tokens / block, dim));
}

static bool check_index_select(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t heads = op[INDEX_SELECT_HEADS], dim = op[INDEX_SELECT_DIM], block = op[INDEX_SELECT_BLOCK];
  const int32_t budget = op[INDEX_SELECT_BUDGET_BLOCKS];
  c->plan->selects = true;
  return size_field(c, "heads", heads, PL_MAX_INDEX_HEADS) && head_dim(c, dim) && block_fits(c, block) &&
         any_size(c, "budgetBlocks", budget) && positive_float(c, "weightScale", op[INDEX_SELECT_WEIGHT_SCALE]) &&
         positive_float(c, "dotScale", op[INDEX_SELECT_DOT_SCALE]) &&
         (op[INDEX_SELECT_WEIGHTS] == -1 || buffer(c, "weights", op[INDEX_SELECT_WEIGHTS], PL_IN, R, heads)) &&
         page(c, "blocks", op[INDEX_SELECT_BLOCKS], times(c->plan->page_tokens / block, dim)) &&
         buffer(c, "q", op[INDEX_SELECT_Q], PL_IN, R, times(heads, dim)) &&
         buffer(c, "out", op[INDEX_SELECT_OUT], PL_OUT, R, 1ll + budget);
}

static bool check_attention(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t heads = op[ATTENTION_HEADS], kv_heads = op[ATTENTION_KV_HEADS], dim = op[ATTENTION_DIM];
  const int64_t width = times(heads, dim);
  c->plan->attends = true;
  if (!any_size(c, "heads", heads) || !any_size(c, "kvHeads", kv_heads) ||
      !divides(c, "kvHeads", kv_heads, "heads", heads) || !head_dim(c, dim) ||
      !lowering(c, op[ATTENTION_LOWERING], true) || !positive_float(c, "scale", op[ATTENTION_SCALE])) {
    return false;
  }
  const int64_t elements = times(times(kv_heads, c->plan->page_tokens), dim);
  if (!page(c, "keys", op[ATTENTION_KEYS], elements) || !page(c, "values", op[ATTENTION_VALUES], elements))
    return false;
  if (op[ATTENTION_SELECT] == -1) {
    if (op[ATTENTION_BLOCK] < 0 || op[ATTENTION_BUDGET_BLOCKS] < 0)
      return pl_refuse(c, "block or budgetBlocks is negative");
  } else if (!block_fits(c, op[ATTENTION_BLOCK]) || !any_size(c, "budgetBlocks", op[ATTENTION_BUDGET_BLOCKS]) ||
             !buffer(c, "select", op[ATTENTION_SELECT], PL_IN, R, 1ll + op[ATTENTION_BUDGET_BLOCKS])) {
    return false;
  }
  return buffer(c, "q", op[ATTENTION_Q], PL_IN, R, width) &&
         buffer(c, "packed", op[ATTENTION_PACKED], PL_IN, R, times(2, width)) &&
         buffer(c, "out", op[ATTENTION_OUT], PL_OUT, R, width);
}

#endif
