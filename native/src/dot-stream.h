/*
 * Dot products of a few rows: the weights are read from memory once, several rows of them in flight, and widened in
 * registers. See dot.h.
 */
#ifndef PL_DOT_STREAM_H
#define PL_DOT_STREAM_H

#include "laws.h"

enum {
  STREAM_ROWS = 4, /* rows of one stream tile */
  MOST_TILE = 16,  /* rows by outs of one tile */
  STREAM_MOST = VF_LANES == 16 ? 16 : 8,
  STREAM_BYTES = 32768, /* weights that several groups of rows walk one after the other, from the first-level cache */
  PREFETCH_BYTES = 768, /* for one row; several rows keep the core busy longer, and look further ahead */
};

/* Whether a matrix is walked in pairs (dot-pairs.h): no weights; weights that nobody looked at; weights that fit. */
typedef enum { NO_PAIRS, PERHAPS_PAIRS, FIT_PAIRS } pl_pairing;

/* Rows of weights, `k` elements each, one after the other. */
typedef struct {
  const uint8_t *data;
  int64_t k;
  int32_t dtype;
  pl_pairing pairs;
} pl_matrix;

/* Beside the dtypes: bfloat16 weights, with rows that are pairs (dot-pairs.h) behind their pointers. */
enum { DTYPE_PAIRS = DTYPE_F16 + 1, DTYPES };

INLINE f32x16 v_load_weight(const int dtype, const uint8_t *p, int64_t i) {
  if (dtype == DTYPE_F32) return v_load((const float *)p + i);
  if (dtype == DTYPE_BF16) return v_load_bf16((const uint16_t *)p + i);
  return v_load_f16((const uint16_t *)p + i);
}
INLINE f32x16 v_load_weight_part(const int dtype, const uint8_t *p, int64_t i, int n) {
  if (dtype == DTYPE_F32) return v_load_part((const float *)p + i, n);
  if (dtype == DTYPE_BF16) return v_load_bf16_part((const uint16_t *)p + i, n);
  return v_load_f16_part((const uint16_t *)p + i, n);
}

/* The lanes of `nr` rows by `no` outs, to acc[r * no + o]; all three leading arguments are constants at every call. */
INLINE void stream_tile(const int dtype, const int nr, const int no, const float *const *x, const uint8_t *w,
                        int64_t row_bytes, int64_t k, f32x16 *acc) {
  UNROLL
  for (int i = 0; i < nr * no; i++) acc[i] = v_zero();
  const int64_t size = dtype == DTYPE_F32 ? 4 : 2;
  const int64_t whole = k & ~(int64_t)15;
  const int64_t distance = nr > 1 ? 2 * PREFETCH_BYTES : PREFETCH_BYTES;
  /*
   * Within a row the line `distance` ahead; near its end the head of the same row of the next tile, and where rows
   * are short as far ahead as the rows of a long tile are together.
   */
  int64_t ahead = distance;
  int64_t turn = row_bytes > distance ? (row_bytes - distance) / size & ~(int64_t)31 : 0;
  int64_t i = 0;
  for (int leg = 0; leg < 2; leg++) {
    int64_t end = leg == 0 ? (turn < whole ? turn : whole) : whole;
    for (; i + 32 <= end; i += 32) {
      UNROLL
      for (int o = 0; o < no; o++) {
        const uint8_t *row = w + o * row_bytes;
        PREFETCH(row + i * size + ahead);
        if (dtype == DTYPE_F32) PREFETCH(row + i * size + ahead + 64);
      }
#if PL_PAIR_PRODUCTS
      if (dtype == DTYPE_PAIRS) {
        f32x16 xv[STREAM_ROWS];
        UNROLL
        for (int r = 0; r < nr; r++) xv[r] = v_load(x[r] + i / 2);
        UNROLL
        for (int o = 0; o < no; o++) {
          f32x16 wv = v_load_weight_pairs((const uint16_t *)(w + o * row_bytes) + i);
          UNROLL
          for (int r = 0; r < nr; r++) acc[r * no + o] = v_fma_pairs(wv, xv[r], acc[r * no + o]);
        }
        continue;
      }
#endif
#if PL_WIDENS_PAIRS
      if (dtype == DTYPE_BF16) {
        f32x16 xv[STREAM_ROWS][2];
        UNROLL
        for (int r = 0; r < nr; r++) {
          xv[r][0] = v_load(x[r] + i);
          xv[r][1] = v_load(x[r] + i + 16);
        }
        UNROLL
        for (int o = 0; o < no; o++) {
          f32x16 low, high;
          v_load_bf16_pair((const uint16_t *)(w + o * row_bytes) + i, &low, &high);
          UNROLL
          for (int r = 0; r < nr; r++) acc[r * no + o] = v_fma(low, xv[r][0], acc[r * no + o]);
          UNROLL
          for (int r = 0; r < nr; r++) acc[r * no + o] = v_fma(high, xv[r][1], acc[r * no + o]);
        }
        continue;
      }
#endif
      UNROLL
      for (int half = 0; half < 32; half += 16) {
        f32x16 xv[STREAM_ROWS];
        UNROLL
        for (int r = 0; r < nr; r++) xv[r] = v_load(x[r] + i + half);
        UNROLL
        for (int o = 0; o < no; o++) {
          f32x16 wv = v_load_weight(dtype, w + o * row_bytes, i + half);
          UNROLL
          for (int r = 0; r < nr; r++) acc[r * no + o] = v_fma(wv, xv[r], acc[r * no + o]);
        }
      }
    }
    ahead = distance + (no - 1) * row_bytes;
    if (ahead < no * distance) ahead = no * distance;
  }
  for (; i < whole; i += 16) {
    UNROLL
    for (int o = 0; o < no; o++) {
      f32x16 wv = v_load_weight(dtype, w + o * row_bytes, i);
      UNROLL
      for (int r = 0; r < nr; r++) acc[r * no + o] = v_fma(wv, v_load(x[r] + i), acc[r * no + o]);
    }
  }
  if (whole < k) {
    int left = (int)(k - whole);
    UNROLL
    for (int o = 0; o < no; o++) {
      f32x16 wv = v_load_weight_part(dtype, w + o * row_bytes, whole, left);
      UNROLL
      for (int r = 0; r < nr; r++) acc[r * no + o] = v_fma(wv, v_load_part(x[r] + whole, left), acc[r * no + o]);
    }
  }
}

