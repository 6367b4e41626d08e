/**
 * e^x and 2^x rounded correctly to float32: the one rounding that the gate laws speak of.
 *
 * Invariants: x is a float32; the result is the float32 nearest to the true value, ties to even, subnormals kept. The
 * float64 polynomial decides unless its error could cross a rounding boundary; then an exponential in double-double
 * arithmetic decides. Neither function has an exact float32 midpoint among its irrational values, so it always can.
 */
import { exp2F64, expF64 } from './exp.js';

const fround = Math.fround;

/** Relative error bound of the float64 exponentials, with a wide margin. */
const RELATIVE_ERROR = 2 ** -48;

const LN2_HIGH = 0.6931471805599453;
const LN2_LOW = 2.3190468138462996e-17;
const LOG2E = 1.4426950408889634;

/** An unevaluated sum high + low with |low| at most half a unit in the last place of high. */
interface DoubleDouble {
  readonly high: number;
  readonly low: number;
}

function twoSum(a: number, b: number): DoubleDouble {
  const high = a + b;
  const part = high - a;
  return { high, low: a - (high - part) + (b - part) };
}

function twoProduct(a: number, b: number): DoubleDouble {
  const split = (x: number): [number, number] => {
    const scaled = x * 134217729; // 2^27 + 1
    const upper = scaled - (scaled - x);
    return [upper, x - upper];
  };
  const high = a * b;
  const [aUpper, aLower] = split(a);
  const [bUpper, bLower] = split(b);
  return { high, low: aLower * bLower - (high - aUpper * bUpper - aLower * bUpper - aUpper * bLower) };
}

function add(a: DoubleDouble, b: DoubleDouble): DoubleDouble {
  const sum = twoSum(a.high, b.high);
  return twoSum(sum.high, sum.low + a.low + b.low);
}

function multiply(a: DoubleDouble, b: DoubleDouble): DoubleDouble {
  const product = twoProduct(a.high, b.high);
  return twoSum(product.high, product.low + a.high * b.low + a.low * b.high);
}

/** (e^r) * 2^n as a double-double before scaling, |r| <= ln(2)/2: Taylor to r^26 by Horner. */
function expSeries(r: DoubleDouble): DoubleDouble {
  let sum: DoubleDouble = { high: 1, low: 0 };
  for (let k = 26; k >= 1; k--) {
    const high = r.high / k;
    const rest = twoProduct(high, k);
    const low = (r.high - rest.high - rest.low + r.low) / k;
    sum = add({ high: 1, low: 0 }, multiply({ high, low }, sum));
  }
  return sum;
}

/** The float32 nearest to value * 2^n, which is not a midpoint itself. */
function roundScaled(value: DoubleDouble, n: number): number {
  const scaled = value.high * 2 ** n;
  const rounded = fround(scaled);
  const distance = scaled - rounded;
  const other = rounded + 2 * distance;
  // Rounding the high part is right unless it sits on a midpoint; then the low part says on which side the value lies.
  const onMidpoint = distance !== 0 && fround(other) === other;
  return onMidpoint && value.low > 0 === distance > 0 ? other : rounded;
}

function settle(approximate: number, exact: () => number): number {
  const below = fround(approximate * (1 - RELATIVE_ERROR));
  const above = fround(approximate * (1 + RELATIVE_ERROR));
  return below === above ? above : exact();
}

/** e^x for float32 x, correctly rounded to float32. */
export function expRoundedF32(x: number): number {
  return settle(expF64(x), () => {
    const n = Math.round(x * LOG2E);
    const high = twoProduct(n, LN2_HIGH);
    const reduced = add({ high: x, low: 0 }, { high: -high.high, low: -high.low - n * LN2_LOW });
    return roundScaled(expSeries(reduced), n);
  });
}

/** 2^x for float32 x, correctly rounded to float32. */
export function exp2RoundedF32(x: number): number {
  return settle(exp2F64(x), () => {
    const n = Math.round(x);
    if (n === x) return fround(2 ** n);
    return roundScaled(expSeries(multiply({ high: x - n, low: 0 }, { high: LN2_HIGH, low: LN2_LOW })), n);
  });
}
