/** mixed.jsonl: construction of sparse distributions, acceptance probabilities, residuals, and one draft test. */
import { PlumblineError } from '../../errors.js';
import { acceptProbability, residual } from '../laws/mtplx/acceptance.js';
import { Distribution } from '../laws/mtplx/distribution.js';
import { Pcg64 } from '../rng/pcg64.js';
import type { RowContext } from '../validity.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import { opFormat } from './format.js';
import { checkError, idsOf, PROBABILITY_TOLERANCE, RESIDUAL_TOLERANCE, vocabSizeOf } from './sampler-common.js';

const CONTEXT: RowContext = { site: 'SparseDistribution', phase: 'decode', step: 0 };

function construct(mode: string, ids: Int32Array, probs: Float64Array): Distribution | PlumblineError {
  try {
    return mode === 'onehot' ? Distribution.oneHot(ids[0] ?? 0) : Distribution.sparse(ids, probs, CONTEXT);
  } catch (thrown) {
    if (thrown instanceof PlumblineError) return thrown;
    throw thrown;
  }
}

function judgeConstruct(line: Fields, check: Checker): void {
  const probs = Float64Array.from(line.lists('probs', (item) => item.double('item')));
  const got = construct(line.text('mode'), Int32Array.from(line.integers('ids')), probs);
  const want = line.object('out');
  if (want.has('error')) {
    if (want.text('error') === 'ValueError') {
      const refused = got instanceof PlumblineError && got.code === 'invalid_distribution';
      check.that(refused, () => `construct: expected a refusal (${want.text('why')})`);
    } else {
      checkError(check, 'construct', got, want);
    }
    return;
  }
  if (got instanceof Error) {
    check.that(false, () => `construct: ${got.message}`);
    return;
  }
  check.sequence('ids', got.ids, want.integers('ids'));
  check.close('probabilities', got.probs, want.doubles('probs'), PROBABILITY_TOLERANCE);
  check.close('dense', got.toDense(vocabSizeOf(line)), want.doubles('dense'), PROBABILITY_TOLERANCE);
  for (const [id, p] of want.amounts('probability')) {
    check.close(`probability of ${id}`, [got.probabilityOf(id)], [p], PROBABILITY_TOLERANCE);
  }
  const random = new Pcg64(want.bigint('seed'));
  check.equal('token', got.draw(random), want.integer('token'));
  check.equal('state', random.stateHex, want.text('state'));
}

/** A distribution as the file gives it: already normalised, so its entries are taken as they are. */
function given(fields: Fields, vocabSize: number): Distribution {
  const ids = Int32Array.from(idsOf(fields, 'ids', vocabSize));
  const probs = fields.doubles('probs');
  return fields.has('dense') && fields.flag('dense')
    ? Distribution.dense(ids, probs, vocabSize)
    : Distribution.sparse(ids, probs, CONTEXT);
}

function judgeResidual(line: Fields, check: Checker): void {
  const vocabSize = vocabSizeOf(line);
  const target = given(line.object('target'), vocabSize);
  const draft = given(line.object('draft'), vocabSize);
  const accept = Float64Array.from({ length: vocabSize }, (_, id) =>
    acceptProbability(target.probabilityOf(id), draft.probabilityOf(id)),
  );
  check.close('accept', accept, line.doubles('accept'), PROBABILITY_TOLERANCE);

  const left = residual(target, draft, CONTEXT);
  const want = line.object('residual');
  check.equal('residual frame', left.rowLength !== undefined, want.has('dense') && want.flag('dense'));
  check.sequence('residual ids', left.ids, idsOf(want, 'ids', vocabSize));
  check.close('residual', left.probs, want.doubles('probs'), 0, RESIDUAL_TOLERANCE);
  checkMarginal(target, draft, accept, left, check);

  const random = new Pcg64(line.bigint('seed'));
  check.equal('token', left.draw(random), line.integer('token'));
  check.equal('state', random.stateHex, line.text('state'));
  judgeDraftTest(line.object('verify'), new Pcg64(line.bigint('seed')), { target, draft, left }, check);
}

/** Draft, accept or take the residual: the emitted token must follow the target. */
function checkMarginal(
  target: Distribution,
  draft: Distribution,
  accept: Float64Array,
  left: Distribution,
  check: Checker,
): void {
  let rejected = 1;
  draft.ids.forEach((id, i) => (rejected -= draft.probs[i]! * accept[id]!));
  let distance = 0;
  for (let id = 0; id < accept.length; id++) {
    const emitted = draft.probabilityOf(id) * accept[id]! + rejected * left.probabilityOf(id);
    distance += Math.abs(emitted - target.probabilityOf(id)) / 2;
  }
  check.that(distance <= RESIDUAL_TOLERANCE, () => `emitted law is ${distance} away from the target`);
}

function judgeDraftTest(
  verify: Fields,
  random: Pcg64,
  { target, draft, left }: Readonly<Record<'target' | 'draft' | 'left', Distribution>>,
  check: Checker,
): void {
  const drafted = verify.integer('draft');
  const threshold = acceptProbability(target.probabilityOf(drafted), draft.probabilityOf(drafted));
  check.close('verify a', [threshold], [verify.double('a')], PROBABILITY_TOLERANCE);
  const accepted = random.nextDouble() <= threshold;
  check.equal('verify accepted', accepted, verify.flag('accepted'));
  check.equal('verify token', accepted ? drafted : left.draw(random), verify.integer('token'));
  check.equal('verify state', random.stateHex, verify.text('state'));
}

function judge(line: Fields, check: Checker): void {
  if (line.text('op') === 'construct') judgeConstruct(line, check);
  else judgeResidual(line, check);
}

export const mixedFormat = opFormat('sampler/mixed', ['construct', 'residual'], () => judge);
