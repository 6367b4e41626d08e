/*
 * Attention over paged keys and values, dense or over selected blocks.
 *
 * Invariants: a unit is (block of rows, kv head, part of its query heads). Scores are lane dots (dot.h), one page span
 * at a time; the softmax total is summed by rank in the visible list; every output element adds its visible tokens one
 * by one in ascending order, so neither the block of rows, nor the span, nor the tile touches the bits. Rows of a block
 * that see fewer tokens than their neighbours leave their own tail out; they never add a zero for it.
 */
#ifndef PL_OPS_ATTENTION_H
#define PL_OPS_ATTENTION_H

#include "dot.h"
#include "ops-pages.h"

enum {
  ATTENTION_ROWS = 48,       /* (row, head) pairs of one unit, unless the context is long */
  ATTENTION_BYTES = 4 << 20, /* scores that a unit may hold, beyond TILE_ROWS pairs */
  VALUE_VECTORS = VF_LANES == 16  ? 6
                  : VF_LANES == 8 ? 2
                                  : 4, /* registers of one pair in a value tile */
  VALUE_SPAN = 64,                     /* tokens between two visits of the accumulators */
};

typedef struct {
  int64_t heads, kv_heads, dim, group, head_part, head_parts, row_block, row_blocks;
  int64_t stride; /* words between the score rows of two pairs */
} pl_attention;

static pl_attention attention_shape(const pl_run *run, const int32_t *op) {
  pl_attention s = {.heads = op[ATTENTION_HEADS], .kv_heads = op[ATTENTION_KV_HEADS], .dim = op[ATTENTION_DIM]};
  s.group = s.heads / s.kv_heads;
  s.stride = ((int64_t)run->call->max_position + 16) / 16 * 16 + 16;
  int64_t pairs = ATTENTION_BYTES / (s.stride * 4);
  pairs = pairs < TILE_ROWS ? TILE_ROWS : pairs > ATTENTION_ROWS ? ATTENTION_ROWS : pairs;
  s.head_part = pl_min(s.group, pairs);
  s.row_block = op[ATTENTION_SELECT] >= 0 ? 1 : pairs / s.head_part;
  const int64_t rows = run->call->rows;
  s.row_block = pl_min(s.row_block, rows);
  /* Few rows: cut the heads of a group, so that every thread has a part. */
  while (pl_ceil_div(rows, s.row_block) * s.kv_heads * pl_ceil_div(s.group, s.head_part) < 2 * run->threads &&
         (s.row_block > 1 || s.head_part > 1)) {
    if (s.row_block > 1)
      s.row_block = pl_ceil_div(s.row_block, 2);
    else
      s.head_part = pl_ceil_div(s.head_part, 2);
  }
  s.head_parts = pl_ceil_div(s.group, s.head_part);
  s.row_blocks = pl_ceil_div(rows, s.row_block);
  return s;
}

/* Scratch beside the dot products': scores and accumulators of a unit's pairs, and one row's visible tokens. */
static int64_t attention_scratch_bytes(const pl_plan *plan, const pl_call *call) {
  int64_t stride = ((int64_t)call->max_position + 16) / 16 * 16 + 16;
  int64_t pairs = ATTENTION_BYTES / (stride * 4);
  pairs = pairs < TILE_ROWS ? TILE_ROWS : pairs > ATTENTION_ROWS ? ATTENTION_ROWS : pairs;
  return pairs * (stride + plan->max_dim + 16) * 4 + stride * 4 + 4096;
}

static pl_stage attention_prepare(const pl_run *run, const int32_t *op) {
  pl_attention s = attention_shape(run, op);
  double cost =
      (double)s.row_block * (double)s.head_part * (double)(run->call->max_position + 1) * (double)s.dim * 0.03;
  return (pl_stage){s.row_blocks * s.kv_heads * s.head_parts, 200 + cost};
}

/* The visible tokens of one row as spans of consecutive tokens in one page. */
typedef struct {
  const int32_t *tokens; /* the list, or NULL: rank = token */
  int64_t count, page_tokens;
} pl_visible;

