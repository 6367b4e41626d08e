/**
 * mlx-rng.jsonl: keys, splits, bits, uniforms, Gumbel variates, both categorical laws with their intermediates, and the
 * implicit key sequence. Everything compares exactly; Gumbel variates may differ by what one ulp of each logarithm makes.
 */
import { FLOAT_TYPES } from '../../numerics/mlx/float-type.js';
import {
  categorical,
  categoricalShape,
  gumbel,
  gumbelOf,
  inverseCdf,
  inverseCdfIndex,
  type CategoricalCall,
} from '../rng/categorical.js';
import {
  dividedWord,
  KeySequence,
  randomBits,
  randomWords,
  splitKey,
  threefryKey,
  uniform,
  unitUniform,
  type ThreefryKey,
} from '../rng/threefry.js';
import { argmax, searchsorted } from '../../numerics/mlx/order.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import { opFormat, type LineJudge } from './format.js';
import { checkBits, floatTypeOf, valuesOf } from './mlx-common.js';

const F32 = FLOAT_TYPES.f32;

/** One ulp of the inner logarithm is relative to it, hence absolute in the outer one, which adds its own. */
const LOG_ULP = 2 ** -23;

const keyOf = (line: Fields): ThreefryKey => threefryKey(line.bigint('seed'));
const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** A shape of as many elements as results are recorded: the results bound what is computed. */
function recordedSize(line: Fields, shape: readonly number[], results: readonly unknown[]): number {
  if (shape.some((size) => size < 0) || sizeOf(shape) !== results.length) {
    line.refuse('shape', `one of ${results.length} elements`);
  }
  return results.length;
}

/** As many elements as the line's `out` has. */
const outSize = (line: Fields, shape: readonly number[] = line.integers('shape')): number =>
  recordedSize(line, shape, line.list('out'));

function checkGumbel(check: Checker, what: string, got: ArrayLike<number>, line: Fields, key: string): void {
  check.close(what, got, valuesOf(line, key, F32), LOG_ULP, LOG_ULP);
}

const judgeKey: LineJudge = (line, check) => check.sequence('key', keyOf(line), line.integers('key'));

const judgeSplit: LineJudge = (line, check) => {
  if (line.isText('n')) {
    const [left, right] = splitKey(keyOf(line), 2);
    check.sequence('left', left!, line.integers('left'));
    check.sequence('right', right!, line.integers('right'));
  } else {
    const keys = line.integers('keys');
    check.sequence('keys', splitKey(keyOf(line), recordedSize(line, [line.integer('n'), 2], keys) / 2).flat(), keys);
  }
};

const judgeBits: LineJudge = (line, check) => {
  const width = line.integer('width');
  if (width !== 1 && width !== 2 && width !== 4) return line.refuse('width', '1, 2 or 4');
  check.sequence('bits', randomBits(keyOf(line), outSize(line), width), line.integers('out'));
};

const judgeUniform: LineJudge = (line, check) => {
  const type = floatTypeOf(line);
  const bound = (key: string): number => type.fromBits(Number.parseInt(line.text(key), 16));
  const got = uniform(keyOf(line), outSize(line), type, bound('low'), bound('high'));
  checkBits(check, 'uniform', got, line, 'out', type);
};

const judgeGumbel: LineJudge = (line, check) => {
  check.equal('dtype', line.text('dtype'), 'f32');
  checkGumbel(check, 'gumbel', gumbel(keyOf(line), outSize(line)), line, 'out');
};

function callOf(line: Fields): CategoricalCall {
  switch (line.text('call')) {
    case 'default':
      return { kind: 'default' };
    case 'num_samples':
      return { kind: 'num-samples', count: line.integer('num_samples') };
    case 'shape':
      return { kind: 'shape', shape: line.integers('shape') };
    default:
      return line.refuse('call', '"default", "num_samples" or "shape"');
  }
}

