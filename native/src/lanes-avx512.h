/*
 * The 16-lane vector over AVX-512 (F, BW, DQ, VL): one register. See lanes.h for what each function means.
 */
#ifndef PL_LANES_AVX512_H
#define PL_LANES_AVX512_H

#include <immintrin.h>

#if PL_PAIR_PRODUCTS
#define PL_ISA avx512bf16
#define PL_ISA_NAME "avx512bf16"
#else
#define PL_ISA avx512
#define PL_ISA_NAME "avx512"
#endif

typedef __m512 f32x16;
typedef __mmask16 m16;

INLINE f32x16 v_zero(void) { return _mm512_setzero_ps(); }
INLINE f32x16 v_set(float x) { return _mm512_set1_ps(x); }
INLINE f32x16 v_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v_store(float *p, f32x16 v) { _mm512_storeu_ps(p, v); }
INLINE m16 pl_first(int n) { return (m16)((1u << n) - 1u); }
INLINE f32x16 v_load_part(const float *p, int n) { return _mm512_maskz_loadu_ps(pl_first(n), p); }
INLINE void v_store_part(float *p, f32x16 v, int n) { _mm512_mask_storeu_ps(p, pl_first(n), v); }

INLINE f32x16 pl_widen_bf16(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
INLINE f32x16 v_load_bf16(const uint16_t *p) { return pl_widen_bf16(_mm256_loadu_si256((const __m256i *)p)); }
INLINE f32x16 v_load_bf16_part(const uint16_t *p, int n) {
  return pl_widen_bf16(_mm256_maskz_loadu_epi16(pl_first(n), p));
}
/* Thirty-two at once: one load, and a permutation a half that widens as it picks. */
#define PL_WIDENS_PAIRS 1
INLINE void v_load_bf16_pair(const uint16_t *p, f32x16 *low, f32x16 *high) {
  const __m512i both = _mm512_loadu_si512(p), first = _mm512_set_epi32(0x000f0000, 0x000e0000, 0x000d0000, 0x000c0000,
                                                                       0x000b0000, 0x000a0000, 0x00090000, 0x00080000,
                                                                       0x00070000, 0x00060000, 0x00050000, 0x00040000,
                                                                       0x00030000, 0x00020000, 0x00010000, 0x00000000);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(0x00100000));
  *low = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, first, both));
  *high = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, second, both));
}
#if PL_PAIR_PRODUCTS
/* Lanes that are no bfloat16 numbers. */
INLINE m16 v_not_bf16(f32x16 v) { return _mm512_test_epi32_mask(_mm512_castps_si512(v), _mm512_set1_epi32(0xffff)); }
/* Elements of pairs that are neither zero nor finite and at least PL_PAIR_LEAST: a bit for each. */
INLINE uint32_t v_unfit_pairs(f32x16 v) {
  const __m512i size = _mm512_slli_epi16(_mm512_castps_si512(v), 1);
  const __m512i below = _mm512_sub_epi16(size, _mm512_set1_epi16(1)); /* a zero is above all else */
  return _mm512_cmplt_epu16_mask(below, _mm512_set1_epi16((PL_PAIR_LEAST << 1) - 1)) |
         _mm512_cmpge_epu16_mask(size, _mm512_set1_epi16((short)0xff00));
}
/* Pairs of columns j and 16 + j, that of `first` odd. */
INLINE f32x16 v_pairs_of(f32x16 first, f32x16 second) {
  const __m512i even = _mm512_srli_epi32(_mm512_castps_si512(second), 16);
  return _mm512_castsi512_ps(_mm512_mask_blend_epi16(0xaaaaaaaau, even, _mm512_castps_si512(first)));
}
INLINE f32x16 v_load_weight_pairs(const uint16_t *p) {
  const __m512i order = _mm512_set_epi32(
      0x000f001f, 0x000e001e, 0x000d001d, 0x000c001c, 0x000b001b, 0x000a001a, 0x00090019, 0x00080018, 0x00070017,
      0x00060016, 0x00050015, 0x00040014, 0x00030013, 0x00020012, 0x00010011, 0x00000010);
  return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, _mm512_loadu_si512(p)));
}
INLINE f32x16 v_fma_pairs(f32x16 a, f32x16 b, f32x16 c) {
  return _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
}
#endif
INLINE f32x16 v_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE f32x16 v_load_f16_part(const uint16_t *p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(pl_first(n), p));
}

