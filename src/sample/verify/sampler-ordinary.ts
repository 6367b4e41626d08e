/**
 * ordinary.jsonl: three consecutive sampled steps of one request. Judged twice: piece by piece (distribution, uniform,
 * token, generator state), and by the served sampler from raw row to token where the line starts a completion.
 */
import { HostShaper } from '../laws/mtplx/host-distribution.js';
import { laneOf } from '../laws/mtplx/filters.js';
import { MtplxSampler } from '../laws/mtplx/request-sampler.js';
import { clampPenalty } from '../laws/mtplx/penalties.js';
import { RowProcessor } from '../laws/mtplx/row-processor.js';
import { Pcg64 } from '../rng/pcg64.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import { fieldFormat } from './format.js';
import { checkDistribution, contextFor, rowDtypeOf, rowOf, settingsOf, vocabSizeOf } from './sampler-common.js';

function countsOf(step: Fields): Map<number, number> {
  if (!step.has('counts')) return new Map();
  return new Map(
    step.lists('counts', (pair) => {
      const [id, n] = pair.integers('item');
      if (id === undefined || n === undefined) return pair.refuse('item', 'a pair of id and count');
      return [id, n];
    }),
  );
}

function judgeServed(line: Fields, steps: readonly Fields[], check: Checker): void {
  const vocabSize = vocabSizeOf(line);
  const settings = settingsOf(line.object('cfg'));
  const sampler = new MtplxSampler(
    {
      ...settings,
      presencePenalty: settings.presence,
      frequencyPenalty: settings.frequency,
      seed: line.bigint('seed'),
    },
    { vocabSize, rowDtype: rowDtypeOf(line), topLogprobs: 2 },
  );
  steps.forEach((step, i) => {
    const sampled = sampler.next(rowOf(step, 'logits', vocabSize), contextFor(settings, i));
    check.equal(`served token ${i}`, sampled.tokenId, step.integer('token'));
  });
}

function judge(line: Fields, check: Checker): void {
  const vocabSize = vocabSizeOf(line);
  const settings = settingsOf(line.object('cfg'));
  const lane = laneOf(settings);
  const random = new Pcg64(line.bigint('seed'));
  const shaper = new HostShaper(vocabSize);
  const processor = new RowProcessor({ vocabSize, tokenizerSize: vocabSize, dtype: rowDtypeOf(line) });
  check.equal('lane', lane, line.text('lane'));
  check.equal('increment', random.incrementHex, line.text('inc'));
  check.equal('initial state', random.stateHex, line.text('state0'));

  const steps = line.objects('steps');
  if (steps.length === 0) line.refuse('steps', 'a list of at least one step');
  let emitted: Map<number, number> | undefined;
  steps.forEach((step, i) => {
    const counts = countsOf(step);
    for (const [id, n] of emitted ?? []) check.equal(`counts before step ${i}`, counts.get(id), n);
    const penalties = {
      presence: clampPenalty(settings.presence),
      frequency: clampPenalty(settings.frequency),
      counts,
      overlay: step.has('overlay') ? step.amounts('overlay') : undefined,
    };
    const context = contextFor(settings, i);
    const row = processor.process(rowOf(step, 'logits', vocabSize), penalties, lane, context);
    const distribution = shaper.shape(row, settings, context);
    let token = row.argmax;
    if (lane !== 'greedy') {
      checkDistribution(check, `step ${i}`, distribution, step, vocabSize);
      const u = random.nextDouble();
      check.equal(`step ${i} uniform`, u, step.double('u'));
      token = distribution.idAt(u);
    }
    check.equal(`step ${i} token`, Number(row.token(token)), step.integer('token'));
    check.equal(`step ${i} state`, random.stateHex, step.text('state'));
    if (step.has('counts')) emitted = new Map(counts).set(token, (counts.get(token) ?? 0) + 1);
  });

  const startsEmpty = steps.every((step) => !step.has('overlay')) && countsOf(steps[0]!).size === 0;
  if (startsEmpty) judgeServed(line, steps, check);
}

export const ordinaryFormat = fieldFormat('sampler/ordinary', ['lane', 'steps', 'state0', 'inc'], () => judge);
