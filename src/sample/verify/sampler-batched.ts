/** batched.jsonl: two to five rows as lazy rows, as an eager list, as padded arrays, and as a cohort. */
import { LazyRows, PaddedRows } from '../laws/mtplx/batched.js';
import { indexAt } from '../laws/mtplx/choice.js';
import { laneOf, type Filters } from '../laws/mtplx/filters.js';
import { HostShaper } from '../laws/mtplx/host-distribution.js';
import { Pcg64 } from '../rng/pcg64.js';
import { checkRow, type RowContext } from '../validity.js';
import type { Checker } from './checker.js';
import { shapeAll, shapeCohort } from './eager-forms.js';
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

interface Batch {
  readonly line: Fields;
  readonly check: Checker;
  readonly rows: readonly Float32Array[];
  readonly filters: Filters;
  readonly context: RowContext;
  readonly shaper: HostShaper;
}

const lazyRowsOf = ({ rows, shaper, filters, context }: Batch): LazyRows =>
  new LazyRows(
    (i) => checkRow(rows[i]!, context),
    shaper,
    filters,
    () => context,
  );

/** Rows are reached from last to first here: a row must not depend on those before it. */
function judgeRows(batch: Batch): void {
  const { line, check, shaper } = batch;
  const lazy = lazyRowsOf(batch);
  for (const [i, want] of [...line.objects('rows').entries()].reverse()) {
    const got = attempt(() => lazy.at(i));
    if (want.has('error')) checkError(check, `row ${i}`, got, want);
    else if (got instanceof Error) check.that(false, () => `row ${i}: ${got.message}`);
    else checkDistribution(check, `row ${i}`, got, want, shaper.vocabSize);
  }
}

function judgeConsumption(batch: Batch): void {
  const { line, check, rows } = batch;
  const consume = line.object('consume');
  const errorAt = consume.has('error_at') ? consume.integer('error_at') : rows.length;
  const tokens = consume.integers('tokens');
  const states = consume.texts('states');
  const lazy = lazyRowsOf(batch);
  const random = new Pcg64(line.bigint('seed'));
  check.equal('initial state', random.stateHex, line.text('state0'));
  for (let i = 0; i < rows.length; i++) {
    const got = attempt(() => lazy.at(i).draw(random));
    if (got instanceof Error) {
      check.equal('consume: first bad row', i, errorAt);
      break;
    }
    check.equal(`consume: token ${i}`, got, tokens[i]);
    check.equal(`consume: state ${i}`, random.stateHex, states[i]);
  }
  check.equal('consume: rows read', tokens.length, errorAt);
}

function judgeEager(batch: Batch): void {
  const { line, check, rows, shaper, filters, context } = batch;
  const list = attempt(() => shapeAll(rows, shaper, filters, context));
  if (!line.isText('list')) checkError(check, 'list', list, line.object('list'));
  else check.equal('list', list instanceof Error ? list.message : 'ok', line.text('list'));

  const want = line.object('array');
  const width = Math.min(filters.topK, shaper.vocabSize);
  const padded = attempt(() => PaddedRows.of(shapeAll(rows, shaper, filters, context), width, context));
  if (want.has('error')) {
    checkError(check, 'array', padded, want);
  } else if (padded instanceof Error) {
    check.that(false, () => `array: ${padded.message}`);
  } else {
    const ids = want.lists('ids', (row) => row.integers('item'));
    const probs = want.lists('probs', (row) => row.doubles('item'));
    check.equal('array: rows', padded.ids.length, ids.length);
    padded.ids.forEach((row, i) => {
      check.sequence(`array: ids of row ${i}`, row, ids[i] ?? []);
      check.close(`array: row ${i}`, padded.probs[i]!, probs[i] ?? [], PROBABILITY_TOLERANCE);
    });
  }
}

function judgeCohort(batch: Batch): void {
  const { line, check, rows, filters, context } = batch;
  const want = line.object('cohort');
  const cohort = shapeCohort(rows, filters, context);
  if (want.has('error')) {
    check.equal('cohort error', want.text('error'), 'FloatingPointError');
    check.that(cohort === undefined, () => 'cohort: a bad row was accepted');
    return;
  }
  if (cohort === undefined) {
    check.that(false, () => 'cohort: refused');
    return;
  }
  const ids = want.lists('ids', (row) => row.integers('item'));
  const probs = want.lists('probs', (row) => row.doubles('item'));
  const tokens = want.integers('tokens');
  const states = want.texts('states');
  const random = new Pcg64(line.bigint('seed'));
  cohort.forEach((row, i) => {
    check.sequence(`cohort: ids of row ${i}`, row.ids, ids[i] ?? []);
    check.close(`cohort: row ${i}`, row.probs, probs[i] ?? [], PROBABILITY_TOLERANCE);
    check.equal(`cohort: token ${i}`, row.ids[indexAt(row.probs, random.nextDouble())], tokens[i]);
    check.equal(`cohort: state ${i}`, random.stateHex, states[i]);
  });
}

function judge(line: Fields, check: Checker): void {
  const vocabSize = vocabSizeOf(line);
  const filters = settingsOf(line.object('cfg'));
  if (laneOf(filters) !== 'sparse') line.refuse('cfg', 'sampled with top_k: batches have no other form');
  const rows = line.lists('logits', (item) => rowOf(item, 'item', vocabSize));
  if (line.list('rows').length !== rows.length)
    line.refuse('rows', `a list of ${rows.length}, one for each row of logits`);
  const batch = { line, check, rows, filters, context: contextFor(filters), shaper: new HostShaper(vocabSize) };
  check.equal('rows', rows.length, line.integer('R'));
  judgeRows(batch);
  judgeConsumption(batch);
  judgeEager(batch);
  judgeCohort(batch);
}

export const batchedFormat = fieldFormat('sampler/batched', ['R', 'rows', 'consume', 'cohort'], () => judge);
