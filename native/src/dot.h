/*
 * Dot products of many rows with many weight rows under the lane law: the heart of linear layers, experts, attention
 * scores and block scores.
 *
 * Invariants: each (row, out) pair has its own sixteen lanes, walked in ascending k with one fused multiply-add each, and
 * its own tree at the end; tiles, chunks and threads only choose which pairs are walked together. Two ways, same bits:
 * `stream` for up to STREAM_MOST rows reads the weights from memory once, several rows of them in flight, and is bound by
 * memory for the first few rows; `panel` for more rows widens TILE_OUTS weight rows at a time into a float32 panel that stays in the first-level cache
 * and walks all rows over it, in blocks of PANEL_K columns between which the lanes rest in memory.
 */
#ifndef PL_DOT_H
#define PL_DOT_H

#include "laws.h"

enum {
  STREAM_ROWS = 4, /* rows of one stream tile */
  STREAM_MOST = VF_LANES == 16 ? 16 : 8,
  STREAM_BYTES = 32768, /* weights that several groups of rows walk one after the other, from the first-level cache */
  TILE_ROWS = 4,
  ROW_BLOCK = 96,  /* rows that share a panel; their inputs stay in the second-level cache */
  OUT_CHUNK = 48,  /* a multiple of every TILE_OUTS and stream width */
  PANEL_K = 1024,
  PREFETCH_BYTES = 768,
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

/*
 * The lanes of `nr` rows by `no` outs, to lanes[(r * stride + o) * 16]; all three leading arguments are constants at every
 * call.
 */
INLINE void stream_tile(const int dtype, const int nr, const int no, const float *const *x, const uint8_t *w,
                        int64_t row_bytes, int64_t k, float *lanes, int64_t stride) {
  f32x16 acc[STREAM_ROWS][8];
  UNROLL for (int r = 0; r < nr; r++) {
    UNROLL for (int o = 0; o < no; o++) acc[r][o] = v_zero();
  }
  const int64_t size = dtype == DTYPE_F32 ? 4 : 2;
  const int64_t whole = k & ~(int64_t)15;
  /*
   * Within a row the line PREFETCH_BYTES ahead; near its end the head of the same row of the next tile, and where rows are
   * short as far ahead as the rows of a long tile are together.
   */
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
    if (ahead < no * PREFETCH_BYTES) ahead = no * PREFETCH_BYTES;
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
    UNROLL for (int o = 0; o < no; o++) v_store(lanes + (r * stride + o) * 16, acc[r][o]);
  }
}

