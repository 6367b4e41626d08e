/*
 * The 16-lane vector over AVX2, FMA and F16C: two registers, lanes 0-7 and 8-15. See lanes.h.
 */
#ifndef PL_LANES_AVX2_H
#define PL_LANES_AVX2_H

#include <immintrin.h>

#define PL_ISA avx2
#define PL_ISA_NAME "avx2"

typedef struct {
  __m256 lo, hi;
} f32x16;
typedef f32x16 m16; /* all ones or all zeros in each lane */

#define PL_PAIR(expr_lo, expr_hi) ((f32x16){(expr_lo), (expr_hi)})

INLINE f32x16 v_zero(void) { return PL_PAIR(_mm256_setzero_ps(), _mm256_setzero_ps()); }
INLINE f32x16 v_set(float x) { return PL_PAIR(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
INLINE f32x16 v_load(const float *p) { return PL_PAIR(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
INLINE void v_store(float *p, f32x16 v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
INLINE f32x16 v_load_part(const float *p, int n) {
  float t[16] = {0};
  memcpy(t, p, (size_t)n * 4);
  return v_load(t);
}
INLINE void v_store_part(float *p, f32x16 v, int n) {
  float t[16];
  v_store(t, v);
  memcpy(p, t, (size_t)n * 4);
}

INLINE __m256 pl_widen_bf16(__m128i half) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
INLINE f32x16 v_load_bf16(const uint16_t *p) {
  return PL_PAIR(pl_widen_bf16(_mm_loadu_si128((const __m128i *)p)),
                 pl_widen_bf16(_mm_loadu_si128((const __m128i *)(p + 8))));
}
INLINE f32x16 v_load_bf16_part(const uint16_t *p, int n) {
  uint16_t t[16] = {0};
  memcpy(t, p, (size_t)n * 2);
  return v_load_bf16(t);
}
INLINE f32x16 v_load_f16(const uint16_t *p) {
  return PL_PAIR(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))));
}
INLINE f32x16 v_load_f16_part(const uint16_t *p, int n) {
  uint16_t t[16] = {0};
  memcpy(t, p, (size_t)n * 2);
  return v_load_f16(t);
}

INLINE f32x16 v_add(f32x16 a, f32x16 b) { return PL_PAIR(_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)); }
INLINE f32x16 v_sub(f32x16 a, f32x16 b) { return PL_PAIR(_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)); }
INLINE f32x16 v_mul(f32x16 a, f32x16 b) { return PL_PAIR(_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)); }
INLINE f32x16 v_div(f32x16 a, f32x16 b) { return PL_PAIR(_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)); }
INLINE f32x16 v_sqrt(f32x16 a) { return PL_PAIR(_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)); }
INLINE f32x16 v_fma(f32x16 a, f32x16 b, f32x16 c) {
  return PL_PAIR(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
INLINE f32x16 v_abs(f32x16 a) {
  __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return PL_PAIR(_mm256_and_ps(a.lo, mask), _mm256_and_ps(a.hi, mask));
}

INLINE m16 v_gt(f32x16 a, f32x16 b) {
  return PL_PAIR(_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ));
}
INLINE m16 v_isnan(f32x16 a) {
  return PL_PAIR(_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q));
}
INLINE f32x16 v_select(m16 m, f32x16 yes, f32x16 no) {
  return PL_PAIR(_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi));
}

INLINE __m256 pl_scale(__m256 y, __m256 n) {
  __m256i whole = _mm256_cvtps_epi32(n);
  __m256i half = _mm256_srai_epi32(whole, 1);
  __m256i bias = _mm256_set1_epi32(127);
  __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}
INLINE f32x16 v_scale(f32x16 y, f32x16 n) { return PL_PAIR(pl_scale(y.lo, n.lo), pl_scale(y.hi, n.hi)); }

INLINE __m256i pl_bf16_bits(__m256 v) {
  __m256i bits = _mm256_castps_si256(v);
  __m256i top = _mm256_srli_epi32(bits, 16);
  __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, nan);
}
INLINE f32x16 v_round_bf16(f32x16 v) {
  return PL_PAIR(_mm256_castsi256_ps(_mm256_slli_epi32(pl_bf16_bits(v.lo), 16)),
                 _mm256_castsi256_ps(_mm256_slli_epi32(pl_bf16_bits(v.hi), 16)));
}
INLINE void v_store_bf16_part(uint16_t *p, f32x16 v, int n) {
  uint16_t t[16];
  __m256i packed = _mm256_packus_epi32(pl_bf16_bits(v.lo), pl_bf16_bits(v.hi));
  _mm256_storeu_si256((__m256i *)t, _mm256_permute4x64_epi64(packed, 0xd8));
  memcpy(p, t, (size_t)n * 2);
}

INLINE float v_sum(f32x16 v) {
  __m256 h = _mm256_add_ps(v.lo, v.hi);
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}

/* Eight trees at once, of vectors that lie one after the other. */
#define SUM_GROUP 8
INLINE void v_sum_group(const float *vectors, float *sums) {
  __m256 p[4], q[2];
  UNROLL
  for (int i = 0; i < 4; i++) {
    f32x16 a = v_load(vectors + i * 32), b = v_load(vectors + i * 32 + 16);
    __m256 x = _mm256_add_ps(a.lo, a.hi), y = _mm256_add_ps(b.lo, b.hi);
    p[i] = _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
  }
  UNROLL
  for (int i = 0; i < 2; i++) {
    __m256 x = p[2 * i], y = p[2 * i + 1];
    q[i] = _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xee));
  }
  __m256 sum = _mm256_add_ps(_mm256_shuffle_ps(q[0], q[1], 0x88), _mm256_shuffle_ps(q[0], q[1], 0xdd));
  _mm256_storeu_ps(sums, _mm256_permutevar8x32_ps(sum, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0)));
}

/* The register of this machine, for the tiles of dot.h: the 16 lanes are walked in two parts. */
#define VF_LANES 8
#define VF_PARTS 2
#define TILE_OUTS 3
typedef __m256 vf;
INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
INLINE vf vf_set(float x) { return _mm256_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE vf vf_load_bf16(const uint16_t *p) { return pl_widen_bf16(_mm_loadu_si128((const __m128i *)p)); }
INLINE void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }

#endif
