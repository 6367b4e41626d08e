/**
 * The acceptance of a recorded round replayed step by step from its pieces, in the form that the line names, over the
 * doubles that the served sampler drew; and the comparison of line, replay and served sampler.
 *
 * `lazy` shapes a target row when it is reached, as served; `list` and `batch` are the eager forms, which shape all of
 * them first and exist here only.
 */
import { NonFiniteLogitsError } from '../../errors.js';
import { acceptProbability, residual } from '../laws/mtplx/acceptance.js';
import { PADDING_ID, PaddedRows } from '../laws/mtplx/batched.js';
import { Distribution } from '../laws/mtplx/distribution.js';
import { laneOf } from '../laws/mtplx/filters.js';
import { HostShaper } from '../laws/mtplx/host-distribution.js';
import { RowSampler } from '../laws/mtplx/row-sampler.js';
import { draftLaw } from '../laws/mtplx/window-laws.js';
import { WindowRows } from '../laws/mtplx/window-rows.js';
import type { DraftChoice } from '../speculation.js';
import type { RowContext } from '../validity.js';
import type { Checker } from './checker.js';
import { shapeAll } from './eager-forms.js';
import type { Fields } from './fields.js';
import { FIRST_STEP, resolved, windowOf, type RoundLine, type ServedRound } from './round-line.js';
import { attempt, contextFor, idsOf, PROBABILITY_TOLERANCE, RESIDUAL_TOLERANCE } from './sampler-common.js';

export const RESIDUAL_CONTEXT: RowContext = { site: 'residual_correction', phase: 'verify', step: 0 };

/** One line with what was made of it. */
export interface RoundCase {
  readonly line: Fields;
  readonly round: RoundLine;
  readonly served: ServedRound;
  readonly check: Checker;
}

/** Target row i as the form shapes it. */
export type TargetRows = (index: number) => Distribution;

export function targetRowsOf({ line, round, served }: RoundCase): TargetRows {
  const form = line.text('form');
  const { vocabSize, target, targetRows } = round;
  const context = contextFor(target);
  if (form === 'lazy') {
    const unused = { nextDouble: (): number => 0 };
    const sampler = new RowSampler(resolved(target, round.seed), { vocabSize }, unused);
    const rows = new WindowRows(sampler, windowOf(round, served.drafts), served.counts);
    return (index) => rows.distribution(index);
  }
  if (target.presence !== 0 || target.frequency !== 0) line.refuse('form', 'lazy, where penalties are on');
  const list = shapeAll(targetRows, new HostShaper(vocabSize), target, context);
  if (form === 'list') return (index) => list[index]!;
  if (form !== 'batch') line.refuse('form', 'lazy, list or batch');
  const padded = PaddedRows.of(list, Math.max(...list.map(({ ids }) => ids.length)), context);
  return (index) => unpadded(padded.ids[index]!, padded.probs[index]!, context);
}

function unpadded(ids: Int32Array, probs: Float64Array, context: RowContext): Distribution {
  return Distribution.sparse(
    ids.filter((id) => id !== PADDING_ID),
    probs.filter((_, at) => ids[at] !== PADDING_ID),
    context,
  );
}

/** What differs between the laws. */
export interface ReplayedLaw {
  threshold(index: number): number;
  /** A threshold is a quotient of probabilities, or, in a ladder, of differences. */
  readonly tolerance: { readonly relative: number; readonly absolute: number };
  residual(index: number): Distribution;
  /** Compares what only this law records in `accept[index]`. */
  compare(index: number, want: Fields): void;
}

export function plainThreshold(rows: TargetRows, { distribution, tokenId }: DraftChoice, index: number): number {
  const q = distribution?.probabilityOf(tokenId) ?? 1;
  return acceptProbability(rows(index).probabilityOf(tokenId), q);
}

/** The plain law, from rows and drafts. */
export function plainReplay({ round, served, check }: RoundCase, rows: TargetRows): ReplayedLaw {
  const { drafts } = served;
  const residualAt = (index: number): Distribution => residual(rows(index), draftLaw(drafts[index]!), RESIDUAL_CONTEXT);
  return {
    threshold: (index) => plainThreshold(rows, drafts[index]!, index),
    tolerance: { relative: PROBABILITY_TOLERANCE, absolute: 0 },
    residual: residualAt,
    compare: (index, want) => {
      if (!want.has('residual')) return;
      checkResidual(check, `residual ${index}`, residualAt(index), want.object('residual'), round.vocabSize);
    },
  };
}

export function checkResidual(check: Checker, what: string, got: Distribution, want: Fields, vocabSize: number): void {
  check.equal(`${what} frame`, got.rowLength !== undefined, want.has('dense') && want.flag('dense'));
  check.sequence(`${what} ids`, got.ids, idsOf(want, 'ids', vocabSize));
  check.close(`${what} probabilities`, got.probs, want.doubles('probs'), 0, RESIDUAL_TOLERANCE);
}

interface Replayed {
  readonly outcome: 'all' | 'rejected' | 'stop' | 'error';
  readonly accepted: readonly number[];
  /** The correction or the bonus. */
  readonly next: number | undefined;
  readonly coins: number;
  readonly error?: NonFiniteLogitsError;
}

