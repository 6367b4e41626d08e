/**
 * block.jsonl: rounds of the block-verification law, and ladders of every path of drafts over tiny vocabularies. Rounds are
 * judged as those of the plain law are; ladder entries and residuals compare at absolute 1e-12, because they are
 * differences, and only where they can be reached.
 */
import { blockLadder, blockResidual, type BlockLadder, type DraftedDepth } from '../laws/mtplx/block-law.js';
import type { Distribution } from '../laws/mtplx/distribution.js';
import { HostShaper } from '../laws/mtplx/host-distribution.js';
import { draftLaw } from '../laws/mtplx/window-laws.js';
import type { Checker } from './checker.js';
import { shapeAll } from './eager-forms.js';
import { emissionDistance } from './emitted-law.js';
import type { Fields } from './fields.js';
import type { FixtureFormat } from './format.js';
import { roundOf, rowsOf, serveRound } from './round-line.js';
import {
  checkResidual,
  judgeRound,
  plainThreshold,
  RESIDUAL_CONTEXT,
  targetRowsOf,
  type ReplayedLaw,
} from './round-replay.js';
import { contextFor, PROBABILITY_TOLERANCE, RESIDUAL_TOLERANCE, settingsOf, vocabSizeOf } from './sampler-common.js';

/** The recorded names of the ladder's entries. */
const ENTRIES = {
  rho: 'rho',
  coin: 'coin',
  scale: 'scale',
  draft_scale: 'draftScale',
  budget: 'budget',
  realised: 'reach',
} as const satisfies Record<string, keyof BlockLadder>;

/** A residual of less mass than this is not recorded: its masses' rounding, divided by it, would exceed the tolerance. */
const LEAST_RESIDUAL_MASS = (2 * Number.EPSILON) / RESIDUAL_TOLERANCE;

/** Depths that can be reached: up to and including the first coin that is 0 within the tolerance. */
function liveDepths({ coin }: BlockLadder): number {
  const dead = coin.findIndex((a) => a < RESIDUAL_TOLERANCE);
  return dead < 0 ? coin.length : dead + 1;
}

function judgeLadder(ladder: BlockLadder, names: readonly string[], want: Fields, live: number, check: Checker): void {
  for (const [name, entry] of Object.entries(ENTRIES)) {
    if (!names.includes(name)) continue;
    const wanted = want.doubles(name);
    check.equal(`${name}: depths`, ladder[entry].length, wanted.length);
    check.close(`ladder ${name}`, ladder[entry].slice(0, live), wanted.slice(0, live), 0, RESIDUAL_TOLERANCE);
  }
}

/** Mass that a rejection at depth index `at` is made of, before it is normalised. */
function residualMass(ladder: BlockLadder, at: number, { target, draft }: DraftedDepth): number {
  return target.ids.reduce((sum, id, i) => {
    const mass = ladder.scale[at]! * target.probs[i]! - ladder.draftScale[at]! * draft.probabilityOf(id);
    return sum + Math.max(0, mass);
  }, 0);
}

/** Recorded residuals; null: too little mass to compare, or out of reach. */
function judgeResiduals(
  owner: Fields,
  ladder: BlockLadder,
  depths: readonly DraftedDepth[],
  live: number,
  vocabSize: number,
  check: Checker,
): void {
  const recorded = owner.optionalObjects('residuals');
  check.equal('residuals', recorded.length, depths.length);
  for (const [at, depth] of depths.entries()) {
    const want = recorded[at];
    if (want) {
      checkResidual(check, `residual ${at}`, blockResidual(ladder, at, depth, RESIDUAL_CONTEXT), want, vocabSize);
    } else if (at < live) {
      const mass = residualMass(ladder, at, depth);
      check.that(mass < LEAST_RESIDUAL_MASS, () => `residual ${at}: mass ${mass}, expected next to none`);
    }
  }
}

