/*
 * Rows for instructions that multiply pairs of bfloat16 numbers and add both products to a float32 lane: half as many
 * instructions for the same sums.
 *
 * Such an instruction is two fused multiply-adds, the odd element first, that take subnormal numbers for zeros. Where all
 * factors are bfloat16 numbers, each of them zero or at least PL_PAIR_LEAST, every product and so every sum is a multiple
 * of 2^-124: no subnormal number ever comes up, and the bits are those of the lane law. Rows and weights that do not
 * qualify are walked in float32, and a sum that was begun so is also ended so. NaN does not qualify, since a processor
 * may choose its bits.
 *
 * Of the 32 columns from i on, pair j is column i + j (odd) and column i + 16 + j (even), so that lane j walks its
 * columns in ascending order.
 */
#ifndef PL_DOT_PAIRS_H
#define PL_DOT_PAIRS_H

#include "dot-panel.h"

#if PL_PAIR_PRODUCTS

/* Whether weights qualify. */
static bool fits_pairs(const uint16_t *weights, int64_t count) {
  uint16_t rest[32] = {0};
  uint32_t unfit = 0;
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) unfit |= v_unfit_pairs(v_load((const float *)(weights + i)));
  memcpy(rest, weights + i, (size_t)(count - i) * sizeof *rest);
  return (unfit | v_unfit_pairs(v_load((const float *)rest))) == 0;
}

/* A row as pairs; false where it does not qualify. */
INLINE bool pair_row(float *pairs, const float *x, int64_t k) {
  uint32_t unfit = 0;
  for (int64_t i = 0; i < k; i += 32, pairs += 16) {
    const f32x16 first = v_load(x + i), second = v_load(x + i + 16);
    const f32x16 both = v_pairs_of(first, second);
    unfit |= v_not_bf16(first) | v_not_bf16(second) | v_unfit_pairs(both);
    v_store(pairs, both);
  }
  return unfit == 0;
}

/* Rows as pairs, made once in a piece of work; NULL where they do not qualify or are too long. */
static const float *const *pair_rows(const float *const *x, int rows, const pl_matrix *w, pl_paired_rows *to) {
  const int64_t words = w->k / 2;
  if (w->k % 32 != 0 || rows * words > PAIR_WORDS) return NULL;
  if (to->rows == rows && to->k == w->k && memcmp(to->source, x, (size_t)rows * sizeof *x) == 0)
    return to->fit ? to->pairs : NULL;
  to->rows = rows;
  to->k = w->k;
  memcpy(to->source, x, (size_t)rows * sizeof *x);
  to->fit = true;
  for (int r = 0; r < rows && to->fit; r++) {
    to->fit = pair_row(to->words + r * words, x[r], w->k);
    to->pairs[r] = to->words + r * words;
  }
  return to->fit ? to->pairs : NULL;
}

#define FITS_PAIRS fits_pairs
#else
#define FITS_PAIRS NULL
#endif

#endif
