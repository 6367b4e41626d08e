/*
 * Dot products of many rows with many weight rows under the lane law: the heart of linear layers, experts, attention
 * scores and block scores.
 *
 * Invariants: each (row, out) pair has its own sixteen lanes, walked in ascending k with one fused multiply-add each, and
 * its own tree at the end; tiles, chunks and threads only choose which pairs are walked together. Two ways, same bits:
 * `stream` for up to STREAM_ROWS rows reads the weights once, several rows of them in flight, and is bound by memory;
 * `panel` for more rows widens TILE_OUTS weight rows at a time into a float32 panel that stays in the first-level cache
 * and walks all rows over it, in blocks of PANEL_K columns between which the lanes rest in memory.
 */
#ifndef PL_DOT_H
#define PL_DOT_H

#include "laws.h"

enum {
  STREAM_ROWS = 4,
  TILE_ROWS = 4,
  ROW_BLOCK = 96,  /* rows that share a panel; their inputs stay in the second-level cache */
  OUT_CHUNK = 48,  /* a multiple of every TILE_OUTS and stream width */
  PANEL_K = 1024,
  PREFETCH_BYTES = 1024,
};

/* Rows of weights, `k` elements each, one after the other. */
typedef struct {
  const uint8_t *data;
  int64_t k;
  int32_t dtype;
} pl_matrix;

/* One thread's scratch for dot products. */
typedef struct {
  float panel[TILE_OUTS * PANEL_K];
  float lanes[ROW_BLOCK * TILE_OUTS * 16];
  float dots[2][ROW_BLOCK * OUT_CHUNK];
  const float *rows[ROW_BLOCK];
  int32_t list[ROW_BLOCK];
} pl_dot_scratch;

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

/* ---- stream ---- */

/* `nr` rows by `no` outs; all three leading arguments are constants at every call. */
INLINE void stream_tile(const int dtype, const int nr, const int no, const float *const *x, const uint8_t *w,
                        int64_t row_bytes, int64_t k, float *dst, int64_t stride) {
  f32x16 acc[STREAM_ROWS][8];
  UNROLL for (int r = 0; r < nr; r++) {
    UNROLL for (int o = 0; o < no; o++) acc[r][o] = v_zero();
  }
  const int64_t size = dtype == DTYPE_F32 ? 4 : 2;
  const int64_t whole = k & ~(int64_t)15;
  /* Within a row the line PREFETCH_BYTES ahead; near its end the head of the same row of the next tile. */
  int64_t ahead = PREFETCH_BYTES;
  int64_t turn = row_bytes > PREFETCH_BYTES ? (row_bytes - PREFETCH_BYTES) / size & ~(int64_t)31 : 0;
  int64_t i = 0;
  for (int leg = 0; leg < 2; leg++) {
    int64_t end = leg == 0 ? (turn < whole ? turn : whole) : whole;
    for (; i + 32 <= end; i += 32) {
      UNROLL for (int o = 0; o < no; o++) {
        const uint8_t *row = w + o * row_bytes;
        PREFETCH(row + i * size + ahead);
        if (dtype == DTYPE_F32) PREFETCH(row + i * size + ahead + 64);
      }
      UNROLL for (int half = 0; half < 32; half += 16) {
        f32x16 xv[STREAM_ROWS];
        UNROLL for (int r = 0; r < nr; r++) xv[r] = v_load(x[r] + i + half);
        UNROLL for (int o = 0; o < no; o++) {
          f32x16 wv = v_load_weight(dtype, w + o * row_bytes, i + half);
          UNROLL for (int r = 0; r < nr; r++) acc[r][o] = v_fma(wv, xv[r], acc[r][o]);
        }
      }
    }
    ahead = PREFETCH_BYTES + (no - 1) * row_bytes;
  }
  for (; i < whole; i += 16) {
    UNROLL for (int o = 0; o < no; o++) {
      f32x16 wv = v_load_weight(dtype, w + o * row_bytes, i);
      UNROLL for (int r = 0; r < nr; r++) acc[r][o] = v_fma(wv, v_load(x[r] + i), acc[r][o]);
    }
  }
  if (whole < k) {
    int left = (int)(k - whole);
    UNROLL for (int o = 0; o < no; o++) {
      f32x16 wv = v_load_weight_part(dtype, w + o * row_bytes, whole, left);
      UNROLL for (int r = 0; r < nr; r++) acc[r][o] = v_fma(wv, v_load_part(x[r] + whole, left), acc[r][o]);
    }
  }
  UNROLL for (int r = 0; r < nr; r++) {
    UNROLL for (int o = 0; o < no; o++) dst[r * stride + o] = v_sum(acc[r][o]);
  }
}

