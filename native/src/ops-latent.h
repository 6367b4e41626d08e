/*
 * Attention whose keys are their own values, one row for all heads: over a window of recent rows and compressed rows of
 * the past, or over one row a token; and the rotation of the ends of heads.
 *
 * Invariants: a unit is (row, part of its heads). The keys of a row form one list; scores are lane dots over spans of
 * keys that lie together, the softmax total is summed by rank in the list, every output element adds its keys one by
 * one in list order, so neither span nor tile touches the bits. The window is read from the input slab and written
 * whole to the output slab in a stage of its own.
 */
#ifndef PL_OPS_LATENT_H
#define PL_OPS_LATENT_H

#include "ops-attention.h"

/* Turns `rotary` elements in adjacent pairs in place; `table` is the row of their position. */
INLINE void pl_rope_pairs(const pl_plan *plan, float *x, int64_t rotary, const float *table, int inverse) {
  const int64_t half = rotary / 2;
  FOR_LANES (i, left, half) {
    const int lanes = LANES_LEFT(left);
    float even[16] = {0}, odd[16] = {0};
    for (int j = 0; j < lanes; j++) {
      even[j] = x[2 * (i + j)];
      odd[j] = x[2 * (i + j) + 1];
    }
    f32x16 a = v_load(even), b = v_load(odd);
    pl_turn(plan, &a, &b, v_load_n(table + i, lanes), v_load_n(table + half + i, lanes), inverse);
    v_store(even, a);
    v_store(odd, b);
    for (int j = 0; j < lanes; j++) {
      x[2 * (i + j)] = even[j];
      x[2 * (i + j) + 1] = odd[j];
    }
  }
}

/* ---- ropeTail: a unit is a head of a row ---- */

static pl_stage rope_tail_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){pl_row_count(run, op[ROPE_TAIL_ROWS]) * op[ROPE_TAIL_HEADS],
                    10 + op[ROPE_TAIL_DIM] * 0.05 + op[ROPE_TAIL_ROTARY] * 0.5};
}
static void rope_tail_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_call *call = run->call;
  const int64_t heads = op[ROPE_TAIL_HEADS], dim = op[ROPE_TAIL_DIM], rotary = op[ROPE_TAIL_ROTARY];
  const int64_t held = op[ROPE_TAIL_ROWS] > 1 ? op[ROPE_TAIL_ROWS] : 1; /* rows of a row of the trunk */
  for (int64_t unit = from; unit < to; unit++) {
    const int64_t row = unit / heads;
    const int64_t position = call->positions[op[ROPE_TAIL_ROWS] == 1 ? call->selected[row] : row / held];
    float *out = pl_at(run, op[ROPE_TAIL_OUT], unit, dim);
    if (op[ROPE_TAIL_IN] != op[ROPE_TAIL_OUT]) {
      memcpy(out, pl_at(run, op[ROPE_TAIL_IN], unit, dim), (size_t)dim * 4);
    }
    const float *table = pl_vector(run, op[ROPE_TAIL_ROPE]) + position * rotary;
    pl_rope_pairs(run->plan, out + dim - rotary, rotary, table, op[ROPE_TAIL_INVERSE]);
  }
}

/* ---- latentStore: a unit is a row ---- */

static pl_stage latent_store_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){run->call->rows, 10 + op[LATENT_STORE_DIM] * 0.05};
}
static void latent_store_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const pl_plan *plan = run->plan;
  const int64_t dim = op[LATENT_STORE_DIM];
  for (int64_t row = from; row < to; row++) {
    const int64_t position = run->call->positions[row];
    uint8_t *page = run->call->sequences[run->call->sequence_of_row[row]].pages[position / plan->page_tokens];
    pl_store_kv(plan, page + op[LATENT_STORE_LATENT], position % plan->page_tokens * dim,
                pl_at(run, op[LATENT_STORE_IN], row, dim), dim);
  }
}

/* ---- rings: rows of a state by position mod their number ---- */

/* The newest position below `end` that a slot of a ring of `slots` belongs to; negative: no token has been there. */
INLINE int64_t ring_position(int64_t slot, int64_t slots, int64_t end) {
  const int64_t last = end - 1;
  if (slot > last) return -1;
  return last - (last - slot) % slots;
}

/* ---- the list of keys of a row ---- */

typedef struct {
  /* `near` rows from position `first` on: of the ring before position `start`, then of the call. */
  const float *ring, *fresh;
  int64_t window, start, first, near;
  /* Behind them rows of the pages: `list` names them, or NULL: 0, 1, 2, ... */
  uint8_t *const *pages;
  const int32_t *list;
  int64_t base, page_rows;
  int64_t count, dim; /* count: of all keys */
} pl_keys;

