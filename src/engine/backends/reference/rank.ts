/** How values are ranked wherever the greatest are chosen: NaN as -inf, equal values by their index. */

/** A value as it ranks. */
export const rank = (value: number): number => (Number.isNaN(value) ? Number.NEGATIVE_INFINITY : value);

/** Indices of the `count` greatest values, ascending; equal values: lower index; NaN ranks as -inf. */
export function greatest(values: Float32Array, count: number): number[] {
  const before = (a: number, b: number): number => {
    const [x, y] = [rank(values[a]!), rank(values[b]!)];
    return x > y ? -1 : x < y ? 1 : a - b;
  };
  return Array.from(values.keys())
    .sort(before)
    .slice(0, count)
    .sort((a, b) => a - b);
}