const judgeCategorical: LineJudge = (line, check) => {
  const logits = valuesOf(line, 'logits', floatTypeOf(line, 'logits_dtype'));
  const shape = line.integers('logits_shape');
  if (logits.length !== sizeOf(shape)) line.refuse('logits', 'as long as logits_shape says');
  const axis = line.integer('axis');
  if (shape[axis < 0 ? axis + shape.length : axis] === undefined) line.refuse('axis', 'an axis of logits_shape');
  const call = callOf(line);
  const expected = categoricalShape(shape, axis, call);
  const wanted = line.integers('out');
  check.sequence('output shape', expected, line.integers('out_shape'));
  check.equal('number of ids', wanted.length, sizeOf(expected));
  if (wanted.length !== sizeOf(expected)) return; // the recorded ids bound what is computed
  check.sequence('ids', categorical(keyOf(line), logits, shape, axis, call).ids, wanted);
};

const judgeGumbelLaw: LineJudge = (line, check) => {
  const logits = valuesOf(line, 'logits', F32);
  checkGumbel(check, 'gumbel', gumbel(keyOf(line), logits.length), line, 'gumbel');
  const noise = valuesOf(line, 'gumbel', F32); // the recorded noise, so that what follows compares exactly
  const sums = logits.map((x, i) => Math.fround(noise[i]! + x));
  checkBits(check, 'sum', sums, line, 'sum', F32);
  check.sequence('argmax', [argmax(sums, 'cpu')], line.integers('argmax'));
};

const judgeInverseCdf: LineJudge = (line, check) => {
  const law = inverseCdf(valuesOf(line, 'logits', F32));
  checkBits(check, 'max', [law.max], line, 'max', F32);
  checkBits(check, 'weights', law.weights, line, 'weights', F32);
  checkBits(check, 'exclusive_cdf', law.cdf, line, 'exclusive_cdf', F32);
  checkBits(check, 'total', [law.total], line, 'total', F32);
  const u = unitUniform(randomWords(keyOf(line), 1)[0]!);
  const scaled = Math.fround(u * law.total);
  checkBits(check, 'uniform', [u], line, 'uniform', F32);
  checkBits(check, 'scaled', [scaled], line, 'scaled', F32);
  check.sequence('searchsorted_right', [searchsorted(law.cdf, scaled, 'right')], line.integers('searchsorted_right'));
  check.sequence('index', [inverseCdfIndex(law, u)], line.integers('index'));
};

const judgeGlobalKeys: LineJudge = (line, check) => {
  const sequence = new KeySequence(line.bigint('seed'));
  line.objects('steps').forEach((step, i) => {
    check.sequence(`step ${i} state`, sequence.current, step.integers('state_in'));
    check.sequence(`step ${i} key`, sequence.next(), step.integers('used'));
    check.sequence(`step ${i} next state`, sequence.current, step.integers('state_out'));
  });
};

const judgeWords: LineJudge = (line, check) => {
  const words = line.integers('words');
  checkBits(check, 'divided', words.map(dividedWord), line, 'divided', F32);
  checkBits(check, 'clamped', words.map(unitUniform), line, 'clamped', F32);
  checkGumbel(
    check,
    'gumbel',
    words.map((word) => gumbelOf(unitUniform(word))),
    line,
    'gumbel',
  );
};

/** The call of a `global` line in words: operation, row or type, shape, samples, and a key of its own. */
const GLOBAL_CALL =
  /^(bits|uniform|gumbel|categorical) (?:(f32|bf16|f16) |(\w+) )?\[([\d,]*)\](?: width ([124]))?(?: (default|num_samples (\d+)))?(?: with explicit key\((\d+)\).*)?$/;

interface GlobalCall {
  readonly operation: string;
  readonly typeName: string | undefined;
  readonly rowName: string | undefined;
  readonly shape: readonly number[];
  readonly width: string | undefined;
  readonly samples: string | undefined;
  /** A key of the call's own: then the sequence does not advance. */
  readonly ownKey: string | undefined;
}