/* Rows of at most `most` keys from `rank` on that lie together; `n` says how many. */
static pl_matrix keys_span(const pl_plan *plan, const pl_keys *k, int64_t rank, int64_t most, int64_t *n) {
  if (rank < k->near) {
    const int64_t position = k->first + rank, left = pl_min(most, k->near - rank);
    if (position >= k->start) {
      *n = left;
      return (pl_matrix){(const uint8_t *)(k->fresh + (position - k->start) * k->dim), k->dim, DTYPE_F32, NO_PAIRS};
    }
    const int64_t slot = position % k->window;
    *n = pl_min(left, pl_min(k->window - slot, k->start - position));
    return (pl_matrix){(const uint8_t *)(k->ring + slot * k->dim), k->dim, DTYPE_F32, NO_PAIRS};
  }
  const pl_visible rows = {k->list, k->count - k->near, k->page_rows};
  const int64_t row = visible_token(&rows, rank - k->near);
  *n = visible_span(&rows, rank - k->near, most);
  const int64_t at = row % k->page_rows * k->dim * pl_kv_bytes(plan);
  return (pl_matrix){k->pages[row / k->page_rows] + k->base + at, k->dim, plan->kv_type ? DTYPE_BF16 : DTYPE_F32, NO_PAIRS};
}

typedef struct {
  int64_t heads, dim, part, parts, stride;
} pl_latent;

/* How the heads of a row with at most `most` keys are cut. */
static pl_latent latent_shape(const pl_run *run, int64_t heads, int64_t dim, int64_t most) {
  pl_latent s = {.heads = heads, .dim = dim, .stride = (most + 16) / 16 * 16 + 16};
  int64_t pairs = ATTENTION_BYTES / (s.stride * 4);
  pairs = pairs < TILE_ROWS ? TILE_ROWS : pairs > ATTENTION_ROWS ? ATTENTION_ROWS : pairs;
  s.part = pl_min(heads, pairs);
  while (s.part > 1 && run->call->rows * pl_ceil_div(heads, s.part) < 2 * run->threads) s.part = pl_ceil_div(s.part, 2);
  s.parts = pl_ceil_div(heads, s.part);
  return s;
}
static pl_stage latent_stage(const pl_run *run, const pl_latent *s, int64_t most) {
  return (pl_stage){run->call->rows * s->parts, 200 + (double)s->part * (double)most * (double)s->dim * 0.03};
}

/* Scratch beside the dot products': scores of a unit's heads, and one row's list of keys. */
static int64_t latent_scratch_bytes(const pl_plan *plan, const pl_call *call) {
  if (plan->latent_block == 0 && plan->latent_window == 0) return 0;
  const int64_t positions = (int64_t)call->max_position + 1;
  const int64_t far = plan->latent_block ? positions / plan->latent_block : 0;
  const int64_t stride = (pl_min(plan->latent_window, positions) + far + 16) / 16 * 16 + 16;
  const int64_t scores = TILE_ROWS * stride * 4 > ATTENTION_BYTES ? TILE_ROWS * stride * 4 : ATTENTION_BYTES;
  return scores + positions * 4 + 4096;
}

/*
 * Softmax attention of `heads` queries, dim elements each from q on, to out. `sinks` belong to these heads, or NULL.
 */
static void attend_keys(const pl_run *run, const pl_latent *s, const pl_keys *keys, const float *q, int64_t heads,
                        float scale, const float *sinks, float *out, uint8_t *memory) {
  const pl_plan *plan = run->plan;
  pl_dot_scratch *scratch = (pl_dot_scratch *)memory;
  float *scores = (float *)(memory + sizeof(pl_dot_scratch));
  const int64_t dim = s->dim;
  for (int64_t h = 0; h < heads; h++) scratch->rows[h] = q + h * dim;
  for (int64_t rank = 0, n; rank < keys->count; rank += n) {
    const pl_matrix rows = keys_span(plan, keys, rank, keys->count, &n);
    dot_rows(scratch->rows, (int)heads, &rows, 0, n, scores + rank, s->stride, scratch);
  }
  for (int64_t h = 0; h < heads; h++) {
    float *list = scores + h * s->stride;
    attention_scale(plan, list, keys->count, scale);
    if (sinks) list[keys->count] = sinks[h];
    attention_softmax(plan, list, keys->count + (sinks ? 1 : 0));
  }
  memset(out, 0, (size_t)(heads * dim) * 4);
  for (int64_t rank = 0, n; rank < keys->count; rank += n) {
    const pl_matrix rows = keys_span(plan, keys, rank, VALUE_SPAN, &n);
    const int kv_type = rows.dtype == DTYPE_F32 ? 0 : 1;
    int64_t h = 0;
    for (; h + TILE_ROWS <= heads; h += TILE_ROWS) {
      value_rows_4(kv_type, scores + h * s->stride + rank, s->stride, rows.data, dim, n, out + h * dim, dim);
    }
    for (; h < heads; h++) {
      value_rows_1(kv_type, scores + h * s->stride + rank, s->stride, rows.data, dim, n, out + h * dim, dim);
    }
  }
  FOR_LANES (i, left, heads * dim) {
    int lanes = LANES_LEFT(left);
    v_store_n(out + i, v_act(plan, v_load_n(out + i, lanes)), lanes);
  }
}

