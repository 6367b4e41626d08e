/*
 * Dot products of many rows with many weight rows under the lane law: the heart of linear layers, experts, attention
 * scores and block scores.
 *
 * Invariants: each (row, out) pair has its own sixteen lanes, walked in ascending k with one fused multiply-add each,
 * and its own tree at the end; tiles, chunks and threads only choose which pairs are walked together. Two ways, same
 * bits: `stream` for up to STREAM_MOST rows reads the weights from memory once, several rows of them in flight, and is
 * bound by memory for the first few rows; `panel` for more rows widens TILE_OUTS weight rows at a time into a float32
 * panel that stays in the first-level cache and walks all rows over it, in blocks of PANEL_K columns between which the
 * lanes rest in memory.
 */
#ifndef PL_DOT_H
#define PL_DOT_H

#include "dot-panel.h"
#include "dot-stream.h"

/* dst[r * stride + o] = dot(x[r], w[from + o]) for r < rows <= ROW_BLOCK, o < count. */
static void dot_rows(const float *const *x, int rows, const pl_matrix *w, int64_t from, int64_t count, float *dst,
                     int64_t stride, pl_dot_scratch *scratch) {
  if (rows > STREAM_MOST)
    panel_rows(x, rows, w, from, count, dst, stride, scratch);
  else if (rows > 0)
    stream_rows(x, rows, w, from, count, dst, stride);
}

#endif
