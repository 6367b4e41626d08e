/**
 * speculative.jsonl: rounds of the plain law, and blocks copied from the prompt. Judged twice: by the served sampler from
 * raw rows to tokens and generator states, and piece by piece in the form that the line names.
 */
import { acceptProbability, residual } from '../laws/mtplx/acceptance.js';
import { Distribution } from '../laws/mtplx/distribution.js';
import { HostShaper } from '../laws/mtplx/host-distribution.js';
import { laneOf } from '../laws/mtplx/filters.js';
import { MtplxSpeculativeSampler } from '../laws/mtplx/speculative-sampler.js';
import { Pcg64 } from '../rng/pcg64.js';
import { checkRow } from '../validity.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import type { FixtureFormat } from './format.js';
import { FIRST_STEP, RecordedDoubles, resolved, roundOf, rowsOf, serveRound } from './round-line.js';
import { judgeRound, judgeRowError, plainReplay, RESIDUAL_CONTEXT, targetRowsOf } from './round-replay.js';
import { attempt, checkError, contextFor, settingsOf, vocabSizeOf } from './sampler-common.js';

function judgePlain(line: Fields, check: Checker): void {
  const round = roundOf(line);
  const served = serveRound(line, round, 'plain', check);
  const whole = { line, round, served, check };
  const rows = targetRowsOf(whole);
  judgeRound(whole, rows, plainReplay(whole, rows));
}

interface CopyLine {
  readonly vocabSize: number;
  readonly settings: ReturnType<typeof settingsOf>;
  readonly block: readonly number[];
  readonly rows: readonly Float32Array[];
}

function copyOf(line: Fields): CopyLine {
  const vocabSize = vocabSizeOf(line);
  const settings = settingsOf(line.object('target'));
  if (laneOf(settings) === 'greedy') line.refuse('target', 'sampled');
  const block = line.integers('block');
  const rows = rowsOf(line, 'target_logits', vocabSize);
  if (rows.length !== block.length)
    line.refuse('target_logits', `${block.length} rows, one for each token of the block`);
  return { vocabSize, settings, block, rows };
}

/** A copied token is accepted when u <= p; a rejection draws from p without it. Nothing follows a whole block here. */
function judgeCopy(line: Fields, check: Checker): void {
  const { vocabSize, settings, block, rows } = copyOf(line);
  const random = new RecordedDoubles(new Pcg64(line.bigint('seed')));
  const sampler = new MtplxSpeculativeSampler(
    resolved(settings, line.bigint('seed')),
    { vocabSize, acceptance: 'plain' },
    random,
  );
  random.start();
  check.equal('initial state', random.stateHex, line.text('state0'));
  const outcome = attempt(() =>
    sampler.accept({
      drafts: block.map((tokenId) => ({ tokenId })),
      row: (i) => rows[i]!,
      room: block.length,
      stopTokenIds: new Set(),
      source: 'context_copy',
      context: { phase: 'verify', step: FIRST_STEP },
    }),
  );
  check.equal('state', random.stateHex, line.text('state'));

  const context = contextFor(settings);
  const shaper = new HostShaper(vocabSize);
  let accepted = 0;
  let correction: number | undefined;
  const error = attempt(() => {
    for (; accepted < block.length; accepted++) {
      const target = shaper.shape(checkRow(rows[accepted]!, context), settings, context);
      const token = block[accepted]!;
      if (random.drawn[accepted]! <= acceptProbability(target.probabilityOf(token), 1)) continue;
      const left = residual(target, Distribution.oneHot(token), RESIDUAL_CONTEXT);
      correction = left.idAt(random.drawn[accepted + 1]!);
      return;
    }
  });
  const coins = accepted + (correction === undefined ? 0 : 1);
  check.equal('draws', 'u'.repeat(coins) + 'c'.repeat(random.drawn.length - coins), line.text('draws'));
  if (error !== undefined || line.has('error')) {
    checkError(check, 'row', error, line.object('error'));
    judgeRowError('served row', outcome, line.object('error'), accepted, check);
    return;
  }
  check.equal('accepted', accepted, line.integer('accepted'));
  check.equal('correction', correction, line.has('correction') ? line.integer('correction') : undefined);
  if (outcome instanceof Error) {
    check.fail(`served: ${outcome.message}`);
    return;
  }
  check.sequence(
    'served accepted',
    outcome.accepted.map(({ tokenId }) => Number(tokenId)),
    block.slice(0, accepted),
  );
  check.equal('served correction', outcome.next && Number(outcome.next.token.tokenId), correction);
  check.equal('served origin', outcome.next?.origin, correction === undefined ? undefined : 'residual_correction');
  check.equal('frontier row', outcome.frontierRow, accepted);
}

const LAWS = ['plain', 'copy'];

export const speculativeFormat: FixtureFormat = {
  kind: 'sampler/speculative',
  recognises: (line) => line.isText('law') && LAWS.includes(line.text('law')),
  judge: () => (line, check) => (line.text('law') === 'plain' ? judgePlain(line, check) : judgeCopy(line, check)),
};
