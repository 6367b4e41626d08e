/*
 * e^x and 2^x rounded correctly to float32, as numerics/correctly-rounded.ts has them: the float64 polynomial decides
 * unless its error could cross a rounding boundary; then, for about one input in ten million, double-double arithmetic
 * does.
 */
#ifndef PL_CORRECTLY_ROUNDED_H
#define PL_CORRECTLY_ROUNDED_H

#include <math.h>

/* An unevaluated sum. */
typedef struct {
  double high, low;
} pl_double2;

static pl_double2 pl_two_sum(double a, double b) {
  double high = a + b, part = high - a;
  return (pl_double2){high, (a - (high - part)) + (b - part)};
}
static pl_double2 pl_add2(pl_double2 a, pl_double2 b) {
  pl_double2 sum = pl_two_sum(a.high, b.high);
  return pl_two_sum(sum.high, sum.low + a.low + b.low);
}
static pl_double2 pl_multiply2(pl_double2 a, pl_double2 b) {
  double high = a.high * b.high;
  return pl_two_sum(high, fma(a.high, b.high, -high) + a.high * b.low + a.low * b.high);
}

/* e^r * 2^n rounded to float32, for |r| <= ln(2) / 2: Taylor to r^26 by Horner. */
static float pl_exp_rounded(pl_double2 r, double n) {
  pl_double2 sum = {1, 0};
  for (int k = 26; k >= 1; k--) {
    double high = r.high / k;
    double low = (fma(-high, k, r.high) + r.low) / k;
    sum = pl_add2((pl_double2){1, 0}, pl_multiply2((pl_double2){high, low}, sum));
  }
  /* The high part alone rounds wrongly only from a midpoint; its low part then says to which side. */
  double scaled = ldexp(sum.high, (int)n);
  if (sum.low == 0) return (float)scaled;
  return (float)(scaled + copysign(fabs(scaled) * 0x1p-52, sum.low));
}

static const double PL_LN2_HIGH = 0.6931471805599453, PL_LN2_LOW = 2.3190468138462996e-17;

static __attribute__((noinline)) float pl_exp_exact(double x) {
  double n = floor(x * 1.4426950408889634 + 0.5), high = n * PL_LN2_HIGH;
  double low = fma(n, PL_LN2_HIGH, -high) + n * PL_LN2_LOW;
  return pl_exp_rounded(pl_add2((pl_double2){x, 0}, (pl_double2){-high, -low}), n);
}
static __attribute__((noinline)) float pl_exp2_exact(double x) {
  double n = floor(x + 0.5);
  if (n == x) return (float)ldexp(1.0, (int)n);
  return pl_exp_rounded(pl_multiply2((pl_double2){x - n, 0}, (pl_double2){PL_LN2_HIGH, PL_LN2_LOW}), n);
}

#endif
