/**
 * mlx-rng.jsonl: keys, splits, bits, uniforms, Gumbel variates, both categorical laws with their intermediates, and the
 * implicit key sequence. Everything compares exactly; Gumbel variates may differ by what one ulp of each logarithm makes.
 */
import { FLOAT_TYPES } from '../../numerics/mlx/float-type.js';
import {
  categorical,
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
    check.sequence('keys', splitKey(keyOf(line), line.integer('n')).flat(), line.integers('keys'));
  }
};

const judgeBits: LineJudge = (line, check) => {
  const width = line.integer('width');
  if (width !== 1 && width !== 2 && width !== 4) return line.refuse('width', '1, 2 or 4');
  check.sequence('bits', randomBits(keyOf(line), sizeOf(line.integers('shape')), width), line.integers('out'));
};

const judgeUniform: LineJudge = (line, check) => {
  const type = floatTypeOf(line);
  const bound = (key: string): number => type.fromBits(Number.parseInt(line.text(key), 16));
  const got = uniform(keyOf(line), sizeOf(line.integers('shape')), type, bound('low'), bound('high'));
  checkBits(check, 'uniform', got, line, 'out', type);
};

const judgeGumbel: LineJudge = (line, check) =>
  checkGumbel(check, 'gumbel', gumbel(keyOf(line), sizeOf(line.integers('shape'))), line, 'out');

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
  const got = categorical(keyOf(line), logits, shape, line.integer('axis'), callOf(line));
  check.sequence('output shape', got.shape, line.integers('out_shape'));
  check.sequence('ids', got.ids, line.integers('out'));
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

/** The call of a `global` line in words: operation, row and type, shape, samples, and a key of its own. */
const GLOBAL_CALL =
  /^(bits|uniform|gumbel|categorical) (?:(f32|bf16|f16) |(\w+) )?\[([\d,]*)\](?: width (\d))?(?: (default|num_samples (\d+)))?(?: with explicit key\((\d+)\).*)?$/;

/** Draws of one implicit key sequence, in file order; rows are those that the file's other lines name. */
function globalJudge(rows: ReadonlyMap<string, readonly number[]>): LineJudge {
  const sequences = new Map<string, KeySequence>();
  return (line, check) => {
    const call = GLOBAL_CALL.exec(line.text('call'));
    if (call === null) return line.refuse('call', 'a known draw');
    const [, operation, type, rowName, shapeText, width, mode, samples, ownKey] = call;
    const seed = line.text('seed');
    const sequence = sequences.get(seed) ?? new KeySequence(line.bigint('seed'));
    sequences.set(seed, sequence);
    const key = ownKey === undefined ? sequence.next() : threefryKey(BigInt(ownKey));
    const shape = shapeText === '' ? [] : shapeText!.split(',').map(Number);
    if (operation === 'bits') {
      const bytes = Number(width) as 1 | 2 | 4;
      check.sequence('bits', randomBits(key, sizeOf(shape), bytes), line.integers('out'));
    } else if (operation === 'uniform') {
      const floatType = FLOAT_TYPES[type as keyof typeof FLOAT_TYPES];
      checkBits(check, 'uniform', uniform(key, sizeOf(shape), floatType), line, 'out', floatType);
    } else if (operation === 'gumbel') {
      checkGumbel(check, 'gumbel', gumbel(key, sizeOf(shape)), line, 'out');
    } else {
      const row = rows.get(rowName!);
      if (row === undefined) return line.refuse('call', 'about a row that the file gives before');
      const kind: CategoricalCall =
        mode === 'default' ? { kind: 'default' } : { kind: 'num-samples', count: Number(samples) };
      const got = categorical(key, row, shape, -1, kind);
      check.sequence('output shape', got.shape, line.integers('out_shape'));
      check.sequence('ids', got.ids, line.integers('out'));
    }
  };
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
