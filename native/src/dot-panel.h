/*
 * Dot products of many rows: TILE_OUTS weight rows at a time are widened into a float32 panel, and all rows walk over
 * it. See dot.h.
 */
#ifndef PL_DOT_PANEL_H
#define PL_DOT_PANEL_H

#include "dot-stream.h"

enum {
  TILE_ROWS = 4,
  ROW_BLOCK = 96, /* rows that share a panel; their inputs stay in the second-level cache */
  OUT_CHUNK = 48, /* a multiple of every TILE_OUTS and stream width */
  PANEL_K = 1024,
};

#if PL_PAIR_PRODUCTS
enum { PAIR_WORDS = ROW_BLOCK * 4096 };

/* The rows that were last made into pairs, as long as one piece of work goes on: it does not change its inputs. */
typedef struct {
  int rows; /* 0: none */
  bool fit;
  int64_t k;
  const float *source[ROW_BLOCK], *pairs[ROW_BLOCK];
  float words[PAIR_WORDS];
} pl_paired_rows;
#endif

/* One thread's scratch for dot products. */
typedef struct {
  float panel[TILE_OUTS * PANEL_K];
  float lanes[ROW_BLOCK * TILE_OUTS * 16];
  float dots[2][ROW_BLOCK * OUT_CHUNK];
  const float *rows[ROW_BLOCK];
  int32_t list[ROW_BLOCK];
#if PL_PAIR_PRODUCTS
  pl_paired_rows paired;
#endif
} pl_dot_scratch;

/*
 * Widens `outs` <= TILE_OUTS weight rows, columns from .. from + n, to panel[group of 16][out][16]; columns past the
 * end are zeros, rows past `outs` repeat the last one. dtype is a constant.
 */
INLINE void pack_rows(const int dtype, float *panel, const uint8_t *first, int64_t row_bytes, int outs, int64_t n) {
  const uint8_t *p[TILE_OUTS];
  UNROLL
  for (int o = 0; o < TILE_OUTS; o++) p[o] = first + (o < outs ? o : outs - 1) * row_bytes;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16, panel += TILE_OUTS * 16) {
    UNROLL
    for (int o = 0; o < TILE_OUTS; o++) v_store(panel + o * 16, v_load_weight(dtype, p[o], i));
  }
  if (i == n) return;
  UNROLL
  for (int o = 0; o < TILE_OUTS; o++) v_store(panel + o * 16, v_load_weight_part(dtype, p[o], i, (int)(n - i)));
}

#if PL_PAIR_PRODUCTS
/* The same for pairs, not widened: panel[group of 32][out][16]. False where the weights do not qualify. */
static bool pack_pairs(float *panel, const pl_matrix *w, int64_t row, int outs, int64_t from, int64_t n) {
  const int64_t row_bytes = w->k * 2;
  const uint8_t *first = w->data + row * row_bytes + from * 2;
  uint32_t unfit = 0;
  for (int64_t i = 0; i < n; i += 32, panel += TILE_OUTS * 16) {
    UNROLL
    for (int o = 0; o < TILE_OUTS; o++) {
      const uint8_t *row = first + (o < outs ? o : outs - 1) * row_bytes;
      const f32x16 pairs = v_load_weight_pairs((const uint16_t *)row + i);
      unfit |= v_unfit_pairs(pairs);
      v_store(panel + o * 16, pairs);
    }
  }
  return unfit == 0;
}
#endif

static void pack_panel(float *panel, const pl_matrix *w, int64_t row, int outs, int64_t from, int64_t n) {
  const int64_t size = pl_dtype_bytes(w->dtype), row_bytes = w->k * size;
  const uint8_t *first = w->data + row * row_bytes + from * size;
  if (w->dtype == DTYPE_BF16)
    pack_rows(DTYPE_BF16, panel, first, row_bytes, outs, n);
  else if (w->dtype == DTYPE_F32)
    pack_rows(DTYPE_F32, panel, first, row_bytes, outs, n);
  else
    pack_rows(DTYPE_F16, panel, first, row_bytes, outs, n);
}

#if PL_PAIR_PRODUCTS
#define PANEL_FMA(pairs, a, b, c) ((pairs) ? v_fma_pairs(a, b, c) : vf_fma(a, b, c))
#else
#define PANEL_FMA(pairs, a, b, c) vf_fma(a, b, c)
#endif

/*
 * nr rows (a constant) over one panel; `lanes` [row][out][16] hold what came before, unless `first`. With `pairs` (a
 * constant) the columns are pairs.
 */
