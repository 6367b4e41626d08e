/*
 * The written numeric laws of src/numerics/, lane by lane: exponentials, sigmoids and the rounding of activations.
 * Every line is one IEEE operation in the order of the TypeScript; the file is compiled without contraction.
 */
#ifndef PL_LAWS_H
#define PL_LAWS_H

#include "correctly-rounded.h"
#include "kernel-api.h"
#include "lanes.h"

/* ---- float32 ---- */

/* e^x; expF32 of numerics/exp.ts. */
INLINE f32x16 v_exp(f32x16 x) {
  const f32x16 round = v_set(12582912.0f);
  f32x16 c = v_select(v_gt(x, v_set(89.0f)), v_set(89.0f), x);
  c = v_select(v_gt(v_set(-104.0f), x), v_set(-104.0f), c);
  c = v_select(v_isnan(x), v_zero(), c); /* keeps the conversion to integers defined */
  f32x16 n = v_sub(v_add(v_mul(c, v_set((float)1.4426950408889634)), round), round);
  f32x16 r = v_sub(v_sub(c, v_mul(n, v_set(0.693359375f))), v_mul(n, v_set((float)(0.6931471805599453 - 0.693359375))));
  f32x16 p = v_set((float)(1.0 / 5040));
  p = v_add(v_mul(p, r), v_set((float)(1.0 / 720)));
  p = v_add(v_mul(p, r), v_set((float)(1.0 / 120)));
  p = v_add(v_mul(p, r), v_set((float)(1.0 / 24)));
  p = v_add(v_mul(p, r), v_set((float)(1.0 / 6)));
  p = v_add(v_mul(p, r), v_set(0.5f));
  f32x16 y = v_add(v_add(v_mul(p, v_mul(r, r)), r), v_set(1.0f));
  return v_select(v_isnan(x), v_set(pl_float(0x7fc00000)), v_scale(y, n));
}

/* sigmoidF32. */
INLINE f32x16 v_sigmoid(f32x16 x) {
  f32x16 one = v_set(1.0f);
  f32x16 y = v_div(one, v_add(one, v_exp(v_abs(x))));
  return v_select(v_gt(v_zero(), x), y, v_sub(one, y));
}

/*
 * The same of `n` vectors (a constant, at most SIDE_BY_SIDE) in place. One sigmoid is a long chain of operations that wait
 * for each other; step by step side by side, the chains fill each other's waits.
 */
enum { SIDE_BY_SIDE = 4 };
#define EACH(i, n) \
  UNROLL \
  for (int i = 0; i < (n); i++)

INLINE void v_exps(const int n, f32x16 *x) {
  const f32x16 round = v_set(12582912.0f), most = v_set(89.0f), least = v_set(-104.0f);
  f32x16 c[SIDE_BY_SIDE], k[SIDE_BY_SIDE], r[SIDE_BY_SIDE], p[SIDE_BY_SIDE];
  EACH(i, n) c[i] = v_select(v_gt(x[i], most), most, x[i]);
  EACH(i, n) c[i] = v_select(v_gt(least, c[i]), least, c[i]);
  EACH(i, n) c[i] = v_select(v_isnan(x[i]), v_zero(), c[i]);
  EACH(i, n) k[i] = v_add(v_mul(c[i], v_set((float)1.4426950408889634)), round);
  EACH(i, n) k[i] = v_sub(k[i], round);
  EACH(i, n) r[i] = v_sub(c[i], v_mul(k[i], v_set(0.693359375f)));
  EACH(i, n) r[i] = v_sub(r[i], v_mul(k[i], v_set((float)(0.6931471805599453 - 0.693359375))));
  EACH(i, n) p[i] = v_add(v_mul(v_set((float)(1.0 / 5040)), r[i]), v_set((float)(1.0 / 720)));
  EACH(i, n) p[i] = v_add(v_mul(p[i], r[i]), v_set((float)(1.0 / 120)));
  EACH(i, n) p[i] = v_add(v_mul(p[i], r[i]), v_set((float)(1.0 / 24)));
  EACH(i, n) p[i] = v_add(v_mul(p[i], r[i]), v_set((float)(1.0 / 6)));
  EACH(i, n) p[i] = v_add(v_mul(p[i], r[i]), v_set(0.5f));
  EACH(i, n) p[i] = v_add(v_add(v_mul(p[i], v_mul(r[i], r[i])), r[i]), v_set(1.0f));
  EACH(i, n) x[i] = v_select(v_isnan(x[i]), v_set(pl_float(0x7fc00000)), v_scale(p[i], k[i]));
}

