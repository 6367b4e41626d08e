/*
 * The 16-lane float32 vector that every kernel is written over, once. The file that includes the kernels chooses its
 * form (PL_LANES = 512, 256, 128 or 0); all forms give the same bits.
 *
 * Meaning, lane by lane: add, sub, mul, div, sqrt are one IEEE operation; v_fma(a, b, c) = a * b + c rounded once; v_gt
 * is false for NaN; v_round_bf16 rounds to nearest, ties to even, NaN quiet; v_scale(y, n) = (y * 2^(n >> 1)) * 2^(n -
 * (n >> 1)) for integer n; v_sum is the tree of the lane law (lane j += j + 8, 4, 2, 1). v_sum_group(p, sums) is v_sum
 * of the SUM_GROUP vectors at p. `part` loads read n <= 16 elements and fill with zeros; part stores write n. bfloat16
 * and half widen exactly.
 */
#ifndef PL_LANES_H
#define PL_LANES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Loops whose counters must be constants, so that arrays of vectors live in registers. */
#define PL_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define UNROLL PL_PRAGMA(unroll)
#else
#define UNROLL PL_PRAGMA(GCC unroll 16)
#endif

/* Bits of the least bfloat16 number besides zero that pairs may hold: 2^-55. See dot-pairs.h. */
#define PL_PAIR_LEAST (72 << 7)

#if PL_LANES == 512
#include "lanes-avx512.h"
#elif PL_LANES == 256
#include "lanes-avx2.h"
#elif PL_LANES == 128
#include "lanes-neon.h"
#else
#include "lanes-generic.h"
#endif

#define PREFETCH(p) __builtin_prefetch((p), 0, 3)

INLINE f32x16 v_load_n(const float *p, int n) { return n >= 16 ? v_load(p) : v_load_part(p, n); }
INLINE void v_store_n(float *p, f32x16 v, int n) {
  if (n >= 16)
    v_store(p, v);
  else
    v_store_part(p, v, n);
}

/* v_sum of `n` vectors that lie one after the other. */
INLINE void v_sums(const float *vectors, int n, float *sums) {
  int i = 0;
  for (; i + SUM_GROUP <= n; i += SUM_GROUP) v_sum_group(vectors + i * 16, sums + i);
  for (; i < n; i++) sums[i] = v_sum(v_load(vectors + i * 16));
}

#endif