/* All outs: tiles leave their lanes side by side, and one group of trees sums them. */
INLINE void stream_outs(const int dtype, const int nr, const int no, const float *const *x, const uint8_t *w, int64_t k,
                        int64_t count, float *dst, int64_t stride) {
  const int64_t row_bytes = k * (dtype == DTYPE_F32 ? 4 : 2);
  const int group = no > SUM_GROUP ? no : SUM_GROUP; /* a multiple of `no` */
  float lanes[STREAM_ROWS * 16 * 16];
  int64_t o = 0;
  for (; o + group <= count; o += group) {
    UNROLL for (int i = 0; i < group; i += no) {
      stream_tile(dtype, nr, no, x, w + (o + i) * row_bytes, row_bytes, k, lanes + i * 16, group);
    }
    UNROLL for (int r = 0; r < nr; r++) v_sums(lanes + r * group * 16, group, dst + r * stride + o);
  }
  if (o == count) return;
  const int rest = (int)(count - o);
  int i = 0;
  for (; i + no <= rest; i += no) stream_tile(dtype, nr, no, x, w + (o + i) * row_bytes, row_bytes, k, lanes + i * 16, group);
  for (; i < rest; i++) stream_tile(dtype, nr, 1, x, w + (o + i) * row_bytes, row_bytes, k, lanes + i * 16, group);
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

typedef void (*stream_function)(const float *const *, const uint8_t *, int64_t, int64_t, float *, int64_t);
static const stream_function stream_functions[3][STREAM_ROWS] = {
    [DTYPE_F32] = {stream_f32_1, stream_f32_2, stream_f32_3, stream_f32_4},
    [DTYPE_BF16] = {stream_bf16_1, stream_bf16_2, stream_bf16_3, stream_bf16_4},
    [DTYPE_F16] = {stream_f16_1, stream_f16_2, stream_f16_3, stream_f16_4},
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

/* ---- panel ---- */

/*
 * Widens `outs` <= TILE_OUTS weight rows, columns from .. from + n, to panel[group of 16][out][16]; columns past the end
 * are zeros, rows past `outs` repeat the last one. dtype is a constant.
 */
INLINE void pack_rows(const int dtype, float *panel, const uint8_t *first, int64_t row_bytes, int outs, int64_t n) {
  const uint8_t *p[TILE_OUTS];
  UNROLL for (int o = 0; o < TILE_OUTS; o++) p[o] = first + (o < outs ? o : outs - 1) * row_bytes;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16, panel += TILE_OUTS * 16) {
    UNROLL for (int o = 0; o < TILE_OUTS; o++) v_store(panel + o * 16, v_load_weight(dtype, p[o], i));
  }
  if (i == n) return;
  UNROLL for (int o = 0; o < TILE_OUTS; o++) v_store(panel + o * 16, v_load_weight_part(dtype, p[o], i, (int)(n - i)));
}

static void pack_panel(float *panel, const pl_matrix *w, int64_t row, int outs, int64_t from, int64_t n) {
  const int64_t size = pl_dtype_bytes(w->dtype), row_bytes = w->k * size;
  const uint8_t *first = w->data + row * row_bytes + from * size;
  if (w->dtype == DTYPE_BF16) pack_rows(DTYPE_BF16, panel, first, row_bytes, outs, n);
  else if (w->dtype == DTYPE_F32) pack_rows(DTYPE_F32, panel, first, row_bytes, outs, n);
  else pack_rows(DTYPE_F16, panel, first, row_bytes, outs, n);
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

/* Asks for part `part` of `parts` of the next panel's weights, so that packing it does not wait for memory. */
INLINE void prefetch_panel(const pl_matrix *w, int64_t row, int64_t end, int64_t from, int part, int parts) {
  if (from >= w->k) {
    from = 0;
    row += TILE_OUTS;
  }
  const int64_t size = pl_dtype_bytes(w->dtype), columns = w->k - from < PANEL_K ? w->k - from : PANEL_K;
  const int64_t share = (columns * size / parts + 63) / 64 * 64;
  for (int o = 0; o < TILE_OUTS && row + o < end; o++) {
    const uint8_t *p = w->data + ((row + o) * w->k + from) * size + part * share;
    for (int64_t i = 0; i < share; i += 64) __builtin_prefetch(p + i, 0, 2);
  }
}

/* Sums the lanes of `nr` finished rows into dst. */
INLINE void finish_rows(const float *lanes, int nr, int outs, float *dst, int64_t stride) {
  float sums[TILE_ROWS * TILE_OUTS];
  v_sums(lanes, nr * TILE_OUTS, sums);
  for (int r = 0; r < nr; r++) memcpy(dst + r * stride, sums + r * TILE_OUTS, (size_t)outs * 4);
}

static void panel_rows(const float *const *x, int rows, const pl_matrix *w, int64_t row, int64_t count, float *dst,
                       int64_t stride, pl_dot_scratch *scratch) {
  const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
  for (int64_t o = 0; o < count; o += TILE_OUTS) {
    const int outs = (int)(count - o < TILE_OUTS ? count - o : TILE_OUTS);
    for (int64_t from = 0; from < w->k; from += PANEL_K) {
      const int64_t n = w->k - from < PANEL_K ? w->k - from : PANEL_K;
      pack_panel(scratch->panel, w, row + o, outs, from, n);
      for (int r = 0, nr; r < rows; r += nr) {
        float *lanes = scratch->lanes + r * TILE_OUTS * 16;
        nr = r + TILE_ROWS <= rows ? TILE_ROWS : 1;
        if (r % TILE_ROWS == 0) prefetch_panel(w, row + o, row + count, from + PANEL_K, r / TILE_ROWS, tiles);
        if (nr == TILE_ROWS) panel_4(x + r, from, scratch->panel, n, lanes, from == 0);
        else panel_1(x + r, from, scratch->panel, n, lanes, from == 0);
        if (from + n == w->k) finish_rows(lanes, nr, outs, dst + r * stride + o, stride);
      }
    }
  }
}

/* dst[r * stride + o] = dot(x[r], w[from + o]) for r < rows <= ROW_BLOCK, o < count. */
static void dot_rows(const float *const *x, int rows, const pl_matrix *w, int64_t from, int64_t count, float *dst,
                     int64_t stride, pl_dot_scratch *scratch) {
  if (rows > STREAM_MOST) panel_rows(x, rows, w, from, count, dst, stride, scratch);
  else if (rows > 0) stream_rows(x, rows, w, from, count, dst, stride);
}

#endif
