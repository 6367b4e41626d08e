/** fallback.jsonl: invalid and extreme rows under many settings; an invalid row is an error and makes no draw. */
import { laneOf } from '../laws/mtplx/filters.js';
import { HostShaper } from '../laws/mtplx/host-distribution.js';
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
  rowOf,
  settingsOf,
  vocabSizeOf,
} from './sampler-common.js';

function judge(line: Fields, check: Checker): void {
  const vocabSize = vocabSizeOf(line);
  const row = rowOf(line, 'logits', vocabSize);
  const shaper = new HostShaper(vocabSize);
  line.objects('runs').forEach((run, i) => {
    const settings = settingsOf(run.object('cfg'));
    const context = contextFor(settings);
    const random = new Pcg64(line.bigint('seed'));
    check.equal(`run ${i} initial state`, random.stateHex, line.text('state0'));
    const outcome = attempt(() => {
      const valid = checkRow(row, context);
      return {
        valid,
        distribution: shaper.shape(valid, settings, context),
        drawn: shaper.draw(valid, settings, context, random),
      };
    });
    if (run.has('error')) {
      checkError(check, `run ${i}`, outcome, run);
      check.equal(`run ${i} state after the error`, random.stateHex, line.text('state0'));
      return;
    }
    if (outcome instanceof Error) {
      check.that(false, () => `run ${i}: ${outcome.message}`);
      return;
    }
    if (laneOf(settings) !== 'greedy') checkDistribution(check, `run ${i}`, outcome.distribution, run, vocabSize);
    check.equal(`run ${i} token`, Number(outcome.valid.token(outcome.drawn)), run.integer('token'));
    check.equal(`run ${i} state`, random.stateHex, run.text('state'));
  });
}

export const fallbackFormat = fieldFormat('sampler/fallback', ['kind', 'runs', 'state0', 'logits'], () => judge);