INLINE void panel_tile(const int nr, const int pairs, const float *const *x, int64_t from, const float *panel,
                       int64_t n, float *lanes, int first) {
  for (int part = 0; part < VF_PARTS; part++) {
    vf acc[TILE_ROWS][TILE_OUTS];
    float *rest = lanes + part * VF_LANES;
    UNROLL
    for (int r = 0; r < nr; r++) {
      UNROLL
      for (int o = 0; o < TILE_OUTS; o++) acc[r][o] = first ? vf_zero() : vf_load(rest + (r * TILE_OUTS + o) * 16);
    }
    const float *w = panel + part * VF_LANES;
    const float *in[TILE_ROWS];
    UNROLL
    for (int r = 0; r < nr; r++) in[r] = x[r] + from + part * VF_LANES;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16, w += TILE_OUTS * 16) {
      vf xv[TILE_ROWS];
      UNROLL
      for (int r = 0; r < nr; r++) xv[r] = vf_load(in[r] + i);
      UNROLL
      for (int o = 0; o < TILE_OUTS; o++) {
        vf wv = vf_load(w + o * 16);
        UNROLL
        for (int r = 0; r < nr; r++) acc[r][o] = PANEL_FMA(pairs, wv, xv[r], acc[r][o]);
      }
    }
    if (i < n) {
      float tail[16];
      UNROLL
      for (int r = 0; r < nr; r++) {
        v_store(tail, v_load_part(x[r] + from + i, (int)(n - i)));
        vf xv = vf_load(tail + part * VF_LANES);
        UNROLL
        for (int o = 0; o < TILE_OUTS; o++) acc[r][o] = vf_fma(vf_load(w + o * 16), xv, acc[r][o]);
      }
    }
    UNROLL
    for (int r = 0; r < nr; r++) {
      UNROLL
      for (int o = 0; o < TILE_OUTS; o++) vf_store(rest + (r * TILE_OUTS + o) * 16, acc[r][o]);
    }
  }
}

/* Not inlined: a tile of registers each. */
#define PANEL_FUNCTION(name, nr, pairs) \
  static __attribute__((noinline)) void name(const float *const *x, int64_t from, const float *panel, int64_t n, \
                                             float *lanes, int first) { \
    panel_tile(nr, pairs, x, from, panel, n, lanes, first); \
  }
PANEL_FUNCTION(panel_4, 4, 0)
PANEL_FUNCTION(panel_1, 1, 0)
#if PL_PAIR_PRODUCTS
PANEL_FUNCTION(panel_pairs_4, 4, 1)
PANEL_FUNCTION(panel_pairs_1, 1, 1)
#endif

typedef void (*panel_function)(const float *const *, int64_t, const float *, int64_t, float *, int);

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

typedef struct {
  const float *const *x;
  panel_function four, one;
  int64_t columns; /* of a lane */
} pl_panel_rows;

/* Packs a panel and says how it is walked. `pairs`: the rows as pairs, NULL where they are none. */
INLINE pl_panel_rows next_panel(const float *const *x, const float *const *pairs, const pl_matrix *w, int64_t row,
                                int outs, int64_t from, int64_t n, float *panel) {
#if PL_PAIR_PRODUCTS
  if (pairs && pack_pairs(panel, w, row, outs, from, n)) return (pl_panel_rows){pairs, panel_pairs_4, panel_pairs_1, 2};
#else
  (void)pairs;
#endif
  pack_panel(panel, w, row, outs, from, n);
  return (pl_panel_rows){x, panel_4, panel_1, 1};
}

static void panel_rows(const float *const *x, const float *const *pairs, int rows, const pl_matrix *w, int64_t row,
                       int64_t count, float *dst, int64_t stride, pl_dot_scratch *scratch) {
  const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
  for (int64_t o = 0; o < count; o += TILE_OUTS) {
    const int outs = (int)(count - o < TILE_OUTS ? count - o : TILE_OUTS);
    const float *const *paired = pairs;
    for (int64_t from = 0; from < w->k; from += PANEL_K) {
      const int64_t n = w->k - from < PANEL_K ? w->k - from : PANEL_K;
      const pl_panel_rows p = next_panel(x, paired, w, row + o, outs, from, n, scratch->panel);
      if (p.columns == 1) paired = NULL; /* its sums may be subnormal, which pairs would not add to */
      for (int r = 0, nr; r < rows; r += nr) {
        float *lanes = scratch->lanes + r * TILE_OUTS * 16;
        nr = r + TILE_ROWS <= rows ? TILE_ROWS : 1;
        if (r % TILE_ROWS == 0) prefetch_panel(w, row + o, row + count, from + PANEL_K, r / TILE_ROWS, tiles);
        (nr == TILE_ROWS ? p.four : p.one)(p.x + r, from / p.columns, scratch->panel, n / p.columns, lanes, from == 0);
        if (from + n == w->k) finish_rows(lanes, nr, outs, dst + r * stride + o, stride);
      }
    }
  }
}

#endif