INLINE int64_t visible_token(const pl_visible *v, int64_t rank) { return v->tokens ? v->tokens[rank] : rank; }
/* Length of the span that starts at `rank`. */
INLINE int64_t visible_span(const pl_visible *v, int64_t rank, int64_t most) {
  int64_t token = visible_token(v, rank), limit = v->page_tokens - token % v->page_tokens;
  limit = pl_min(pl_min(limit, v->count - rank), most);
  if (!v->tokens) return limit;
  int64_t n = 1;
  while (n < limit && v->tokens[rank + n] == token + n) n++;
  return n;
}

/* The tokens of the selected ones of `complete` blocks; returns how many. */
static int64_t list_selected(const int32_t *select, int64_t budget, int64_t block, int64_t complete, int32_t *tokens) {
  int64_t n = 0, next = 0;
  for (int64_t b = 0; b < pl_min(select[0], budget); b++) {
    if (select[1 + b] < next || select[1 + b] >= complete) continue; /* only a foreign list has such entries */
    next = select[1 + b] + 1;
    for (int64_t i = 0; i < block; i++) tokens[n++] = (int32_t)(select[1 + b] * block + i);
  }
  return n;
}

/* s = A(A(dot) * scale), in place over `count` scores. */
static void attention_scale(const pl_plan *plan, float *scores, int64_t count, float scale) {
  const f32x16 factor = v_set(scale);
  FOR_LANES (i, left, count) {
    int lanes = LANES_LEFT(left);
    v_store_n(scores + i, v_act(plan, v_mul(v_act(plan, v_load_n(scores + i, lanes)), factor)), lanes);
  }
}

/* p = A(e / total), in place over `count` scores. */
static void attention_softmax(const pl_plan *plan, float *scores, int64_t count) {
  f32x16 most = v_set(-INFINITY);
  for (int64_t i = 0; i + 16 <= count; i += 16) {
    f32x16 s = v_load(scores + i);
    most = v_select(v_gt(s, most), s, most);
  }
  float m = -INFINITY, lanes16[16];
  v_store(lanes16, most);
  for (int i = 0; i < 16; i++) m = lanes16[i] > m ? lanes16[i] : m;
  for (int64_t i = count & ~(int64_t)15; i < count; i++) m = scores[i] > m ? scores[i] : m;
  const f32x16 greatest = v_set(m);
  f32x16 sums = v_zero();
  FOR_LANES (i, left, count) {
    int lanes = LANES_LEFT(left);
    f32x16 e = v_exp(v_sub(v_load_n(scores + i, lanes), greatest));
    v_store_n(scores + i, e, lanes);
    sums = v_add(sums, lanes == 16 ? e : v_load_part(scores + i, lanes));
  }
  const f32x16 total = v_set(v_sum(sums));
  FOR_LANES (i, left, count) {
    int lanes = LANES_LEFT(left);
    v_store_n(scores + i, v_act(plan, v_div(v_load_n(scores + i, lanes), total)), lanes);
  }
}

/*
 * o[r][c * 16 ..] = fma over `n` tokens of p[r] * value, for `nr` pairs and one register's worth of columns times `nv`;
 * nr, nv and kv_type are constants. `p` and `o` are the first pair's, with their strides.
 */
INLINE void value_tile(const int nr, const int nv, const int kv_type, const float *p, int64_t p_stride,
                       const uint8_t *values, int64_t dim, int64_t n, float *o, int64_t o_stride) {
  vf acc[TILE_ROWS][VALUE_VECTORS];
  UNROLL
  for (int r = 0; r < nr; r++) {
    UNROLL
    for (int c = 0; c < nv; c++) acc[r][c] = vf_load(o + r * o_stride + c * VF_LANES);
  }
  for (int64_t t = 0; t < n; t++) {
    vf v[VALUE_VECTORS];
    UNROLL
    for (int c = 0; c < nv; c++) {
      if (kv_type == 0)
        v[c] = vf_load((const float *)values + t * dim + c * VF_LANES);
      else
        v[c] = vf_load_bf16((const uint16_t *)values + t * dim + c * VF_LANES);
    }
    UNROLL
    for (int r = 0; r < nr; r++) {
      vf weight = vf_set(p[r * p_stride + t]);
      UNROLL
      for (int c = 0; c < nv; c++) acc[r][c] = vf_fma(weight, v[c], acc[r][c]);
    }
  }
  UNROLL
  for (int r = 0; r < nr; r++) {
    UNROLL
    for (int c = 0; c < nv; c++) vf_store(o + r * o_stride + c * VF_LANES, acc[r][c]);
  }
}