function judgeBlockRound(line: Fields, check: Checker): void {
  const round = roundOf(line);
  const served = serveRound(line, round, 'block', check);
  const whole = { line, round, served, check };
  const rows = targetRowsOf(whole);
  const depths = served.drafts.map((choice, index) => ({
    target: rows(index),
    draft: draftLaw(choice),
    tokenId: choice.tokenId,
  }));
  const ladder = blockLadder(depths);
  const live = liveDepths(ladder);
  check.equal('live', live, line.integer('live'));
  const wantLadder = line.object('ladder');
  judgeLadder(ladder, Object.keys(ENTRIES), wantLadder, live, check);
  // Look-aheads without a solution; here each has one.
  check.sequence('clipped', new Array<number>(depths.length).fill(0), wantLadder.integers('clipped'));
  judgeResiduals(line, ladder, depths, live, round.vocabSize, check);
  const law: ReplayedLaw = {
    threshold: (index) => ladder.coin[index]!,
    tolerance: { relative: 0, absolute: RESIDUAL_TOLERANCE },
    residual: (index) => blockResidual(ladder, index, depths[index]!, RESIDUAL_CONTEXT),
    compare: (index, want) => {
      const plain = plainThreshold(rows, served.drafts[index]!, index);
      check.close(`plain a ${index}`, [plain], [want.double('plain_a')], PROBABILITY_TOLERANCE);
    },
  };
  judgeRound(whole, rows, law);
}

const LARGEST_ENUMERATION = 4;

function judgeEnumeration(line: Fields, check: Checker): void {
  const vocabSize = vocabSizeOf(line);
  const depth = line.integer('depth');
  if (vocabSize > LARGEST_ENUMERATION) line.refuse('V', `at most ${LARGEST_ENUMERATION}`);
  if (depth < 1 || depth > LARGEST_ENUMERATION) line.refuse('depth', `from 1 to ${LARGEST_ENUMERATION}`);
  const lawsOf = (settings: string, rows: string): Distribution[] => {
    const filters = settingsOf(line.object(settings));
    const given = rowsOf(line, rows, vocabSize);
    if (given.length !== depth) line.refuse(rows, `${depth} rows`);
    return shapeAll(given, new HostShaper(vocabSize), filters, contextFor(filters));
  };
  const targets = lawsOf('target', 'target_logits');
  const drafts = lawsOf('draft', 'draft_logits');
  const depthsOf = (path: readonly number[]): DraftedDepth[] =>
    path.map((tokenId, at) => ({ target: targets[at]!, draft: drafts[at]!, tokenId }));

  const names = Object.keys(ENTRIES).filter((name) => name !== 'rho');
  const seen = new Set<string>();
  for (const path of line.objects('paths')) {
    const ids = path.integers('drafts');
    if (ids.length !== depth) path.refuse('drafts', `${depth} ids`);
    seen.add(ids.join());
    const depths = depthsOf(ids);
    const ladder = blockLadder(depths);
    const live = liveDepths(ladder);
    check.equal('live', live, path.integer('live'));
    judgeLadder(ladder, names, path, live, check);
    judgeResiduals(path, ladder, depths, live, vocabSize, check);
  }
  const possible = drafts.reduce((product, { ids }) => product * ids.length, 1);
  check.equal('paths', seen.size, possible);

  const distance = emissionDistance({
    vocabSize,
    depth,
    target: (prefix) => targets[prefix.length]!,
    draft: (prefix) => drafts[prefix.length]!,
    verdicts: (path) => {
      const depths = depthsOf(path);
      const ladder = blockLadder(depths);
      return depths.map((at, i) => ({
        coin: ladder.coin[i]!,
        residual: blockResidual(ladder, i, at, RESIDUAL_CONTEXT),
      }));
    },
  });
  check.close(
    'distance of the emitted law from the target',
    [distance],
    [line.double('marginal_tv')],
    0,
    RESIDUAL_TOLERANCE,
  );
}

const LAWS = ['block', 'enumeration'];

export const blockFormat: FixtureFormat = {
  kind: 'sampler/block',
  recognises: (line) => line.isText('law') && LAWS.includes(line.text('law')),
  judge: () => (line, check) =>
    line.text('law') === 'block' ? judgeBlockRound(line, check) : judgeEnumeration(line, check),
};