/* A tile whose lanes go to lanes[(r * stride + o) * 16]. */
INLINE void stream_lanes(const int dtype, const int nr, const int no, const float *const *x, const uint8_t *w,
                         int64_t row_bytes, int64_t k, float *lanes, int64_t stride) {
  f32x16 acc[MOST_TILE];
  stream_tile(dtype, nr, no, x, w, row_bytes, k, acc);
  UNROLL
  for (int r = 0; r < nr; r++) {
    UNROLL
    for (int o = 0; o < no; o++) v_store(lanes + (r * stride + o) * 16, acc[r * no + o]);
  }
}

/*
 * All outs. Where a tile of several rows is about as large as a group of trees, its lanes are summed in their registers;
 * else tiles leave them side by side, and one group of trees sums them.
 */
INLINE void stream_outs(const int dtype, const int nr, const int no, const float *const *x, const uint8_t *w, int64_t k,
                        int64_t count, float *dst, int64_t stride) {
  const int64_t row_bytes = k * (dtype == DTYPE_F32 ? 4 : 2);
  const int group = no > SUM_GROUP ? no : SUM_GROUP; /* a multiple of `no` */
  _Alignas(64) float lanes[STREAM_ROWS * 16 * 16];
  int64_t o = 0;
#if SUM_GROUP == 16
  if (nr > 1) {
    for (; o + no <= count; o += no) {
      f32x16 acc[16];
      stream_tile(dtype, nr, no, x, w + o * row_bytes, row_bytes, k, acc);
      UNROLL
      for (int i = nr * no; i < 16; i++) acc[i] = v_zero();
      v_store(lanes, v_sum_sixteen(acc));
      UNROLL
      for (int r = 0; r < nr; r++) memcpy(dst + r * stride + o, lanes + r * no, (size_t)no * 4);
    }
  }
#endif
  for (; o + group <= count; o += group) {
    UNROLL
    for (int i = 0; i < group; i += no) {
      stream_lanes(dtype, nr, no, x, w + (o + i) * row_bytes, row_bytes, k, lanes + i * 16, group);
    }
    UNROLL
    for (int r = 0; r < nr; r++) v_sums(lanes + r * group * 16, group, dst + r * stride + o);
  }
  if (o == count) return;
  const int rest = (int)(count - o);
  int i = 0;
  for (; i + no <= rest; i += no)
    stream_lanes(dtype, nr, no, x, w + (o + i) * row_bytes, row_bytes, k, lanes + i * 16, group);
  for (; i < rest; i++) stream_lanes(dtype, nr, 1, x, w + (o + i) * row_bytes, row_bytes, k, lanes + i * 16, group);
  for (int r = 0; r < nr; r++) v_sums(lanes + r * group * 16, rest, dst + r * stride + o);
}