/* ---- windowAttention ---- */

static int64_t window_most(const pl_run *run, const int32_t *op) {
  const int64_t positions = (int64_t)run->call->max_position + 1;
  int64_t far = op[WINDOW_ATTENTION_BLOCK] ? positions / op[WINDOW_ATTENTION_BLOCK] : 0;
  if (op[WINDOW_ATTENTION_SELECT] >= 0) far = pl_min(far, op[WINDOW_ATTENTION_BUDGET_BLOCKS]);
  return pl_min(op[WINDOW_ATTENTION_WINDOW], positions) + far;
}
static pl_latent window_shape(const pl_run *run, const int32_t *op) {
  return latent_shape(run, op[WINDOW_ATTENTION_HEADS], op[WINDOW_ATTENTION_DIM], window_most(run, op));
}
static pl_stage window_attention_prepare(const pl_run *run, const int32_t *op) {
  const pl_latent s = window_shape(run, op);
  return latent_stage(run, &s, window_most(run, op));
}

/* The keys of a row; a selection is copied to `list`, entries that could not be there left out. */
static pl_keys window_keys(const pl_run *run, const int32_t *op, int64_t row, int32_t *list) {
  const pl_plan *plan = run->plan;
  const pl_sequence *sequence = &run->call->sequences[run->call->sequence_of_row[row]];
  const int64_t position = run->call->positions[row], block = op[WINDOW_ATTENTION_BLOCK];
  pl_keys k = {.window = op[WINDOW_ATTENTION_WINDOW], .dim = op[WINDOW_ATTENTION_DIM]};
  k.ring = (const float *)(sequence->fixed_in + op[WINDOW_ATTENTION_STATE]);
  k.fresh = pl_at(run, op[WINDOW_ATTENTION_KV], sequence->row_start, k.dim);
  k.start = sequence->start_position;
  k.near = pl_min(position + 1, k.window);
  k.first = position + 1 - k.near;
  k.count = k.near;
  if (block == 0) return k;
  k.pages = sequence->pages;
  k.base = op[WINDOW_ATTENTION_COMPRESSED];
  k.page_rows = plan->page_tokens / block;
  const int64_t complete = (position + 1) / block, budget = op[WINDOW_ATTENTION_BUDGET_BLOCKS];
  const int32_t *select = NULL;
  if (op[WINDOW_ATTENTION_SELECT] >= 0)
    select = (const int32_t *)pl_at(run, op[WINDOW_ATTENTION_SELECT], row, 1 + budget);
  if (select && select[0] != -1) {
    k.list = list;
    k.count += list_selected(select, budget, 1, complete, list);
  } else {
    k.count += select ? pl_min(complete, budget) : complete; /* more only where a foreign list says all */
  }
  return k;
}

static void window_attention_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  const pl_latent s = window_shape(run, op);
  int32_t *list = (int32_t *)(scratch + sizeof(pl_dot_scratch)) + s.part * s.stride;
  for (int64_t unit = from; unit < to; unit++) {
    const int64_t row = unit / s.parts, head = unit % s.parts * s.part;
    const pl_keys keys = window_keys(run, op, row, list);
    const float *sinks = op[WINDOW_ATTENTION_SINK] < 0 ? NULL : pl_vector(run, op[WINDOW_ATTENTION_SINK]) + head;
    attend_keys(run, &s, &keys, pl_at(run, op[WINDOW_ATTENTION_Q], row, s.heads * s.dim) + head * s.dim,
                pl_min(s.part, s.heads - head), pl_float(op[WINDOW_ATTENTION_SCALE]), sinks,
                pl_at(run, op[WINDOW_ATTENTION_OUT], row, s.heads * s.dim) + head * s.dim, scratch);
  }
}

