/**
 * Elements of a state's pages: keys, values and index keys, float32 or bfloat16 as the plan says.
 *
 * Invariants: a value is rounded to the page's type when it is stored, to nearest even, NaN kept; widening is exact.
 */
import { kvIsBf16, pageAddress, pageTokens } from './context';
import { widen } from './dot';
import { DTYPE_BF16, DTYPE_F32 } from './plan-ops';
import { load4, loadBf16x4, roundBf16x4, storeBf16x4 } from './rounding';

/** The dtype of page elements, as of weights. */
@inline
export function kvDtype(): i32 {
  return kvIsBf16 ? DTYPE_BF16 : DTYPE_F32;
}

/** Bytes of `elements`. */
@inline
export function kvBytes(elements: i32): usize {
  return <usize>elements << (kvIsBf16 ? 1 : 2);
}

/** Address of element `element` at byte offset `base` of the page that covers `position`. */
export function pageElement(sequence: i32, position: i32, base: i32, element: i32): usize {
  return pageAddress(sequence, position / pageTokens) + <usize>base + kvBytes(element);
}

/** Stores `count` float32 there. */
export function storeKv(to: usize, x: usize, count: i32): void {
  if (!kvIsBf16) {
    memory.copy(to, x, <usize>count << 2);
    return;
  }
  for (let i = 0; i < count; i += 4) {
    const rounded = roundBf16x4(load4(x + (<usize>i << 2), count - i));
    const at = to + (<usize>i << 1);
    if (count - i >= 4) {
      storeBf16x4(at, rounded);
    } else {
      v128.store16_lane(at, rounded, 1);
      if (count - i > 1) v128.store16_lane(at, rounded, 3, 2);
      if (count - i > 2) v128.store16_lane(at, rounded, 5, 4);
    }
  }
}

/** Widens `count` elements to float32. */
export function loadKv(from: usize, count: i32, to: usize): void {
  widen(from, kvDtype(), count, to);
}

/** Four elements, widened. */
@inline
export function loadKv4(from: usize): v128 {
  return kvIsBf16 ? loadBf16x4(from) : v128.load(from);
}
