/**
 * serial.jsonl: the host half of the float32 candidate lane. The device's candidates and masses are inputs; the scaled
 * values, the order, the support, the distribution, the token and the number of evaluations are judged.
 */
import { HostShaper } from '../laws/mtplx/host-distribution.js';
import type { Distribution } from '../laws/mtplx/distribution.js';
import type { Filters } from '../laws/mtplx/filters.js';
import {
  candidateCount,
  mayReachOutside,
  rankedSupport,
  scaledLogit,
  serialDistribution,
  type Candidates,
  type Support,
} from '../laws/mtplx/serial-lane.js';
import { Pcg64 } from '../rng/pcg64.js';
import { checkRow } from '../validity.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import { fieldFormat } from './format.js';
import {
  attempt,
  checkDistribution,
  checkError,
  contextFor,
  PROBABILITY_TOLERANCE,
  rowOf,
  settingsOf,
  vocabSizeOf,
} from './sampler-common.js';

/** The exact selection that replaces the support when a tie may reach outside the candidates. */
function spilled(line: Fields, row: Float32Array, filters: Filters, k: number): Support {
  const spill = line.object('spill');
  const ids = spill.integers('ids');
  const values = Float32Array.from(ids, (id) => scaledLogit(row[id] ?? Number.NaN, filters.temperature));
  return rankedSupport({ ids, values, masses: spill.floats('probs') }, k, filters);
}

function judgeCandidates(line: Fields, row: Float32Array, filters: Filters, check: Checker): Candidates {
  const ids = line.integers('cand_ids');
  const values = line.floats('cand_vals');
  const masses = line.has('cand_probs') ? line.floats('cand_probs') : undefined;
  const count = candidateCount(line.integer('k'), row.length);
  check.equal('m', count, line.integer('m'));
  check.equal('candidates', ids.length, count);
  check.sequence(
    'candidate values',
    ids.map((id) => scaledLogit(row[id] ?? Number.NaN, filters.temperature)),
    values,
  );
  return { ids, values, masses };
}

function judge(line: Fields, check: Checker): void {
  const vocabSize = vocabSizeOf(line);
  const row = rowOf(line, 'logits', vocabSize);
  const filters = settingsOf(line.object('cfg'));
  const context = contextFor(filters);
  const k = Math.min(filters.topK, vocabSize);
  const random = new Pcg64(line.bigint('seed'));
  check.equal('initial state', random.stateHex, line.text('state0'));
  check.equal('k', k, line.integer('k'));

  const candidates = judgeCandidates(line, row, filters, check);
  const outside = mayReachOutside(candidates, k);
  check.equal('exact selection asked for', outside, line.has('spill'));
  const support = outside && line.has('spill') ? spilled(line, row, filters, k) : rankedSupport(candidates, k, filters);
  check.sequence('support ids', support.ids, line.integers('support_ids'));
  check.close('support masses', support.masses, line.doubles('support_probs'), PROBABILITY_TOLERANCE);

  const lane = serialDistribution(support, context);
  check.equal('mass', lane === 'bad-mass' ? 'bad' : 'ok', line.text('mass'));
  check.equal('evaluations', 1 + Number(outside) + Number(lane === 'bad-mass'), line.integer('evals'));
  const decided: Distribution | Error =
    lane === 'bad-mass'
      ? attempt(() => new HostShaper(vocabSize).shape(checkRow(row, context), filters, context))
      : lane;

  check.equal('the lane decides', lane !== 'bad-mass', line.has('dist'));
  if (line.has('error')) {
    checkError(check, 'host law', decided, line.object('error'));
  } else if (decided instanceof Error) {
    check.that(false, () => decided.message);
  } else {
    checkDistribution(
      check,
      'distribution',
      decided,
      line.object(lane === 'bad-mass' ? 'host_dist' : 'dist'),
      vocabSize,
    );
    check.equal('token', decided.draw(random), line.integer('token'));
  }
  check.equal('state', random.stateHex, line.text('state'));
}

export const serialFormat = fieldFormat('sampler/serial', ['cand_ids', 'cand_vals', 'support_ids'], () => judge);