#if VF_LANES == 16
enum { STREAM_OUTS_1 = 8, STREAM_OUTS_2 = 8, STREAM_OUTS_3 = 4, STREAM_OUTS_4 = 4 };
#else
enum { STREAM_OUTS_1 = 4, STREAM_OUTS_2 = 2, STREAM_OUTS_3 = 2, STREAM_OUTS_4 = 1 };
#endif

/* Not inlined: twelve tiles of registers each. */
#define STREAM_FUNCTION(name, dtype, nr, no) \
  static __attribute__((noinline)) void name(const float *const *x, const uint8_t *w, int64_t k, int64_t count, \
                                             float *dst, int64_t stride) { \
    stream_outs(dtype, nr, no, x, w, k, count, dst, stride); \
  }
STREAM_FUNCTION(stream_f32_1, DTYPE_F32, 1, STREAM_OUTS_1)
STREAM_FUNCTION(stream_f32_2, DTYPE_F32, 2, STREAM_OUTS_2)
STREAM_FUNCTION(stream_f32_3, DTYPE_F32, 3, STREAM_OUTS_3)
STREAM_FUNCTION(stream_f32_4, DTYPE_F32, 4, STREAM_OUTS_4)
STREAM_FUNCTION(stream_bf16_1, DTYPE_BF16, 1, STREAM_OUTS_1)
STREAM_FUNCTION(stream_bf16_2, DTYPE_BF16, 2, STREAM_OUTS_2)
STREAM_FUNCTION(stream_bf16_3, DTYPE_BF16, 3, STREAM_OUTS_3)
STREAM_FUNCTION(stream_bf16_4, DTYPE_BF16, 4, STREAM_OUTS_4)
STREAM_FUNCTION(stream_f16_1, DTYPE_F16, 1, STREAM_OUTS_1)
STREAM_FUNCTION(stream_f16_2, DTYPE_F16, 2, STREAM_OUTS_2)
STREAM_FUNCTION(stream_f16_3, DTYPE_F16, 3, STREAM_OUTS_3)
STREAM_FUNCTION(stream_f16_4, DTYPE_F16, 4, STREAM_OUTS_4)
#if PL_PAIR_PRODUCTS
STREAM_FUNCTION(stream_pairs_1, DTYPE_PAIRS, 1, STREAM_OUTS_1)
STREAM_FUNCTION(stream_pairs_2, DTYPE_PAIRS, 2, STREAM_OUTS_2)
STREAM_FUNCTION(stream_pairs_3, DTYPE_PAIRS, 3, STREAM_OUTS_3)
STREAM_FUNCTION(stream_pairs_4, DTYPE_PAIRS, 4, STREAM_OUTS_4)
#endif

typedef void (*stream_function)(const float *const *, const uint8_t *, int64_t, int64_t, float *, int64_t);
static const stream_function stream_functions[DTYPES][STREAM_ROWS] = {
    [DTYPE_F32] = {stream_f32_1, stream_f32_2, stream_f32_3, stream_f32_4},
    [DTYPE_BF16] = {stream_bf16_1, stream_bf16_2, stream_bf16_3, stream_bf16_4},
    [DTYPE_F16] = {stream_f16_1, stream_f16_2, stream_f16_3, stream_f16_4},
#if PL_PAIR_PRODUCTS
    [DTYPE_PAIRS] = {stream_pairs_1, stream_pairs_2, stream_pairs_3, stream_pairs_4},
#endif
};

/* Up to STREAM_MOST rows, in groups of STREAM_ROWS over pieces of the weights. */
static void stream_rows(const float *const *x, int rows, const pl_matrix *w, int64_t row, int64_t count, float *dst,
                        int64_t stride) {
  const int64_t row_bytes = w->k * pl_dtype_bytes(w->dtype);
  const uint8_t *data = w->data + row * row_bytes;
  if (rows <= STREAM_ROWS) {
    stream_functions[w->dtype][rows - 1](x, data, w->k, count, dst, stride);
    return;
  }
  int64_t step = STREAM_BYTES / row_bytes / STREAM_OUTS_4 * STREAM_OUTS_4;
  if (step < STREAM_OUTS_4) step = STREAM_OUTS_4;
  for (int64_t o = 0; o < count; o += step) {
    const int64_t n = count - o < step ? count - o : step;
    for (int r = 0; r < rows; r += STREAM_ROWS) {
      const int group = rows - r < STREAM_ROWS ? rows - r : STREAM_ROWS;
      stream_functions[w->dtype][group - 1](x + r, data + o * row_bytes, w->k, n, dst + r * stride + o, stride);
    }
  }
}

#endif