/** The window replayed over the recorded doubles, each step compared with the line. */
function replay({ line, round, served, check }: RoundCase, rows: TargetRows, law: ReplayedLaw): Replayed {
  const { drafts } = served;
  const sampled = laneOf(round.target) !== 'greedy';
  const doubles = served.drawn.slice(served.before);
  const draw = (): number => doubles.shift() ?? Number.NaN;
  const wants = line.objects('accept');
  const accepted: number[] = [];
  let coins = 0;
  for (const [index, { tokenId }] of drafts.entries()) {
    const target = attempt(() => rows(index));
    if (target instanceof NonFiniteLogitsError) {
      check.equal('bad row', index, line.has('bad_row') ? line.integer('bad_row') : undefined);
      check.equal('depths decided', wants.length, index);
      return { outcome: 'error', accepted, next: undefined, coins, error: target };
    }
    const want = wants[index];
    if (want === undefined) return line.refuse('accept', `a list with an entry for depth ${index}`);
    const threshold = law.threshold(index);
    check.close(`a ${index}`, [threshold], [want.double('a')], law.tolerance.relative, law.tolerance.absolute);
    let passes = threshold === 1;
    if (sampled) {
      const q = draftLaw(drafts[index]!).probabilityOf(tokenId);
      check.close(`p ${index}`, [target.probabilityOf(tokenId)], [want.double('p')], PROBABILITY_TOLERANCE);
      check.close(`q ${index}`, [q], [want.double('q')], PROBABILITY_TOLERANCE);
      const u = draw();
      coins++;
      check.equal(`u ${index}`, u, want.double('u'));
      passes = u <= threshold;
    } else {
      check.equal(`target ${index}`, target.ids[0], want.integer('target'));
    }
    check.equal(`accepted ${index}`, passes, want.flag('accepted'));
    law.compare(index, want);
    if (!passes) {
      check.equal('depths decided', wants.length, index + 1);
      return { outcome: 'rejected', accepted, next: sampled ? law.residual(index).idAt(draw()) : undefined, coins };
    }
    accepted.push(tokenId);
    if (round.stops.has(tokenId)) {
      check.equal('depths decided', wants.length, index + 1);
      return { outcome: 'stop', accepted, next: undefined, coins };
    }
  }
  check.equal('depths decided', wants.length, drafts.length);
  const bonus = (): number => (sampled ? rows(drafts.length).idAt(draw()) : rows(drafts.length).ids[0]!);
  return { outcome: 'all', accepted, next: round.room ? bonus() : undefined, coins };
}

const numberOrNull = (line: Fields, key: string): number | undefined => (line.has(key) ? line.integer(key) : undefined);

/** Replays a round and compares line, replay and served sampler. */
export function judgeRound(round: RoundCase, rows: TargetRows, law: ReplayedLaw): void {
  const { line, served, check } = round;
  const { outcome, accepted, next, coins, error } = replay(round, rows, law);
  check.equal('outcome', outcome, line.text('outcome'));
  const choices = served.drawn.length - served.before - coins;
  const kinds = 'c'.repeat(served.before) + 'u'.repeat(coins) + 'c'.repeat(Math.max(0, choices));
  check.equal('draws', kinds, line.text('draws'));
  check.equal(
    'one draw at most behind the coins',
    choices,
    laneOf(round.round.target) !== 'greedy' && next !== undefined ? 1 : 0,
  );
  if (error) {
    const want = line.object('error');
    check.equal('where', contextFor(round.round.target).site, want.text('where'));
    judgeRowError('row', error, want, accepted.length, check);
    judgeRowError('served row', served.outcome, want, accepted.length, check);
    return;
  }
  const emitted = next === undefined ? accepted : [...accepted, next];
  check.sequence('emitted', emitted, line.integers('emitted'));
  check.equal('pending after', next, numberOrNull(line, 'pending_after'));
  check.equal('correction', outcome === 'rejected' ? next : undefined, numberOrNull(line, 'correction'));
  check.equal('bonus', outcome === 'all' ? next : undefined, numberOrNull(line, 'bonus'));
  if (served.outcome instanceof Error) {
    check.fail(`served: ${served.outcome.message}`);
    return;
  }
  const { accepted: kept, next: following, frontierRow } = served.outcome;
  check.sequence(
    'served accepted',
    kept.map(({ tokenId }) => Number(tokenId)),
    accepted,
  );
  check.equal('served next', following && Number(following.token.tokenId), next);
  const origin = outcome === 'rejected' ? 'residual_correction' : 'bonus';
  check.equal('served origin', following?.origin, next === undefined ? undefined : origin);
  check.equal('frontier row', frontierRow, accepted.length);
}

/** The error of the verify row at index `row`, which fixtures name by the check that refuses it. */
export function judgeRowError(what: string, got: unknown, want: Fields, row: number, check: Checker): void {
  if (!(got instanceof NonFiniteLogitsError)) {
    check.fail(`${what}: no error`);
    return;
  }
  check.equal(`${what} error`, got.name, want.text('error'));
  check.equal(`${what} NaN count`, got.census.nanCount, want.integer('nan'));
  check.equal(`${what} infinity count`, got.census.infCount, want.integer('inf'));
  check.equal(`${what} vocabulary size`, got.census.vocabSize, want.integer('vocab'));
  check.equal(`${what} index`, got.census.step - FIRST_STEP, row);
  check.equal(`${what} site`, got.census.site, 'verify');
}