INLINE f32x16 v_add(f32x16 a, f32x16 b) { return _mm512_add_ps(a, b); }
INLINE f32x16 v_sub(f32x16 a, f32x16 b) { return _mm512_sub_ps(a, b); }
INLINE f32x16 v_mul(f32x16 a, f32x16 b) { return _mm512_mul_ps(a, b); }
INLINE f32x16 v_div(f32x16 a, f32x16 b) { return _mm512_div_ps(a, b); }
INLINE f32x16 v_sqrt(f32x16 a) { return _mm512_sqrt_ps(a); }
INLINE f32x16 v_fma(f32x16 a, f32x16 b, f32x16 c) { return _mm512_fmadd_ps(a, b, c); }
INLINE f32x16 v_abs(f32x16 a) { return _mm512_abs_ps(a); }

INLINE m16 v_gt(f32x16 a, f32x16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE m16 v_isnan(f32x16 a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
INLINE f32x16 v_select(m16 m, f32x16 yes, f32x16 no) { return _mm512_mask_blend_ps(m, no, yes); }

INLINE f32x16 v_scale(f32x16 y, f32x16 n) {
  __m512i whole = _mm512_cvtps_epi32(n);
  __m512i half = _mm512_srai_epi32(whole, 1);
  __m512i bias = _mm512_set1_epi32(127);
  __m512i first = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
  __m512i second = _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(whole, half), bias), 23);
  return _mm512_mul_ps(_mm512_mul_ps(y, _mm512_castsi512_ps(first)), _mm512_castsi512_ps(second));
}

INLINE __m512i pl_bf16_bits(f32x16 v) {
  __m512i bits = _mm512_castps_si512(v);
  __m512i top = _mm512_srli_epi32(bits, 16);
  __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
  __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  return _mm512_mask_or_epi32(rounded, v_isnan(v), top, _mm512_set1_epi32(0x40));
}
INLINE f32x16 v_round_bf16(f32x16 v) { return _mm512_castsi512_ps(_mm512_slli_epi32(pl_bf16_bits(v), 16)); }
INLINE void v_store_bf16_part(uint16_t *p, f32x16 v, int n) {
  _mm256_mask_storeu_epi16(p, pl_first(n), _mm512_cvtepi32_epi16(pl_bf16_bits(v)));
}

INLINE float v_sum(f32x16 v) {
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}

/* Sixteen trees at once, of vectors that lie one after the other: 15 additions instead of 64. */
#define SUM_GROUP 16
INLINE f32x16 v_sum_sixteen(const f32x16 *v) {
  __m512 s[8], p[4], q[2];
  UNROLL
  for (int i = 0; i < 8; i++) {
    __m512 a = v[2 * i], b = v[2 * i + 1];
    s[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  UNROLL
  for (int i = 0; i < 4; i++) {
    p[i] = _mm512_add_ps(_mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0xdd));
  }
  UNROLL
  for (int i = 0; i < 2; i++) {
    q[i] =
        _mm512_add_ps(_mm512_shuffle_ps(p[2 * i], p[2 * i + 1], 0x44), _mm512_shuffle_ps(p[2 * i], p[2 * i + 1], 0xee));
  }
  __m512 sum = _mm512_add_ps(_mm512_shuffle_ps(q[0], q[1], 0x88), _mm512_shuffle_ps(q[0], q[1], 0xdd));
  const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  return _mm512_permutexvar_ps(order, sum);
}
INLINE void v_sum_group(const float *vectors, float *sums) {
  f32x16 v[16];
  UNROLL
  for (int i = 0; i < 16; i++) v[i] = v_load(vectors + i * 16);
  v_store(sums, v_sum_sixteen(v));
}

/* The register of this machine, for the tiles of dot.h: 16 lanes in one part. */
#define VF_LANES 16
#define VF_PARTS 1
#define TILE_OUTS 6
typedef __m512 vf;
INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE vf vf_load_bf16(const uint16_t *p) { return v_load_bf16(p); }
INLINE void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }

#endif