function globalCallOf(line: Fields): GlobalCall {
  const match = GLOBAL_CALL.exec(line.text('call'));
  if (match === null) return line.refuse('call', 'a known draw');
  const [, operation, typeName, rowName, shape, width, , samples, ownKey] = match;
  const sizes = shape === '' ? [] : shape!.split(',').map(Number);
  return { operation: operation!, typeName, rowName, shape: sizes, width, samples, ownKey };
}

/** Draws of one implicit key sequence a seed, in file order; rows are those that earlier lines gave by name. */
function globalJudge(rows: ReadonlyMap<string, readonly number[]>): LineJudge {
  const sequences = new Map<string, { readonly keys: KeySequence; draws: number }>();
  return (line, check) => {
    const call = globalCallOf(line);
    const seed = line.text('seed');
    const sequence = sequences.get(seed) ?? { keys: new KeySequence(line.bigint('seed')), draws: 0 };
    sequences.set(seed, sequence);
    check.equal('draw', sequence.draws++, line.integer('draw'));
    const key = call.ownKey === undefined ? sequence.keys.next() : threefryKey(BigInt(call.ownKey));
    check.sequence('output shape', judgeGlobalCall(call, key, rows, line, check), line.integers('out_shape'));
  };
}

/** @returns the shape of the output. */
function judgeGlobalCall(
  { operation, typeName, rowName, shape, width, samples }: GlobalCall,
  key: ThreefryKey,
  rows: ReadonlyMap<string, readonly number[]>,
  line: Fields,
  check: Checker,
): readonly number[] {
  if (operation === 'categorical') {
    const row = rows.get(rowName ?? '');
    if (row?.length !== sizeOf(shape)) return line.refuse('call', 'about a row that an earlier line gives');
    const call: CategoricalCall =
      samples === undefined ? { kind: 'default' } : { kind: 'num-samples', count: Number(samples) };
    const output = categoricalShape(shape, -1, call);
    outSize(line, output);
    check.sequence('ids', categorical(key, row, shape, -1, call).ids, line.integers('out'));
    return output;
  }
  if (operation === 'bits') {
    check.sequence(
      'bits',
      randomBits(key, outSize(line, shape), Number(width ?? 4) as 1 | 2 | 4),
      line.integers('out'),
    );
  } else if (operation === 'gumbel') {
    checkGumbel(check, 'gumbel', gumbel(key, outSize(line, shape)), line, 'out');
  } else {
    const type = FLOAT_TYPES[typeName === 'bf16' || typeName === 'f16' ? typeName : 'f32'];
    checkBits(check, 'uniform', uniform(key, outSize(line, shape), type), line, 'out', type);
  }
  return shape;
}

function judge(): LineJudge {
  const rows = new Map<string, readonly number[]>();
  const judges: Readonly<Record<string, LineJudge>> = {
    key: judgeKey,
    split: judgeSplit,
    bits: judgeBits,
    uniform: judgeUniform,
    gumbel: judgeGumbel,
    categorical: (line, check) => {
      if (line.text('logits_dtype') === 'f32') rows.set(line.text('row'), valuesOf(line, 'logits', F32));
      judgeCategorical(line, check);
    },
    gumbel_law: judgeGumbelLaw,
    inverse_cdf_law: judgeInverseCdf,
    global: globalJudge(rows),
    global_keys: judgeGlobalKeys,
    word_to_uniform: judgeWords,
  };
  return (line, check) => judges[line.text('op')]!(line, check);
}

export const mlxRngFormat = opFormat(
  'mlx/rng',
  [
    'key',
    'split',
    'bits',
    'uniform',
    'gumbel',
    'categorical',
    'gumbel_law',
    'inverse_cdf_law',
    'global',
    'global_keys',
    'word_to_uniform',
  ],
  judge,
);
