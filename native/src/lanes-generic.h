/*
 * The 16-lane vector in plain C, with the C library's fmaf: for machines without the other forms, and the judge of
 * them.
 */
#ifndef PL_LANES_GENERIC_H
#define PL_LANES_GENERIC_H

#define PL_ISA generic
#define PL_ISA_NAME "generic"

typedef struct {
  float v[16];
} f32x16;
typedef struct {
  uint32_t v[16]; /* 0 or 1 */
} m16;

/* Applies an expression in i to the sixteen lanes. */
#define PL_EACH(type, expr) \
  type pl_result; \
  for (int i = 0; i < 16; i++) pl_result.v[i] = (expr); \
  return pl_result

INLINE float pl_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
INLINE uint32_t pl_to_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

INLINE f32x16 v_set(float x) { PL_EACH(f32x16, x); }
INLINE f32x16 v_zero(void) { return v_set(0.0f); }
INLINE f32x16 v_load_part(const float *p, int n) {
  f32x16 r = v_zero();
  memcpy(r.v, p, (size_t)n * 4);
  return r;
}
INLINE f32x16 v_load(const float *p) { return v_load_part(p, 16); }
INLINE void v_store_part(float *p, f32x16 v, int n) { memcpy(p, v.v, (size_t)n * 4); }
INLINE void v_store(float *p, f32x16 v) { v_store_part(p, v, 16); }

INLINE f32x16 v_load_bf16_part(const uint16_t *p, int n) {
  uint16_t t[16] = {0};
  memcpy(t, p, (size_t)n * 2);
  PL_EACH(f32x16, pl_from_bits((uint32_t)t[i] << 16));
}
INLINE f32x16 v_load_bf16(const uint16_t *p) { return v_load_bf16_part(p, 16); }
INLINE float pl_widen_f16(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  if (exponent == 31) return pl_from_bits(sign | 0x7f800000 | (mantissa << 13) | (mantissa ? 0x400000 : 0));
  if (exponent != 0) return pl_from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
  float magnitude = (float)mantissa * 0x1p-24f; /* exact: a subnormal half is an integer times 2^-24 */
  return sign ? -magnitude : magnitude;
}
INLINE f32x16 v_load_f16_part(const uint16_t *p, int n) {
  uint16_t t[16] = {0};
  memcpy(t, p, (size_t)n * 2);
  PL_EACH(f32x16, pl_widen_f16(t[i]));
}
INLINE f32x16 v_load_f16(const uint16_t *p) { return v_load_f16_part(p, 16); }

INLINE f32x16 v_add(f32x16 a, f32x16 b) { PL_EACH(f32x16, a.v[i] + b.v[i]); }
INLINE f32x16 v_sub(f32x16 a, f32x16 b) { PL_EACH(f32x16, a.v[i] - b.v[i]); }
INLINE f32x16 v_mul(f32x16 a, f32x16 b) { PL_EACH(f32x16, a.v[i] * b.v[i]); }
INLINE f32x16 v_div(f32x16 a, f32x16 b) { PL_EACH(f32x16, a.v[i] / b.v[i]); }
INLINE f32x16 v_sqrt(f32x16 a) { PL_EACH(f32x16, sqrtf(a.v[i])); }
INLINE f32x16 v_fma(f32x16 a, f32x16 b, f32x16 c) { PL_EACH(f32x16, fmaf(a.v[i], b.v[i], c.v[i])); }
INLINE f32x16 v_abs(f32x16 a) { PL_EACH(f32x16, fabsf(a.v[i])); }

INLINE m16 v_gt(f32x16 a, f32x16 b) { PL_EACH(m16, a.v[i] > b.v[i]); }
INLINE m16 v_isnan(f32x16 a) { PL_EACH(m16, a.v[i] != a.v[i]); }
INLINE f32x16 v_select(m16 m, f32x16 yes, f32x16 no) { PL_EACH(f32x16, m.v[i] ? yes.v[i] : no.v[i]); }

INLINE float pl_power_of_two(int n) { return pl_from_bits((uint32_t)(n + 127) << 23); }
INLINE float pl_scale(float y, float n) {
  int whole = (int)n;
  int half = whole >> 1;
  return y * pl_power_of_two(half) * pl_power_of_two(whole - half);
}
INLINE f32x16 v_scale(f32x16 y, f32x16 n) { PL_EACH(f32x16, pl_scale(y.v[i], n.v[i])); }

INLINE uint32_t pl_bf16_bits(float x) {
  uint32_t bits = pl_to_bits(x);
  if (x != x) return (bits >> 16) | 0x40;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
INLINE f32x16 v_round_bf16(f32x16 v) { PL_EACH(f32x16, pl_from_bits(pl_bf16_bits(v.v[i]) << 16)); }
INLINE void v_store_bf16_part(uint16_t *p, f32x16 v, int n) {
  for (int i = 0; i < n; i++) {
    uint16_t bits = (uint16_t)pl_bf16_bits(v.v[i]);
    memcpy(p + i, &bits, 2);
  }
}

INLINE float v_sum(f32x16 v) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int j = 0; j < width; j++) v.v[j] = v.v[j] + v.v[j + width];
  }
  return v.v[0];
}

#define SUM_GROUP 1
INLINE void v_sum_group(const float *vectors, float *sums) { sums[0] = v_sum(v_load(vectors)); }

#define VF_LANES 16
#define VF_PARTS 1
#define TILE_OUTS 4
typedef f32x16 vf;
INLINE vf vf_zero(void) { return v_zero(); }
INLINE vf vf_set(float x) { return v_set(x); }
INLINE vf vf_load(const float *p) { return v_load(p); }
INLINE vf vf_load_bf16(const uint16_t *p) { return v_load_bf16(p); }
INLINE void vf_store(float *p, vf v) { v_store(p, v); }
INLINE vf vf_fma(vf a, vf b, vf c) { return v_fma(a, b, c); }

#endif