INLINE void v_sigmoids(const int n, f32x16 *x) {
  const f32x16 one = v_set(1.0f);
  f32x16 y[SIDE_BY_SIDE];
  EACH(i, n) y[i] = v_abs(x[i]);
  v_exps(n, y);
  EACH(i, n) y[i] = v_div(one, v_add(one, y[i]));
  EACH(i, n) x[i] = v_select(v_gt(v_zero(), x[i]), y[i], v_sub(one, y[i]));
}

/* ---- float64, scalar or sixteen at a time (plain loops: the compiler vectorises them) ---- */

INLINE double pl_power_of_two_f64(int32_t n) {
  union {
    uint64_t i;
    double f;
  } u = {(uint64_t)(uint32_t)(n + 1023) << 52};
  return u.f;
}

/* The common end of the float64 exponentials: e^r * 2^n. */
INLINE double pl_exp_reduced(double r, double n) {
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 1.0 / 2.0;
  double y = p * (r * r) + r + 1.0;
  int32_t whole = (int32_t)n;
  int32_t half = whole >> 1;
  return y * pl_power_of_two_f64(half) * pl_power_of_two_f64(whole - half);
}

/* expF64; NaN is the caller's. */
INLINE double pl_exp_f64(double x) {
  double c = x > 710.0 ? 710.0 : x < -746.0 ? -746.0 : x;
  double n = c * 1.4426950408889634 + 6755399441055744.0 - 6755399441055744.0;
  return pl_exp_reduced(c - n * 6.93147180369123816490e-1 - n * 1.90821492927058770002e-10, n);
}

/* exp2F64; NaN is the caller's. */
INLINE double pl_exp2_f64(double x) {
  double c = x > 1025.0 ? 1025.0 : x < -1076.0 ? -1076.0 : x;
  double n = c + 6755399441055744.0 - 6755399441055744.0;
  return pl_exp_reduced((c - n) * 0.6931471805599453, n);
}

/* logF64 for x >= 1. */
INLINE double pl_log_f64(double x) {
  if (!(x < INFINITY)) return x;
  union {
    double f;
    uint64_t i;
  } u = {x};
  int32_t n = (int32_t)((u.i >> 52) & 0x7ff) - 1023;
  u.i = (u.i & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  double m = u.f;
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    n = n + 1;
  }
  double s = (m - 1.0) / (m + 1.0);
  double z = s * s;
  double p = 1.0 / 23;
  for (int k = 21; k >= 3; k -= 2) p = p * z + 1.0 / k;
  return n * 0.6931471805599453 + (2.0 * s + 2.0 * s * (z * p));
}

/* softplusF64. */
INLINE double pl_softplus_f64(double x) {
  if (x != x) return x;
  return x > 20.0 ? x : pl_log_f64(1.0 + pl_exp_f64(x));
}

/*
 * gateF32 of numerics/gate-tables.ts: the phase-dependent sigmoid of float32 activations, with a correctly rounded
 * exponential. A float64 result settles the rounding when both ends of its error round alike.
 */
INLINE f32x16 v_gate_f32(f32x16 x, int fused) {
  float in[16], e[16], below[16];
  v_store(in, v_select(v_isnan(x), v_zero(), v_abs(x)));
  for (int i = 0; i < 16; i++) {
    double y = fused ? pl_exp2_f64((double)(in[i] * pl_float(0x3fb8aa3b))) : pl_exp_f64((double)in[i]);
    e[i] = (float)(y * (1.0 + 0x1p-48));
    below[i] = (float)(y * (1.0 - 0x1p-48));
  }
  for (int i = 0; i < 16; i++) {
    if (e[i] == below[i]) continue;
    e[i] = fused ? pl_exp2_exact((double)(in[i] * pl_float(0x3fb8aa3b))) : pl_exp_exact((double)in[i]);
  }
  f32x16 one = v_set(1.0f);
  f32x16 y = v_div(one, v_add(one, v_load(e)));
  y = v_select(v_gt(v_zero(), x), y, v_sub(one, y));
  return v_select(v_isnan(x), v_set(pl_float(0x7fc00000)), y);
}

