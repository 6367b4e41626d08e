/* The op table's rules for attention over rows that are keys and values, and for pooling: a part of plan-check.c. */
#ifndef PL_PLAN_CHECK_LATENT_H
#define PL_PLAN_CHECK_LATENT_H

#include "plan-fields.h"

static bool check_rope_tail(pl_check *c, const int32_t *op) {
  const int32_t heads = op[ROPE_TAIL_HEADS], dim = op[ROPE_TAIL_DIM];
  return rows_field(c, op[ROPE_TAIL_ROWS]) && any_size(c, "heads", heads) && any_size(c, "dim", dim) &&
         rope(c, op[ROPE_TAIL_ROPE], op[ROPE_TAIL_ROTARY], dim) && bit_field(c, "inverse", op[ROPE_TAIL_INVERSE]) &&
         buffer(c, "in", op[ROPE_TAIL_IN], PL_SAME, rows_of(c, op[ROPE_TAIL_ROWS]), times(heads, dim)) &&
         buffer(c, "out", op[ROPE_TAIL_OUT], PL_OUT, rows_of(c, op[ROPE_TAIL_ROWS]), times(heads, dim));
}

static bool check_pool(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t channels = op[POOL_CHANNELS], window = op[POOL_WINDOW], rotary = op[POOL_ROTARY];
  if (!size_field(c, "channels", channels, PL_MAX_DIM) || !any_size(c, "window", window) ||
      !divides(c, "window", window, "pageTokens", c->plan->page_tokens) || !bit_field(c, "overlap", op[POOL_OVERLAP])) {
    return false;
  }
  const int64_t width = (1ll + op[POOL_OVERLAP]) * channels, slots = (1ll + op[POOL_OVERLAP]) * window;
  if (op[POOL_ROPE] == -1 ? rotary < 0 && !pl_refuse(c, "rotary = %d is negative", rotary)
                          : !rope(c, op[POOL_ROPE], rotary, channels)) {
    return false;
  }
  const int64_t bytes = slots * 16 * 4 + (channels + 16) * 4;
  if (bytes > c->plan->pool_bytes) c->plan->pool_bytes = bytes;
  return vector(c, "ape", op[POOL_APE], times(window, width)) && positive_float(c, "eps", op[POOL_EPS]) &&
         (op[POOL_GAIN] == -1 || vector(c, "gain", op[POOL_GAIN], channels)) &&
         fixed(c, "state", op[POOL_STATE], times(2 * slots, width)) &&
         page(c, "pooled", op[POOL_POOLED], times(c->plan->page_tokens / window, channels)) &&
         buffer(c, "values", op[POOL_VALUES], PL_IN, R, width) && buffer(c, "gates", op[POOL_GATES], PL_IN, R, width);
}

/* Fields of a selection of blocks; without one, block may be 0 and only then need not fit a page. */
static bool selection(pl_check *c, int32_t select, int32_t block, int32_t budget, int64_t R) {
  if (select != -1) {
    return block_fits(c, block) && any_size(c, "budgetBlocks", budget) &&
           buffer(c, "select", select, PL_IN, R, 1ll + budget);
  }
  return (block >= 0 && budget >= 0) || pl_refuse(c, "block or budgetBlocks is negative");
}

/* Remembers how many keys a row may have: a window, and one for every so many tokens. */
static void keys_of(pl_plan *plan, int64_t window, int64_t block) {
  if (window > plan->latent_window) plan->latent_window = window;
  if (block > 0 && (plan->latent_block == 0 || block < plan->latent_block)) plan->latent_block = block;
}

static bool check_window_attention(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t heads = op[WINDOW_ATTENTION_HEADS], dim = op[WINDOW_ATTENTION_DIM];
  const int32_t window = op[WINDOW_ATTENTION_WINDOW], block = op[WINDOW_ATTENTION_BLOCK];
  if (!any_size(c, "heads", heads) || !head_dim(c, dim) || !any_size(c, "window", window) ||
      !selection(c, op[WINDOW_ATTENTION_SELECT], block, op[WINDOW_ATTENTION_BUDGET_BLOCKS], R) ||
      (block > 0 && !block_fits(c, block))) {
    return false;
  }
  keys_of(c->plan, window, block);
  const int64_t elements = block > 0 ? times(c->plan->page_tokens / block, dim) : 0;
  return positive_float(c, "scale", op[WINDOW_ATTENTION_SCALE]) &&
         (op[WINDOW_ATTENTION_SINK] == -1 || vector(c, "sink", op[WINDOW_ATTENTION_SINK], heads)) &&
         fixed(c, "state", op[WINDOW_ATTENTION_STATE], times(window, dim)) &&
         page(c, "compressed", op[WINDOW_ATTENTION_COMPRESSED], elements) &&
         buffer(c, "q", op[WINDOW_ATTENTION_Q], PL_IN, R, times(heads, dim)) &&
         buffer(c, "kv", op[WINDOW_ATTENTION_KV], PL_IN, R, dim) &&
         buffer(c, "out", op[WINDOW_ATTENTION_OUT], PL_OUT, R, times(heads, dim));
}

static bool check_latent_attention(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t heads = op[LATENT_ATTENTION_HEADS], dim = op[LATENT_ATTENTION_DIM];
  if (!any_size(c, "heads", heads) || !head_dim(c, dim) || !bit_field(c, "tail", op[LATENT_ATTENTION_TAIL]) ||
      !selection(c, op[LATENT_ATTENTION_SELECT], op[LATENT_ATTENTION_BLOCK], op[LATENT_ATTENTION_BUDGET_BLOCKS], R)) {
    return false;
  }
  keys_of(c->plan, 0, 1);
  return positive_float(c, "scale", op[LATENT_ATTENTION_SCALE]) &&
         page(c, "latent", op[LATENT_ATTENTION_LATENT], times(c->plan->page_tokens, dim)) &&
         buffer(c, "q", op[LATENT_ATTENTION_Q], PL_IN, R, times(heads, dim)) &&
         buffer(c, "out", op[LATENT_ATTENTION_OUT], PL_OUT, R, times(heads, dim));
}

static bool check_latent_store(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t dim = op[LATENT_STORE_DIM];
  return any_size(c, "dim", dim) && page(c, "latent", op[LATENT_STORE_LATENT], times(c->plan->page_tokens, dim)) &&
         buffer(c, "in", op[LATENT_STORE_IN], PL_IN, R, dim);
}

#endif
