/*
 * Pooling of windows of tokens into one row each, every channel with a softmax of its own over the window's slots.
 *
 * Invariants: a pooled row is made by the row that completes its window, from the call's rows and from the ring of the
 * input slab; the ring is written whole to the output slab in a stage of its own.
 */
#ifndef PL_OPS_POOL_H
#define PL_OPS_POOL_H

#include "ops-latent.h"

typedef struct {
  int64_t channels, window, overlap, width, slots; /* slots: of the ring, and of a window with the one before it */
} pl_pool;

static pl_pool pool_shape(const int32_t *op) {
  pl_pool s = {.channels = op[POOL_CHANNELS], .window = op[POOL_WINDOW], .overlap = op[POOL_OVERLAP]};
  s.width = (1 + s.overlap) * s.channels;
  s.slots = (1 + s.overlap) * s.window;
  return s;
}

/* Values (0) or gates (1) of a position: of the call, or of the ring. */
INLINE const float *pool_raw(const pl_run *run, const int32_t *op, const pl_pool *s, const pl_sequence *sequence,
                             int64_t position, int which) {
  if (position >= sequence->start_position) {
    return pl_at(run, op[which ? POOL_GATES : POOL_VALUES], sequence->row_start + position - sequence->start_position,
                 s->width);
  }
  const float *ring = (const float *)(sequence->fixed_in + op[POOL_STATE]);
  return ring + (position % s->slots * 2 + which) * s->width;
}

static pl_stage pool_prepare(const pl_run *run, const int32_t *op) {
  const pl_pool s = pool_shape(op);
  return (pl_stage){run->call->rows, 10 + (double)s.channels * (1 + (double)s.overlap)};
}

/* Sixteen (or `lanes`) channels of the window that begins at `first`; `e` has room for the slots' exponentials. */
static f32x16 pool_channels(const pl_run *run, const int32_t *op, const pl_pool *s, const pl_sequence *sequence,
                            int64_t first, int64_t channel, int lanes, float *e) {
  const float *ape = pl_vector(run, op[POOL_APE]);
  const int64_t before = s->overlap && first > 0 ? s->window : 0, count = before + s->window;
  f32x16 most = v_set(-INFINITY);
  for (int64_t slot = 0; slot < count; slot++) {
    const int64_t column = slot < before ? channel : s->width - s->channels + channel;
    const float *gates = pool_raw(run, op, s, sequence, first - before + slot, 1);
    const float *bias = ape + (slot < before ? slot : slot - before) * s->width;
    f32x16 l = v_add(v_load_n(gates + column, lanes), v_load_n(bias + column, lanes));
    most = v_select(v_gt(l, most), l, most);
    v_store(e + slot * 16, l);
  }
  f32x16 total = v_zero();
  for (int64_t slot = 0; slot < count; slot++) {
    f32x16 x = v_exp(v_sub(v_load(e + slot * 16), most));
    v_store(e + slot * 16, x);
    total = v_add(total, x);
  }
  f32x16 sum = v_zero();
  for (int64_t slot = 0; slot < count; slot++) {
    const int64_t column = slot < before ? channel : s->width - s->channels + channel;
    const float *values = pool_raw(run, op, s, sequence, first - before + slot, 0);
    sum = v_fma(v_div(v_load(e + slot * 16), total), v_load_n(values + column, lanes), sum);
  }
  return v_act(run->plan, sum);
}

static void pool_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  const pl_plan *plan = run->plan;
  const pl_call *call = run->call;
  const pl_pool s = pool_shape(op);
  float *pooled = (float *)scratch, *e = pooled + pl_ceil_div(s.channels, 16) * 16;
  for (int64_t row = from; row < to; row++) {
    const int64_t position = call->positions[row], first = position + 1 - s.window;
    if ((position + 1) % s.window != 0) continue;
    const pl_sequence *sequence = &call->sequences[call->sequence_of_row[row]];
    FOR_LANES (c, left, s.channels) {
      int lanes = LANES_LEFT(left);
      v_store_n(pooled + c, pool_channels(run, op, &s, sequence, first, c, lanes, e), lanes);
    }
    if (op[POOL_GAIN] >= 0)
      pl_norm(plan, pooled, pooled, pl_vector(run, op[POOL_GAIN]), s.channels, pl_float(op[POOL_EPS]));
    if (op[POOL_ROPE] >= 0) {
      const int64_t rotary = op[POOL_ROTARY];
      pl_rope_pairs(plan, pooled + s.channels - rotary, rotary, pl_vector(run, op[POOL_ROPE]) + first * rotary, 0);
    }
    uint8_t *page = sequence->pages[first / plan->page_tokens];
    pl_store_kv(plan, page + op[POOL_POOLED], first % plan->page_tokens / s.window * s.channels, pooled, s.channels);
  }
}

/* Second stage: a unit is a slot of a sequence's ring. */
static pl_stage pool_keep_prepare(const pl_run *run, const int32_t *op) {
  const pl_pool s = pool_shape(op);
  return (pl_stage){run->call->sequence_count * s.slots, 5 + (double)s.width * 0.1};
}
static void pool_keep_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_pool s = pool_shape(op);
  const size_t bytes = (size_t)s.width * 4;
  for (int64_t unit = from; unit < to; unit++) {
    const pl_sequence *sequence = &run->call->sequences[unit / s.slots];
    const int64_t slot = unit % s.slots, end = (int64_t)sequence->start_position + sequence->row_count;
    const int64_t position = ring_position(slot, s.slots, end);
    uint8_t *out = sequence->fixed_out + op[POOL_STATE] + slot * 2 * (int64_t)bytes;
    if (position < 0) {
      memset(out, 0, 2 * bytes);
      continue;
    }
    memmove(out, pool_raw(run, op, &s, sequence, position, 0), bytes);
    memmove(out + bytes, pool_raw(run, op, &s, sequence, position, 1), bytes);
  }
}

#endif
