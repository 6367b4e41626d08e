/**
 * e^x and 2^x rounded correctly to float32, for the float32 form of the gate law: src/numerics/correctly-rounded.ts,
 * operation for operation.
 *
 * Invariants: x is a float32; the float64 polynomial decides unless its error could cross a rounding boundary, then an
 * exponential in double-double arithmetic does. A double-double is returned as its high part, with the low part in `low`.
 */
import { exp2F64, expF64, F64_LN2, powerOfTwo } from './exp';

const RELATIVE_ERROR: f64 = 3.552713678800501e-15; // 2^-48
const LN2_LOW: f64 = 2.3190468138462996e-17;
const LOG2E: f64 = 1.4426950408889634;

/** Low part of the double-double that the last of the functions below returned. */
let low: f64 = 0;

function twoSum(a: f64, b: f64): f64 {
  const sum = a + b;
  const part = sum - a;
  low = a - (sum - part) + (b - part);
  return sum;
}

function twoProduct(a: f64, b: f64): f64 {
  const product = a * b;
  const aScaled = a * 134217729; // 2^27 + 1
  const aUpper = aScaled - (aScaled - a);
  const aLower = a - aUpper;
  const bScaled = b * 134217729;
  const bUpper = bScaled - (bScaled - b);
  const bLower = b - bUpper;
  low = aLower * bLower - (product - aUpper * bUpper - aLower * bUpper - aUpper * bLower);
  return product;
}

function add(aHigh: f64, aLow: f64, bHigh: f64, bLow: f64): f64 {
  const sum = twoSum(aHigh, bHigh);
  return twoSum(sum, low + aLow + bLow);
}

function multiply(aHigh: f64, aLow: f64, bHigh: f64, bLow: f64): f64 {
  const product = twoProduct(aHigh, bHigh);
  return twoSum(product, low + aHigh * bLow + aLow * bHigh);
}

/** e^r for |r| <= ln(2)/2 as a double-double: Taylor to r^26 by Horner. */
function expSeries(rHigh: f64, rLow: f64): f64 {
  let sum: f64 = 1;
  let sumLow: f64 = 0;
  for (let k: f64 = 26; k >= 1; k -= 1) {
    const high = rHigh / k;
    const rest = twoProduct(high, k);
    const quotientLow = (rHigh - rest - low + rLow) / k;
    const product = multiply(high, quotientLow, sum, sumLow);
    sum = add(1, 0, product, low);
    sumLow = low;
  }
  low = sumLow;
  return sum;
}

/** The float32 nearest to (high + lowPart) * 2^n. */
function roundScaled(high: f64, lowPart: f64, n: i32): f32 {
  // Subnormal float64 scales do not occur: the results are float32.
  const scaled = high * powerOfTwo(n);
  if (lowPart == 0) return <f32>scaled;
  const nudge = abs(scaled) * 2.220446049250313e-16 * (lowPart > 0 ? 1.0 : -1.0);
  return <f32>(scaled + nudge);
}

/** Whether both ends of the polynomial's error interval round to the same float32. */
@inline
function settled(approximate: f64): bool {
  return <f32>(approximate * (1 - RELATIVE_ERROR)) == <f32>(approximate * (1 + RELATIVE_ERROR));
}

/** JavaScript's Math.round, for values far below 2^52. */
@inline
function roundHalfUp(x: f64): f64 {
  return floor(x + 0.5);
}

export function expRoundedF32(x: f32): f32 {
  const approximate = expF64(<f64>x);
  if (settled(approximate) || x != x) return <f32>(approximate * (1 + RELATIVE_ERROR));
  const n = roundHalfUp(<f64>x * LOG2E);
  const product = twoProduct(n, F64_LN2);
  const reduced = add(<f64>x, 0, -product, -low - n * LN2_LOW);
  const reducedLow = low;
  const series = expSeries(reduced, reducedLow);
  return roundScaled(series, low, <i32>n);
}

export function exp2RoundedF32(x: f32): f32 {
  const approximate = exp2F64(<f64>x);
  if (settled(approximate) || x != x) return <f32>(approximate * (1 + RELATIVE_ERROR));
  const n = roundHalfUp(<f64>x);
  if (n == <f64>x) return <f32>powerOfTwo(<i32>n);
  const r = multiply(<f64>x - n, 0, F64_LN2, LN2_LOW);
  const rLow = low;
  const series = expSeries(r, rLow);
  return roundScaled(series, low, <i32>n);
}
