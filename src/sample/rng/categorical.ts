/**
 * Gumbel noise and the two laws of MLX's `categorical` (since 0.32.1): which one runs depends on shapes alone.
 *
 * Law A, Gumbel: the arg-max of noise + logits. Law B, inverse CDF: for one row of logits and an output with at least one
 * axis. Law B makes an ordinary id out of any invalid row (NaN: the last id; one +inf: its id), which is why every row is
 * checked before it gets here. Bits of the noise rest on the platform's logarithm; the ids normally do not.
 */
import { cpuExpF32, logF32 } from '../../numerics/mlx/cpu-exp.js';
import { FLOAT_TYPES } from '../../numerics/mlx/float-type.js';
import { argmax, maxPropagatingNaN, searchsorted } from '../../numerics/mlx/order.js';
import { cumsum, sum } from '../../numerics/mlx/reduce.js';
import { randomWords, unitUniform, type ThreefryKey } from './threefry.js';

const fround = Math.fround;

/** -log(-log(u)), each logarithm rounded to float32; u = 0 gives -inf. */
export function gumbelOf(u: number): number {
  return -logF32(-logF32(u));
}

/** `count` float32 Gumbel variates. */
export function gumbel(key: ThreefryKey, count: number): number[] {
  return Array.from(randomWords(key, count), (word) => gumbelOf(unitUniform(word)));
}

/** The intermediates of law B, all float32. */
export interface InverseCdf {
  readonly max: number;
  readonly weights: readonly number[];
  /** Exclusive running sum: starts at 0. */
  readonly cdf: readonly number[];
  readonly total: number;
}

/** Prepares law B for one row; exp is the CPU back end's. */
export function inverseCdf(logits: ArrayLike<number>): InverseCdf {
  const max = maxPropagatingNaN(logits);
  const infinite = max === Infinity || max === -Infinity;
  const weights = Array.from(logits, (x) => (infinite ? Number(x === max) : cpuExpF32(fround(x - max))));
  const cdf = cumsum(weights, FLOAT_TYPES.f32, { inclusive: false, reverse: false });
  return { max, weights, cdf, total: sum(weights, FLOAT_TYPES.f32) };
}

/** The index that a uniform u selects under law B. */
export function inverseCdfIndex({ cdf, total }: InverseCdf, u: number): number {
  return searchsorted(cdf, fround(u * total), 'right') - 1;
}

/** Which output a categorical call asks for. */
export type CategoricalCall =
  | { readonly kind: 'default' }
  | { readonly kind: 'num-samples'; readonly count: number }
  | { readonly kind: 'shape'; readonly shape: readonly number[] };

const product = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** Row-major strides of a shape. */
function stridesOf(shape: readonly number[]): number[] {
  return shape.map((_, axis) => product(shape.slice(axis + 1)));
}

/** Offset of the element with multi-index `index` in an array of `shape` that broadcasts from the right. */
function broadcastOffset(shape: readonly number[], index: readonly number[]): number {
  const strides = stridesOf(shape);
  const lead = index.length - shape.length;
  return shape.reduce((offset, size, axis) => offset + (size === 1 ? 0 : index[axis + lead]! * strides[axis]!), 0);
}

/** Multi-index of a row-major offset. */
function indexOf(shape: readonly number[], offset: number): number[] {
  return stridesOf(shape).map((stride, axis) => Math.floor(offset / stride) % shape[axis]!);
}

const without = (shape: readonly number[], axis: number): number[] => shape.filter((_, i) => i !== axis);

/** The shape of what a call gives; `axis` may be negative. */
export function categoricalShape(shape: readonly number[], axis: number, call: CategoricalCall): number[] {
  if (call.kind === 'shape') return [...call.shape];
  const rest = without(shape, axis < 0 ? axis + shape.length : axis);
  return call.kind === 'default' ? rest : [...rest, call.count];
}

export interface CategoricalResult {
  readonly shape: readonly number[];
  readonly ids: readonly number[];
}

/**
 * `mlx.random.categorical` on the CPU.
 * @param logits row-major; @param shape its shape; @param axis the axis to draw along, may be negative.
 */
export function categorical(
  key: ThreefryKey,
  logits: ArrayLike<number>,
  shape: readonly number[],
  axis: number,
  call: CategoricalCall,
): CategoricalResult {
  const along = axis < 0 ? axis + shape.length : axis;
  const vocabSize = shape[along]!;
  const output = categoricalShape(shape, along, call);
  if (vocabSize > 0 && logits.length === vocabSize && output.length > 0) {
    const law = inverseCdf(logits);
    return {
      shape: output,
      ids: Array.from(randomWords(key, product(output)), (word) => inverseCdfIndex(law, unitUniform(word))),
    };
  }
  return { shape: output, ids: gumbelIds(key, logits, shape, along, call, output) };
}

/** Law A over one block of noise; the noise has the logits' shape, plus samples as its fastest axis, or the asked shape. */
function gumbelIds(
  key: ThreefryKey,
  logits: ArrayLike<number>,
  shape: readonly number[],
  axis: number,
  call: CategoricalCall,
  output: readonly number[],
): number[] {
  const vocabSize = shape[axis]!;
  const inserted = call.kind === 'shape' ? axis + output.length - shape.length + 1 : axis;
  const noiseShape = [...output.slice(0, inserted), vocabSize, ...output.slice(inserted)];
  const logitsShape = call.kind === 'num-samples' ? [...shape, 1] : shape;
  const noise = gumbel(key, product(noiseShape));
  const strides = stridesOf(noiseShape);
  return Array.from({ length: product(output) }, (_, at) => {
    const fixed = indexOf(output, at);
    const row = Array.from({ length: vocabSize }, (_unused, id) => {
      const index = [...fixed.slice(0, inserted), id, ...fixed.slice(inserted)];
      const offset = index.reduce((sumSoFar, i, a) => sumSoFar + i * strides[a]!, 0);
      return fround(noise[offset]! + logits[broadcastOffset(logitsShape, index)]!);
    });
    return argmax(row, 'cpu');
  });
}
