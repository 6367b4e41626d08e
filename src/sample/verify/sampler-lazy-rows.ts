/**
 * lazy-rows.jsonl: the synthetic 64-wide rows, sampled with many seeds and through the deferred draw.
 *
 * The exact deferred ids rest on float32 bits of a device stand-in, so they compare by membership in the line's contract;
 * what the old lane made of invalid rows with key 7 compares exactly, because it rests on counting alone.
 */
import { NonFiniteLogitsError } from '../../errors.js';
import { candidateAt, deferredDraw } from '../laws/mtplx/deferred.js';
import { HostShaper } from '../laws/mtplx/host-distribution.js';
import { Pcg64 } from '../rng/pcg64.js';
import { threefryKey } from '../rng/threefry.js';
import { checkRow, type ValidRow } from '../validity.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import { fieldFormat } from './format.js';
import {
  attempt,
  checkError,
  contextFor,
  rowOf,
  settingsOf,
  type FixtureSettings,
  vocabSizeOf,
} from './sampler-common.js';

const OLD_LANE_KEY = 7n;

function judgeSampled(line: Fields, row: Float32Array, settings: FixtureSettings, check: Checker): void {
  const context = contextFor(settings);
  const shaper = new HostShaper(row.length);
  const allowed = line.isText('contract') ? [] : line.integers('contract');
  for (const run of line.objects('sampled')) {
    const random = new Pcg64(run.bigint('seed'));
    const got = attempt((): readonly [ValidRow, number] => {
      const valid = checkRow(row, context);
      return [valid, shaper.draw(valid, settings, context, random)];
    });
    if (run.has('error')) {
      check.equal('contract', line.text('contract'), 'error');
      checkError(check, 'sampled', got, run);
    } else if (got instanceof Error) {
      check.that(false, () => `sampled: ${got.message}`);
    } else {
      const token = Number(got[0].token(got[1]));
      check.equal('sampled token', token, run.integer('token'));
      check.equal('sampled state', random.stateHex, run.text('state'));
      check.that(allowed.includes(token), () => `sampled token ${token} breaks the contract`);
    }
  }
}

function judgeDeferred(line: Fields, row: Float32Array, settings: FixtureSettings, check: Checker): void {
  const refused = line.isNumber('lazy_contract');
  if (refused) check.equal('deferred contract', line.integer('lazy_contract'), -1);
  const allowed = refused ? [-1] : line.integers('lazy_contract');
  for (const run of line.objects('lazy')) {
    const draw = deferredDraw(row, settings, threefryKey(BigInt(run.integer('key'))), contextFor(settings));
    check.that(allowed.includes(draw.id), () => `deferred id ${draw.id} breaks the contract`);
    check.that(allowed.includes(run.integer('token')), () => `recorded id ${run.integer('token')} breaks the contract`);
    const read = attempt(() => draw.read());
    check.equal('reading the deferred id raises', read instanceof NonFiniteLogitsError, refused);
  }
  if (!line.has('old_lane_key7')) return;
  check.equal('old lane', candidateAt(row, settings, threefryKey(OLD_LANE_KEY)), line.integer('old_lane_key7'));
}

function judge(line: Fields, check: Checker): void {
  const row = rowOf(line, 'logits', vocabSizeOf(line));
  const settings = settingsOf(line.object('cfg'));
  judgeSampled(line, row, settings, check);
  if (line.has('lazy')) judgeDeferred(line, row, settings, check);
}

export const lazyRowsFormat = fieldFormat('sampler/lazy-rows', ['row', 'sampled', 'contract'], () => judge);