/* ---- activations ---- */

/* A(x): the plan's rounding point. */
INLINE f32x16 v_act(const pl_plan *plan, f32x16 x) { return plan->act ? v_round_bf16(x) : x; }

/*
 * A(x) of one number, through the vector: GCC 12 loses the mask of a conditional `x & 0xffff0000` on the bits of a
 * float (its if-conversion of `act ? masked : x`).
 */
INLINE float pl_act(const pl_plan *plan, float x) {
  float lanes[16];
  v_store(lanes, v_act(plan, v_set(x)));
  return lanes[0];
}

/* A table of 65,536 results by the bits of a value rounded to bfloat16. */
INLINE f32x16 v_table(const uint8_t *table, f32x16 x) {
  uint32_t bits[16];
  float raw[16];
  v_store(raw, v_round_bf16(x));
  memcpy(bits, raw, sizeof bits);
  for (int i = 0; i < 16; i++) {
    uint16_t found;
    memcpy(&found, table + 2 * (bits[i] >> 16), 2);
    bits[i] = (uint32_t)found << 16;
  }
  memcpy(raw, bits, sizeof raw);
  return v_load(raw);
}

/* sigma(x) of the op table. */
INLINE f32x16 v_sigma(const pl_plan *plan, f32x16 x) {
  if (plan->mtplx) return v_table(plan->tables[0], x);
  return v_act(plan, v_sigmoid(x));
}

/* The same of `n` vectors (a constant) in place. */
INLINE void v_sigmas(const int n, const pl_plan *plan, f32x16 *x) {
  if (plan->mtplx) {
    EACH(i, n) x[i] = v_table(plan->tables[0], x[i]);
    return;
  }
  v_sigmoids(n, x);
  if (plan->act) {
    EACH(i, n) x[i] = v_round_bf16(x[i]);
  }
}

/* silu(x) of the op table. */
INLINE f32x16 v_silu(const pl_plan *plan, f32x16 x) {
  if (plan->mtplx) return v_act(plan, v_mul(x, v_table(plan->tables[0], x)));
  return v_act(plan, v_mul(x, v_sigmoid(x)));
}

/* silu(gate) * up before its last rounding; with a limit that is not 0 both are clamped first, NaN kept. */
INLINE f32x16 v_swiglu(const pl_plan *plan, f32x16 gate, f32x16 up, float limit) {
  if (limit != 0.0f) {
    const f32x16 most = v_set(limit), least = v_set(-limit);
    gate = v_select(v_gt(gate, most), most, gate);
    up = v_select(v_gt(up, most), most, v_select(v_gt(least, up), least, up));
  }
  return v_mul(v_silu(plan, gate), up);
}

/* gate(x) of the op table. */
INLINE f32x16 v_gate(const pl_plan *plan, f32x16 x, int fused) {
  if (plan->act) return v_table(plan->tables[fused], x);
  return v_gate_f32(x, fused);
}

/* Dot product of two float32 vectors under the lane law. */
INLINE float pl_dot(const float *a, const float *b, int64_t n) {
  f32x16 acc = v_zero();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) acc = v_fma(v_load(a + i), v_load(b + i), acc);
  if (i < n) acc = v_fma(v_load_part(a + i, (int)(n - i)), v_load_part(b + i, (int)(n - i)), acc);
  return v_sum(acc);
}

/* Every lane`s slot of a row: for (i = 0; i < n; i += 16) with `left` lanes in use. */
#define FOR_LANES(i, left, n) for (int64_t i = 0, left = (n); left > 0; i += 16, left -= 16)
#define LANES_LEFT(left) ((int)((left) < 16 ? (left) : 16))

#endif