/* The same for any number of columns: whole tiles, single registers, then a partial vector. */
INLINE void value_rows(const int nr, const int kv_type, const float *p, int64_t p_stride, const uint8_t *values,
                       int64_t dim, int64_t n, float *o, int64_t o_stride) {
  const int64_t size = kv_type == 0 ? 4 : 2;
  int64_t c = 0;
  for (; c + VALUE_VECTORS * VF_LANES <= dim; c += VALUE_VECTORS * VF_LANES) {
    value_tile(nr, VALUE_VECTORS, kv_type, p, p_stride, values + c * size, dim, n, o + c, o_stride);
  }
  for (; c + VF_LANES <= dim; c += VF_LANES) {
    value_tile(nr, 1, kv_type, p, p_stride, values + c * size, dim, n, o + c, o_stride);
  }
  if (c == dim) return;
  const int rest = (int)(dim - c);
  for (int r = 0; r < nr; r++) {
    f32x16 acc = v_load_part(o + r * o_stride + c, rest);
    for (int64_t t = 0; t < n; t++) {
      acc = v_fma(v_set(p[r * p_stride + t]), pl_load_kv(kv_type, values, t * dim + c, rest), acc);
    }
    v_store_part(o + r * o_stride + c, acc, rest);
  }
}

static __attribute__((noinline)) void value_rows_4(int kv_type, const float *p, int64_t p_stride, const uint8_t *values,
                                                   int64_t dim, int64_t n, float *o, int64_t o_stride) {
  if (kv_type == 0)
    value_rows(4, 0, p, p_stride, values, dim, n, o, o_stride);
  else
    value_rows(4, 1, p, p_stride, values, dim, n, o, o_stride);
}
static __attribute__((noinline)) void value_rows_1(int kv_type, const float *p, int64_t p_stride, const uint8_t *values,
                                                   int64_t dim, int64_t n, float *o, int64_t o_stride) {
  if (kv_type == 0)
    value_rows(1, 0, p, p_stride, values, dim, n, o, o_stride);
  else
    value_rows(1, 1, p, p_stride, values, dim, n, o, o_stride);
}

