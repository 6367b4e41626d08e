/**
 * mlx-sort.jsonl: order, sums, softmax and elementwise functions of MLX's CPU back end.
 *
 * Selections of the CPU are sets in an unspecified order, so they are sorted before they compare. Everything else is exact;
 * logarithms, and logsumexp through them, may differ by one ulp of the C library's.
 */
import { cpuExpF32, logF32 } from '../../numerics/mlx/cpu-exp.js';
import type { FloatType } from '../../numerics/mlx/float-type.js';
import {
  argmax,
  argmin,
  argsort,
  maxPropagatingNaN,
  minPropagatingNaN,
  searchsorted,
  sorted,
  topk,
} from '../../numerics/mlx/order.js';
import { cumsum, sum } from '../../numerics/mlx/reduce.js';
import { logsumexp, softmax } from '../../numerics/mlx/softmax.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import { opFormat } from './format.js';
import { checkBits, floatTypeOf, valuesOf } from './mlx-common.js';

interface Case {
  readonly line: Fields;
  readonly check: Checker;
  readonly x: readonly number[];
  readonly type: FloatType;
}

type Judge = (it: Case) => void;

const ids =
  (compute: (x: readonly number[]) => number | number[]): Judge =>
  ({ line, check, x }) =>
    check.sequence(line.text('op'), [compute(x)].flat(), line.integers('out'));

const floats =
  (compute: (x: readonly number[], type: FloatType, line: Fields) => number | number[]): Judge =>
  ({ line, check, x, type }) =>
    checkBits(check, line.text('op'), [compute(x, type, line)].flat(), line, 'out', type);

/** Float32 results within one ulp of the C library's logarithm, then rounded to the type. */
const withinLogUlp =
  (compute: (x: readonly number[], type: FloatType) => number[]): Judge =>
  ({ line, check, x, type }) => {
    const nearest = (value: number, by: number): number => type.round(Math.fround(value * (1 + by * 2 ** -23)));
    const wanted = valuesOf(line, 'out', type);
    compute(x, type).forEach((value, i) => {
      const candidates = [-1, 0, 1].map((by) => nearest(value, by));
      check.that(
        candidates.includes(wanted[i]!),
        () => `${line.text('op')}[${i}]: got ${value}, expected ${wanted[i]}`,
      );
    });
  };

const negated = (x: readonly number[]): number[] => x.map((value) => -value);

/** The first kth + 1 positions hold the kth + 1 least, the rest the others, each in any order. */
function partitionSets<T>(all: readonly T[], kth: number, order: (part: readonly T[]) => unknown[]): unknown[] {
  const cut = (kth < 0 ? kth + all.length : kth) + 1;
  return [...order(all.slice(0, cut)), ...order(all.slice(cut))];
}

const ascending = (part: readonly number[]): number[] => [...part].sort((a, b) => a - b);

const argpartition =
  (of: (x: readonly number[]) => readonly number[]): Judge =>
  ({ line, check, x }) => {
    const kth = line.integer('kth');
    const wanted = line.integers('out');
    check.sequence('permutation', ascending(wanted), Array.from(x.keys()));
    // The CPU's comparison breaks ties by index, but not between two NaN: those are interchangeable.
    const anonymous = (indices: readonly number[]): number[] => indices.map((i) => (Number.isNaN(x[i]) ? -1 : i));
    const got = partitionSets(anonymous(argsort(of(x))), kth, ascending);
    check.sequence(line.text('op'), got, partitionSets(anonymous(wanted), kth, ascending));
  };

/** Ascending, with one zero: a selection of values may put -0 and 0, which tie, either way round. */
const sortedValues = (x: readonly number[]): number[] => sorted(x.map((value) => value + 0));

const partition: Judge = ({ line, check, x, type }) => {
  const kth = line.integer('kth');
  const values = valuesOf(line, 'out', type);
  check.sequence('partition', partitionSets(sorted(x), kth, sortedValues), partitionSets(values, kth, sortedValues));
};

const judgeTopk: Judge = ({ line, check, x, type }) => {
  const k = line.integer('k');
  const order = k === x.length ? (values: number[]): number[] => values : sortedValues;
  check.sequence('topk', order(topk(x, k)), order(valuesOf(line, 'out', type)));
};

/** arg-max along an axis of a two-dimensional array, or of the flattened one. */
const judgeArgmax: Judge = (it) => {
  const { line, check, x } = it;
  if (!line.has('shape')) return ids((row) => argmax(row, 'cpu'))(it);
  const [rows, columns] = line.integers('shape');
  if (rows === undefined || columns === undefined || rows < 1 || rows * columns !== x.length) {
    return line.refuse('shape', `two sizes of ${x.length} values`);
  }
  const row = (r: number): number[] => x.slice(r * columns, (r + 1) * columns);
  const column = (c: number): number[] => Array.from({ length: rows }, (_, r) => x[r * columns + c]!);
  const slices = !line.has('axis')
    ? [[...x]]
    : line.integer('axis') === 1
      ? Array.from({ length: rows }, (_, r) => row(r))
      : Array.from({ length: columns }, (_, c) => column(c));
  check.sequence(
    'argmax',
    slices.map((slice) => argmax(slice, 'cpu')),
    line.integers('out'),
  );
};

const JUDGES: Readonly<Record<string, Judge>> = {
  argmax: judgeArgmax,
  argmin: ids((x) => argmin(x, 'cpu')),
  argsort: ids(argsort),
  argsort_neg: ids((x) => argsort(negated(x))),
  argpartition: argpartition((x) => x),
  argpartition_neg: argpartition(negated),
  partition,
  topk: judgeTopk,
  sort: floats(sorted),
  max: floats(maxPropagatingNaN),
  min: floats(minPropagatingNaN),
  sum: floats(sum),
  cumsum: floats((x, type, line) =>
    cumsum(x, type, { inclusive: line.flag('inclusive'), reverse: line.flag('reverse') }),
  ),
  softmax: floats((x, type, line) => softmax(x, type, line.flag('precise'))),
  exp: floats((x, type) => x.map((value) => type.round(cpuExpF32(value)))),
  logsumexp: withinLogUlp((x, type) => [logsumexp(x, type)]),
  log: withinLogUlp((x) => x.map(logF32)),
  searchsorted: ({ line, check, x, type }) => {
    const side = line.text('side');
    if (side !== 'left' && side !== 'right') return line.refuse('side', '"left" or "right"');
    const sequence = valuesOf(line, 'sequence', type);
    check.sequence(
      'searchsorted',
      x.map((value) => searchsorted(sequence, value, side)),
      line.integers('out'),
    );
  },
};

export const mlxSortFormat = opFormat('mlx/sort', Object.keys(JUDGES), () => (line, check) => {
  const type = floatTypeOf(line);
  JUDGES[line.text('op')]!({ line, check, x: valuesOf(line, 'in', type), type });
});