/* Second stage: a unit is a slot of a sequence's ring. */
static pl_stage window_keep_prepare(const pl_run *run, const int32_t *op) {
  return (pl_stage){(int64_t)run->call->sequence_count * op[WINDOW_ATTENTION_WINDOW],
                    5 + op[WINDOW_ATTENTION_DIM] * 0.05};
}
static void window_keep_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t window = op[WINDOW_ATTENTION_WINDOW], dim = op[WINDOW_ATTENTION_DIM];
  const size_t bytes = (size_t)dim * 4;
  for (int64_t unit = from; unit < to; unit++) {
    const pl_sequence *sequence = &run->call->sequences[unit / window];
    const int64_t slot = unit % window, start = sequence->start_position;
    const int64_t position = ring_position(slot, window, start + sequence->row_count);
    const int64_t at = op[WINDOW_ATTENTION_STATE] + slot * (int64_t)bytes;
    if (position < 0)
      memset(sequence->fixed_out + at, 0, bytes);
    else if (position >= start)
      memcpy(sequence->fixed_out + at, pl_at(run, op[WINDOW_ATTENTION_KV], sequence->row_start + position - start, dim),
             bytes);
    else
      memmove(sequence->fixed_out + at, sequence->fixed_in + at, bytes);
  }
}

/* ---- latentAttention ---- */

static int64_t latent_most(const pl_run *run, const int32_t *op) {
  const int64_t positions = (int64_t)run->call->max_position + 1;
  if (op[LATENT_ATTENTION_SELECT] < 0) return positions;
  return pl_min(positions, (1ll + op[LATENT_ATTENTION_BUDGET_BLOCKS]) * op[LATENT_ATTENTION_BLOCK]);
}
static pl_latent latent_attention_shape(const pl_run *run, const int32_t *op) {
  return latent_shape(run, op[LATENT_ATTENTION_HEADS], op[LATENT_ATTENTION_DIM], latent_most(run, op));
}
static pl_stage latent_attention_prepare(const pl_run *run, const int32_t *op) {
  const pl_latent s = latent_attention_shape(run, op);
  return latent_stage(run, &s, latent_most(run, op));
}

static pl_keys latent_keys(const pl_run *run, const int32_t *op, int64_t row, int32_t *list) {
  const pl_sequence *sequence = &run->call->sequences[run->call->sequence_of_row[row]];
  const int64_t visible = (int64_t)run->call->positions[row] + 1, block = op[LATENT_ATTENTION_BLOCK];
  pl_keys k = {.pages = sequence->pages,
               .base = op[LATENT_ATTENTION_LATENT],
               .page_rows = run->plan->page_tokens,
               .count = visible,
               .dim = op[LATENT_ATTENTION_DIM]};
  if (op[LATENT_ATTENTION_SELECT] < 0) return k;
  const int64_t budget = op[LATENT_ATTENTION_BUDGET_BLOCKS];
  const int32_t *select = (const int32_t *)pl_at(run, op[LATENT_ATTENTION_SELECT], row, 1 + budget);
  const int64_t complete = visible / block, end = op[LATENT_ATTENTION_TAIL] ? visible : complete * block;
  if (select[0] == -1) {
    k.count = pl_min(end, (1 + budget) * block); /* less only where a foreign list says all */
    return k;
  }
  k.list = list;
  k.count = list_selected(select, budget, block, complete, list);
  for (int64_t t = complete * block; t < end; t++) list[k.count++] = (int32_t)t;
  return k;
}

static void latent_attention_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  const pl_latent s = latent_attention_shape(run, op);
  int32_t *list = (int32_t *)(scratch + sizeof(pl_dot_scratch)) + s.part * s.stride;
  for (int64_t unit = from; unit < to; unit++) {
    const int64_t row = unit / s.parts, head = unit % s.parts * s.part;
    const pl_keys keys = latent_keys(run, op, row, list);
    attend_keys(run, &s, &keys, pl_at(run, op[LATENT_ATTENTION_Q], row, s.heads * s.dim) + head * s.dim,
                pl_min(s.part, s.heads - head), pl_float(op[LATENT_ATTENTION_SCALE]), NULL,
                pl_at(run, op[LATENT_ATTENTION_OUT], row, s.heads * s.dim) + head * s.dim, scratch);
  }
}

#endif