/* Rows row .. row + rows of one sequence, query heads head .. head + part of one kv head. */
static void attention_block(const pl_run *run, const int32_t *op, const pl_attention *s, int64_t row, int64_t rows,
                            int64_t head, int64_t part, uint8_t *memory) {
  const pl_plan *plan = run->plan;
  const pl_call *call = run->call;
  pl_dot_scratch *scratch = (pl_dot_scratch *)memory;
  float *scores = (float *)(memory + sizeof(pl_dot_scratch));
  const int64_t pairs = rows * part, dim = s->dim, kv = head / s->group;
  const int64_t o_stride = pl_ceil_div(dim, 16) * 16;
  float *o = scores + pairs * s->stride;
  int32_t *list = (int32_t *)(o + pairs * o_stride);
  const pl_sequence *sequence = &call->sequences[call->sequence_of_row[row]];

  pl_visible visible = {NULL, call->positions[row + rows - 1] + 1, plan->page_tokens};
  if (op[ATTENTION_SELECT] >= 0) { /* then rows = 1 */
    const int64_t budget = op[ATTENTION_BUDGET_BLOCKS];
    const int32_t *select = (const int32_t *)pl_at(run, op[ATTENTION_SELECT], row, 1 + budget);
    if (select[0] != -1) {
      const int64_t block = op[ATTENTION_BLOCK], complete = visible.count / block;
      int64_t n = list_selected(select, budget, block, complete, list);
      for (int64_t t = complete * block; t < visible.count; t++) list[n++] = (int32_t)t;
      visible.count = n;
      visible.tokens = list;
    }
  }
  for (int64_t i = 0; i < pairs; i++) {
    scratch->rows[i] = pl_at(run, op[ATTENTION_Q], row + i / part, s->heads * dim) + (head + i % part) * dim;
  }

  const int64_t head_bytes = plan->page_tokens * dim * pl_kv_bytes(plan);
  for (int64_t rank = 0, n; rank < visible.count; rank += n) {
    n = visible_span(&visible, rank, visible.count);
    const int64_t token = visible_token(&visible, rank);
    const uint8_t *page = sequence->pages[token / plan->page_tokens];
    pl_matrix keys = {page + op[ATTENTION_KEYS] + kv * head_bytes, dim, plan->kv_type ? DTYPE_BF16 : DTYPE_F32, NO_PAIRS};
    dot_rows(scratch->rows, (int)pairs, &keys, token % plan->page_tokens, n, scores + rank, s->stride, scratch);
  }

  int64_t seen[ATTENTION_ROWS];
  for (int64_t i = 0; i < pairs; i++) {
    seen[i] = visible.tokens ? visible.count : call->positions[row + i / part] + 1;
    attention_scale(plan, scores + i * s->stride, seen[i], pl_float(op[ATTENTION_SCALE]));
    attention_softmax(plan, scores + i * s->stride, seen[i]);
  }

  memset(o, 0, (size_t)(pairs * o_stride) * 4);
  for (int64_t rank = 0, n; rank < visible.count; rank += n) {
    n = visible_span(&visible, rank, VALUE_SPAN);
    const int64_t token = visible_token(&visible, rank);
    const uint8_t *page = sequence->pages[token / plan->page_tokens];
    const uint8_t *values =
        page + op[ATTENTION_VALUES] + kv * head_bytes + token % plan->page_tokens * dim * pl_kv_bytes(plan);
    /* Rows are in ascending position, so the first pair of a tile sees least. */
    for (int64_t i = 0; i < pairs;) {
      const float *p = scores + i * s->stride + rank;
      float *to = o + i * o_stride;
      if (i + TILE_ROWS <= pairs && seen[i] >= rank + n) {
        value_rows_4(plan->kv_type, p, s->stride, values, dim, n, to, o_stride);
        i += TILE_ROWS;
      } else {
        int64_t own = pl_min(n, seen[i] - rank);
        if (own > 0) value_rows_1(plan->kv_type, p, s->stride, values, dim, own, to, o_stride);
        i++;
      }
    }
  }

  for (int64_t i = 0; i < pairs; i++) {
    const int64_t r = row + i / part, h = head + i % part;
    const float *gates = pl_at(run, op[ATTENTION_PACKED], r, s->heads * 2 * dim) + (2 * h + 1) * dim;
    float *out = pl_at(run, op[ATTENTION_OUT], r, s->heads * dim) + h * dim;
    FOR_LANES (c, left, dim) {
      int lanes = LANES_LEFT(left);
      f32x16 gate = v_gate(plan, v_load_n(gates + c, lanes), op[ATTENTION_LOWERING]);
      f32x16 v = v_act(plan, v_load_n(o + i * o_stride + c, lanes));
      v_store_n(out + c, v_act(plan, v_mul(v, gate)), lanes);
    }
  }
}

static void attention_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  const pl_attention s = attention_shape(run, op);
  const int32_t *sequence_of_row = run->call->sequence_of_row;
  for (int64_t unit = from; unit < to; unit++) {
    const int64_t heads = s.kv_heads * s.head_parts;
    const int64_t kv = unit % heads / s.head_parts, cut = unit % s.head_parts * s.head_part;
    int64_t row = unit / heads * s.row_block;
    const int64_t end = pl_min(row + s.row_block, run->call->rows);
    while (row < end) { /* a block of rows is cut where a sequence ends */
      int64_t rows = 1;
      while (row + rows < end && sequence_of_row[row + rows] == sequence_of_row[row]) rows++;
      attention_block(run, op, &s, row, rows, kv * s.group + cut, pl_min(s.head_part, s.group - cut), scratch);
      row += rows;
    }
  }
}

#endif