INLINE void stream_outs(const int dtype, const int nr, const int no, const float *const *x, const uint8_t *w, int64_t k,
                        int64_t count, float *dst, int64_t stride) {
  const int64_t row_bytes = k * (dtype == DTYPE_F32 ? 4 : 2);
  int64_t o = 0;
  for (; o + no <= count; o += no) stream_tile(dtype, nr, no, x, w + o * row_bytes, row_bytes, k, dst + o, stride);
  for (; o < count; o++) stream_tile(dtype, nr, 1, x, w + o * row_bytes, row_bytes, k, dst + o, stride);
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

typedef void (*stream_function)(const float *const *, const uint8_t *, int64_t, int64_t, float *, int64_t);
static const stream_function stream_functions[3][STREAM_ROWS] = {
    [DTYPE_F32] = {stream_f32_1, stream_f32_2, stream_f32_3, stream_f32_4},
    [DTYPE_BF16] = {stream_bf16_1, stream_bf16_2, stream_bf16_3, stream_bf16_4},
    [DTYPE_F16] = {stream_f16_1, stream_f16_2, stream_f16_3, stream_f16_4},
};

/* ---- panel ---- */

/* Widens `count` <= TILE_OUTS weight rows, columns from .. from + n, to panel[group of 16][out][16]; zeros elsewhere. */
static void pack_panel(float *panel, const pl_matrix *w, int64_t row, int count, int64_t from, int64_t n) {
  const int64_t row_bytes = w->k * pl_dtype_bytes(w->dtype);
  for (int o = 0; o < TILE_OUTS; o++) {
    const uint8_t *p = w->data + (row + o) * row_bytes;
    float *to = panel + o * 16;
    for (int64_t i = 0; i < n; i += 16, to += TILE_OUTS * 16) {
      f32x16 v;
      if (o >= count) v = v_zero();
      else if (i + 16 <= n) v = v_load_weight(w->dtype, p, from + i);
      else v = v_load_weight_part(w->dtype, p, from + i, (int)(n - i));
      v_store(to, v);
    }
  }
}

/* nr rows (a constant) over one panel; `lanes` [row][out][16] hold what came before, unless `first`. */
INLINE void panel_tile(const int nr, const float *const *x, int64_t from, const float *panel, int64_t n, float *lanes,
                       int first) {
  for (int part = 0; part < VF_PARTS; part++) {
    vf acc[TILE_ROWS][TILE_OUTS];
    float *rest = lanes + part * VF_LANES;
    UNROLL for (int r = 0; r < nr; r++) {
      UNROLL for (int o = 0; o < TILE_OUTS; o++) acc[r][o] = first ? vf_zero() : vf_load(rest + (r * TILE_OUTS + o) * 16);
    }
    const float *w = panel + part * VF_LANES;
    const float *in[TILE_ROWS];
    UNROLL for (int r = 0; r < nr; r++) in[r] = x[r] + from + part * VF_LANES;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16, w += TILE_OUTS * 16) {
      vf xv[TILE_ROWS];
      UNROLL for (int r = 0; r < nr; r++) xv[r] = vf_load(in[r] + i);
      UNROLL for (int o = 0; o < TILE_OUTS; o++) {
        vf wv = vf_load(w + o * 16);
        UNROLL for (int r = 0; r < nr; r++) acc[r][o] = vf_fma(wv, xv[r], acc[r][o]);
      }
    }
    if (i < n) {
      float tail[16];
      UNROLL for (int r = 0; r < nr; r++) {
        v_store(tail, v_load_part(x[r] + from + i, (int)(n - i)));
        vf xv = vf_load(tail + part * VF_LANES);
        UNROLL for (int o = 0; o < TILE_OUTS; o++) acc[r][o] = vf_fma(vf_load(w + o * 16), xv, acc[r][o]);
      }
    }
    UNROLL for (int r = 0; r < nr; r++) {
      UNROLL for (int o = 0; o < TILE_OUTS; o++) vf_store(rest + (r * TILE_OUTS + o) * 16, acc[r][o]);
    }
  }
}

static __attribute__((noinline)) void panel_4(const float *const *x, int64_t from, const float *panel, int64_t n,
                                              float *lanes, int first) {
  panel_tile(4, x, from, panel, n, lanes, first);
}
static __attribute__((noinline)) void panel_1(const float *const *x, int64_t from, const float *panel, int64_t n,
                                              float *lanes, int first) {
  panel_tile(1, x, from, panel, n, lanes, first);
}

static void panel_rows(const float *const *x, int rows, const pl_matrix *w, int64_t row, int64_t count, float *dst,
                       int64_t stride, pl_dot_scratch *scratch) {
  for (int64_t o = 0; o < count; o += TILE_OUTS) {
    int outs = (int)(count - o < TILE_OUTS ? count - o : TILE_OUTS);
    for (int64_t from = 0; from < w->k; from += PANEL_K) {
      int64_t n = w->k - from < PANEL_K ? w->k - from : PANEL_K;
      pack_panel(scratch->panel, w, row + o, outs, from, n);
      int r = 0;
      for (; r + TILE_ROWS <= rows; r += TILE_ROWS) {
        panel_4(x + r, from, scratch->panel, n, scratch->lanes + r * TILE_OUTS * 16, from == 0);
      }
      for (; r < rows; r++) panel_1(x + r, from, scratch->panel, n, scratch->lanes + r * TILE_OUTS * 16, from == 0);
    }
    for (int r = 0; r < rows; r++) {
      const float *lanes = scratch->lanes + r * TILE_OUTS * 16;
      for (int i = 0; i < outs; i++) dst[r * stride + o + i] = v_sum(v_load(lanes + i * 16));
    }
  }
}

/* dst[r * stride + o] = dot(x[r], w[from + o]) for r < rows <= ROW_BLOCK, o < count. */
static void dot_rows(const float *const *x, int rows, const pl_matrix *w, int64_t from, int64_t count, float *dst,
                     int64_t stride, pl_dot_scratch *scratch) {
  if (rows > STREAM_ROWS) {
    panel_rows(x, rows, w, from, count, dst, stride, scratch);
    return;
  }
  if (rows <= 0) return;
  const uint8_t *data = w->data + from * w->k * pl_dtype_bytes(w->dtype);
  stream_functions[w->dtype][rows - 1](x, data, w->k, count, dst, stride);
}

#endif
