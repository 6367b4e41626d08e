/*
 * The 16-lane vector over AArch64 NEON: four registers of four lanes. See lanes.h.
 */
#ifndef PL_LANES_NEON_H
#define PL_LANES_NEON_H

#include <arm_neon.h>

#define PL_ISA neon
#define PL_ISA_NAME "neon"

typedef struct {
  float32x4_t q[4];
} f32x16;
typedef struct {
  uint32x4_t q[4];
} m16;

/* Applies an expression in i to the four registers. */
#define PL_EACH(type, expr) \
  type pl_result; \
  for (int i = 0; i < 4; i++) pl_result.q[i] = (expr); \
  return pl_result

INLINE f32x16 v_set(float x) { PL_EACH(f32x16, vdupq_n_f32(x)); }
INLINE f32x16 v_zero(void) { return v_set(0.0f); }
INLINE f32x16 v_load(const float *p) { PL_EACH(f32x16, vld1q_f32(p + 4 * i)); }
INLINE void v_store(float *p, f32x16 v) {
  for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, v.q[i]);
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

INLINE f32x16 v_load_bf16(const uint16_t *p) {
  PL_EACH(f32x16, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)));
}
INLINE f32x16 v_load_bf16_part(const uint16_t *p, int n) {
  uint16_t t[16] = {0};
  memcpy(t, p, (size_t)n * 2);
  return v_load_bf16(t);
}
INLINE f32x16 v_load_f16(const uint16_t *p) {
  PL_EACH(f32x16, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))));
}
INLINE f32x16 v_load_f16_part(const uint16_t *p, int n) {
  uint16_t t[16] = {0};
  memcpy(t, p, (size_t)n * 2);
  return v_load_f16(t);
}

INLINE f32x16 v_add(f32x16 a, f32x16 b) { PL_EACH(f32x16, vaddq_f32(a.q[i], b.q[i])); }
INLINE f32x16 v_sub(f32x16 a, f32x16 b) { PL_EACH(f32x16, vsubq_f32(a.q[i], b.q[i])); }
INLINE f32x16 v_mul(f32x16 a, f32x16 b) { PL_EACH(f32x16, vmulq_f32(a.q[i], b.q[i])); }
INLINE f32x16 v_div(f32x16 a, f32x16 b) { PL_EACH(f32x16, vdivq_f32(a.q[i], b.q[i])); }
INLINE f32x16 v_sqrt(f32x16 a) { PL_EACH(f32x16, vsqrtq_f32(a.q[i])); }
INLINE f32x16 v_fma(f32x16 a, f32x16 b, f32x16 c) { PL_EACH(f32x16, vfmaq_f32(c.q[i], a.q[i], b.q[i])); }
INLINE f32x16 v_abs(f32x16 a) { PL_EACH(f32x16, vabsq_f32(a.q[i])); }

INLINE m16 v_gt(f32x16 a, f32x16 b) { PL_EACH(m16, vcgtq_f32(a.q[i], b.q[i])); }
INLINE m16 v_isnan(f32x16 a) { PL_EACH(m16, vmvnq_u32(vceqq_f32(a.q[i], a.q[i]))); }
INLINE f32x16 v_select(m16 m, f32x16 yes, f32x16 no) { PL_EACH(f32x16, vbslq_f32(m.q[i], yes.q[i], no.q[i])); }

INLINE float32x4_t pl_power_of_two(int32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}
INLINE float32x4_t pl_scale(float32x4_t y, float32x4_t n) {
  int32x4_t whole = vcvtq_s32_f32(n);
  int32x4_t half = vshrq_n_s32(whole, 1);
  return vmulq_f32(vmulq_f32(y, pl_power_of_two(half)), pl_power_of_two(vsubq_s32(whole, half)));
}
INLINE f32x16 v_scale(f32x16 y, f32x16 n) { PL_EACH(f32x16, pl_scale(y.q[i], n.q[i])); }

INLINE uint32x4_t pl_bf16_bits(float32x4_t v) {
  uint32x4_t bits = vreinterpretq_u32_f32(v);
  uint32x4_t top = vshrq_n_u32(bits, 16);
  uint32x4_t odd = vandq_u32(top, vdupq_n_u32(1));
  uint32x4_t rounded = vshrq_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd), 16);
  return vbslq_u32(vceqq_f32(v, v), rounded, vorrq_u32(top, vdupq_n_u32(0x40)));
}
INLINE f32x16 v_round_bf16(f32x16 v) { PL_EACH(f32x16, vreinterpretq_f32_u32(vshlq_n_u32(pl_bf16_bits(v.q[i]), 16))); }
INLINE void v_store_bf16_part(uint16_t *p, f32x16 v, int n) {
  uint16_t t[16];
  for (int i = 0; i < 4; i++) vst1_u16(t + 4 * i, vmovn_u32(pl_bf16_bits(v.q[i])));
  memcpy(p, t, (size_t)n * 2);
}

INLINE float v_sum(f32x16 v) {
  float32x4_t low = vaddq_f32(v.q[0], v.q[2]);
  float32x4_t high = vaddq_f32(v.q[1], v.q[3]);
  float32x4_t four = vaddq_f32(low, high);
  float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* Four trees at once, of vectors that lie one after the other. */
#define SUM_GROUP 4
INLINE float32x4_t pl_four_lanes(f32x16 v) { return vaddq_f32(vaddq_f32(v.q[0], v.q[2]), vaddq_f32(v.q[1], v.q[3])); }
INLINE float32x4_t pl_two_lanes(float32x4_t a, float32x4_t b) {
  return vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)), vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
}
INLINE void v_sum_group(const float *vectors, float *sums) {
  float32x4_t x = pl_two_lanes(pl_four_lanes(v_load(vectors)), pl_four_lanes(v_load(vectors + 16)));
  float32x4_t y = pl_two_lanes(pl_four_lanes(v_load(vectors + 32)), pl_four_lanes(v_load(vectors + 48)));
  vst1q_f32(sums, vaddq_f32(vuzp1q_f32(x, y), vuzp2q_f32(x, y)));
}

/* The register of this machine, for the tiles of dot.h: the 16 lanes are walked in four parts. */
#define VF_LANES 4
#define VF_PARTS 4
#define TILE_OUTS 6
typedef float32x4_t vf;
INLINE vf vf_zero(void) { return vdupq_n_f32(0.0f); }
INLINE vf vf_set(float x) { return vdupq_n_f32(x); }
INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
INLINE vf vf_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
INLINE void vf_store(float *p, vf v) { vst1q_f32(p, v); }
INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }

#endif
