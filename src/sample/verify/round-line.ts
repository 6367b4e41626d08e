/**
 * One recorded verify round: its inputs read from a fixture line, and the served sampler run over them.
 *
 * Invariant: what is compared is made here from rows, settings and seed alone; recorded results are never an input, but
 * for the forms that a line names.
 */
import type { NonFiniteLogitsError } from '../../errors.js';
import { laneOf } from '../laws/mtplx/filters.js';
import type { UniformSource } from '../laws/mtplx/choice.js';
import { countToken } from '../laws/mtplx/row-sampler.js';
import { draftLaw } from '../laws/mtplx/window-laws.js';
import { MtplxSpeculativeSampler } from '../laws/mtplx/speculative-sampler.js';
import type { ResolvedSampling } from '../resolve-sampling.js';
import { Pcg64 } from '../rng/pcg64.js';
import type { AcceptanceLaw, DraftChoice, Window, WindowOutcome } from '../speculation.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import { attempt, checkDistribution, rowOf, settingsOf, vocabSizeOf, type FixtureSettings } from './sampler-common.js';

/** Doubles of one generator, remembered; nothing is recorded while the tokens before the round are counted. */
export class RecordedDoubles implements UniformSource {
  readonly drawn: number[] = [];
  private recording = false;

  constructor(private readonly random: Pcg64) {}

  start(): void {
    this.recording = true;
  }

  nextDouble(): number {
    if (!this.recording) return 0;
    const u = this.random.nextDouble();
    this.drawn.push(u);
    return u;
  }

  get stateHex(): string {
    return this.random.stateHex;
  }
}

export interface RoundLine {
  readonly vocabSize: number;
  readonly target: FixtureSettings;
  readonly draft: FixtureSettings;
  readonly seed: bigint;
  readonly draftRows: readonly Float32Array[];
  /** One more than drafts: the last is the bonus row. */
  readonly targetRows: readonly Float32Array[];
  /** Completion tokens before the round, the pending one included. */
  readonly committed: readonly number[];
  readonly primaryRow: Float32Array | undefined;
  readonly stops: ReadonlySet<number>;
  /** Whether a bonus may follow. */
  readonly room: boolean;
}

const MOST_DEPTH = 8;

export function rowsOf(line: Fields, key: string, vocabSize: number): Float32Array[] {
  return line.lists(key, (item) => rowOf(item, 'item', vocabSize));
}

function idsBelow(line: Fields, key: string, vocabSize: number): number[] {
  const ids = line.integers(key);
  if (ids.some((id) => id < 0 || id >= vocabSize)) line.refuse(key, `a list of ids below ${vocabSize}`);
  return ids;
}

export function roundOf(line: Fields): RoundLine {
  const vocabSize = vocabSizeOf(line);
  const depth = line.integer('depth');
  if (depth < 1 || depth > MOST_DEPTH) line.refuse('depth', `from 1 to ${MOST_DEPTH}`);
  const draftRows = rowsOf(line, 'draft_logits', vocabSize);
  const targetRows = rowsOf(line, 'target_logits', vocabSize);
  if (draftRows.length !== depth) line.refuse('draft_logits', `${depth} rows`);
  if (targetRows.length !== depth + 1) line.refuse('target_logits', `${depth + 1} rows`);
  const committed = idsBelow(line, 'committed', vocabSize);
  if (line.has('pending') && line.integer('pending') !== committed.at(-1)) {
    line.refuse('pending', 'the last committed id');
  }
  return {
    vocabSize,
    target: settingsOf(line.object('target')),
    draft: settingsOf(line.object('draft')),
    seed: line.bigint('seed'),
    draftRows,
    targetRows,
    committed,
    primaryRow: line.has('pending') ? undefined : rowOf(line, 'primary_logits', vocabSize),
    stops: new Set(line.integers('stop')),
    room: line.flag('room'),
  };
}

export function resolved({ presence, frequency, ...filters }: FixtureSettings, seed: bigint): ResolvedSampling {
  return { ...filters, presencePenalty: presence, frequencyPenalty: frequency, seed };
}

export interface ServedRound {
  readonly drafts: readonly DraftChoice[];
  /** Counts before the window. */
  readonly counts: ReadonlyMap<number, number>;
  readonly outcome: WindowOutcome | NonFiniteLogitsError;
  /** Doubles of primary and drafts, and of the window. */
  readonly before: number;
  readonly drawn: readonly number[];
}

/** The window's context: the primary is token 0, so `step` is 1 more than the row. */
export const FIRST_STEP = 1;

/** Runs the served sampler over a round, comparing tokens and generator states as they come. */
export function serveRound(line: Fields, round: RoundLine, acceptance: AcceptanceLaw, check: Checker): ServedRound {
  const { vocabSize, draftRows, primaryRow, target } = round;
  const random = new RecordedDoubles(new Pcg64(round.seed));
  const options = { vocabSize, acceptance, draftFilters: round.draft };
  const sampler = new MtplxSpeculativeSampler(resolved(target, round.seed), options, random);
  const counts = new Map<number, number>();
  for (const id of round.committed) {
    const row = new Float32Array(vocabSize).fill(-Infinity);
    row[id] = 0;
    countToken(counts, sampler.next(row, { site: 'ar_step', phase: 'decode', step: 0 }).tokenId);
  }
  random.start();
  check.equal('initial state', random.stateHex, line.text('state0'));

  if (primaryRow) {
    const { tokenId } = sampler.next(primaryRow, { site: 'primary', phase: 'verify', step: 0 });
    const want = line.object('primary');
    check.equal('primary token', Number(tokenId), want.integer('token'));
    check.equal('primary state', random.stateHex, want.text('state'));
    countToken(counts, tokenId);
  }
  const wantDrafts = line.objects('drafts');
  check.equal('drafts', wantDrafts.length, draftRows.length);
  const drafts = draftRows.map((row, i) => {
    const choice = sampler.draft(row, { site: 'draft', phase: 'draft', step: FIRST_STEP + i });
    const want = wantDrafts[i];
    if (!want) return choice;
    check.equal(`draft ${i} token`, Number(choice.tokenId), want.integer('token'));
    check.equal(`draft ${i} state`, random.stateHex, want.text('state'));
    if (!want.has('ids')) return choice; // a greedy target asks for no law
    const law = draftLaw(choice);
    checkDistribution(check, `draft ${i}`, law, want, vocabSize);
    check.equal(`draft ${i} frame`, law.rowLength !== undefined, want.has('dense') && want.flag('dense'));
    return choice;
  });
  const before = random.drawn.length;
  check.equal('draws before the window', before, drawsBefore(round));

  const outcome = attempt(() => sampler.accept(windowOf(round, drafts)));
  check.equal('state', random.stateHex, line.text('state'));
  return { drafts, counts, outcome, before, drawn: random.drawn };
}

/** A choice for a sampled primary, and one for each sampled draft. */
function drawsBefore({ target, draft, draftRows, primaryRow }: RoundLine): number {
  if (laneOf(target) === 'greedy') return 0;
  return (primaryRow ? 1 : 0) + (laneOf(draft) === 'greedy' ? 0 : draftRows.length);
}

/** The window that a round's drafts make, for pieces that are computed apart from the served sampler. */
export function windowOf(round: RoundLine, drafts: readonly DraftChoice[]): Window {
  return {
    drafts,
    row: (i) => round.targetRows[i]!,
    room: drafts.length + (round.room ? 1 : 0),
    stopTokenIds: round.stops,
    source: 'draft_head',
    context: { phase: 'verify', step: FIRST_STEP },
  };
}
