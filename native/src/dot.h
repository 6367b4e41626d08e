/*
 * Dot products of many rows with many weight rows under the lane law: the heart of linear layers, experts, attention
 * scores and block scores.
 *
 * Invariants: each (row, out) pair has its own sixteen lanes, walked in ascending k with one fused multiply-add each,
 * and its own tree at the end; tiles, chunks and threads only choose which pairs are walked together. Two ways, same
 * bits: `stream` for up to STREAM_MOST rows reads the weights from memory once, several rows of them in flight, and is
 * bound by memory for the first few rows; `panel` for more rows widens TILE_OUTS weight rows at a time into a float32
 * panel that stays in the first-level cache and walks all rows over it, in blocks of PANEL_K columns between which the
 * lanes rest in memory. Either way takes pairs of bfloat16 numbers at once where dot-pairs.h lets it.
 */
#ifndef PL_DOT_H
#define PL_DOT_H

#include "dot-pairs.h"

/* Begins a piece of work: its inputs may have been written since the last. */
INLINE void begin_dots(pl_dot_scratch *scratch) {
#if PL_PAIR_PRODUCTS
  scratch->paired.rows = 0;
#else
  (void)scratch;
#endif
}

/* dst[r * stride + o] = dot(x[r], w[from + o]) for r < rows <= ROW_BLOCK, o < count. */
static void dot_rows(const float *const *x, int rows, const pl_matrix *w, int64_t from, int64_t count, float *dst,
                     int64_t stride, pl_dot_scratch *scratch) {
  if (rows <= 0) return;
  const float *const *pairs = NULL;
#if PL_PAIR_PRODUCTS
  /* A panel is looked at as it is packed; a stream has no time for it. */
  if (w->dtype == DTYPE_BF16 && w->pairs >= (rows > STREAM_MOST ? PERHAPS_PAIRS : FIT_PAIRS))
    pairs = pair_rows(x, rows, w, &scratch->paired);
#endif
  if (rows > STREAM_MOST) {
    panel_rows(x, pairs, rows, w, from, count, dst, stride, scratch);
  } else if (pairs) {
    const pl_matrix paired = {w->data, w->k, DTYPE_PAIRS, NO_PAIRS};
    stream_rows(pairs, rows, &paired, from, count, dst, stride);
  } else {
    stream_rows(x, rows, w, from, count, dst, stride);
  }
}

#endif
