/**
 * Plans never cross lowering classes: forwards of equal shape in phases of different classes, one after the other in every
 * order, each give the bits of their own class, whichever of them had its plan recorded first.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Backend, BackendName } from '../../src/engine/backends/backend.js';
import { openBackend } from '../../src/engine/backends/open-backend.js';
import { planKeyText } from '../../src/engine/plan/cache.js';
import { PHASES, type Phase } from '../../src/engine/plan/phase.js';
import { phaseLowering } from '../../src/families/qwen/laws.js';
import { cpuAbsence } from '../support/cpu-backends.js';
import { assertSameRows, forwardRows, judgedRows, type Rows } from '../support/gate-rows.js';
import { BF16_MTPLX } from '../support/gate-sites.js';
import { LayerwiseQwen } from '../support/layerwise-qwen.js';
import { writePlantedCheckpoint } from '../support/planted-checkpoint.js';
import { CLASS_OF_PHASE, openPlantedModel, POLICIES, sitesOf } from '../support/planted-model.js';
import { temporaryFolder } from '../support/repository.js';

const DIR = temporaryFolder({ after }, 'planted');
const PLANTED = writePlantedCheckpoint(DIR);
const PROMPT = [3, 77, 140, 9, 251, 18];
const TOKEN = 42;
const LAW = BF16_MTPLX;

/** Phase of the first and of the second forward, and whether the second can be taken back. */
const TRAPS: readonly (readonly [string, Phase, Phase, boolean])[] = [
  ['an autoregressive step, then the final commit of a pending token', 'decode', 'final-primary', false],
  ['the final commit of a pending token, then an autoregressive step', 'final-primary', 'decode', false],
  ['the last prompt token, then a window of depth 0', 'prefill', 'verify', false],
  ['the last prompt token, then a revocable window of depth 0', 'prefill', 'verify', true],
  ['a window of depth 0, then the last token of another prompt', 'verify', 'prefill', false],
  ['a repair of one row, then a background prefill of one row', 'repair', 'postcommit', false],
];

for (const name of ['cpu', 'wasm', 'reference'] satisfies BackendName[]) {
  describe(`${name} plans`, { skip: name === 'cpu' && cpuAbsence() }, () => {
    let backend: Backend;
    let rowOf: (phase: Phase) => Rows;
    before(async () => {
      backend = (await openBackend(name, 2)).backend;
      const judge = new LayerwiseQwen(PLANTED, LAW, backend.floatLaw);
      const prompt = judgedRows(judge, judge.newState(), PROMPT, sitesOf('strict', 'standalone'));
      const rows = {
        standalone: judgedRows(judge, prompt.state, [TOKEN], sitesOf('strict', 'standalone')),
        fused: judgedRows(judge, prompt.state, [TOKEN], sitesOf('strict', 'fused')),
      };
      assert.notDeepEqual(rows.standalone.logits, rows.fused.logits);
      rowOf = (phase) => rows[CLASS_OF_PHASE[phase]];
    });
    after(() => backend.close());

    /** A new model, so that no plan is recorded yet but that of the prompt, which has another shape. */
    async function withPrompt(work: (step: (phase: Phase, revocable?: boolean) => Promise<void>) => Promise<void>) {
      const { model } = await openPlantedModel(DIR, backend, { law: LAW, gatePolicy: 'strict' });
      const prompt = await forwardRows(model, model.newState(), PROMPT, 'prefill');
      await work(async (phase, revocable = false) => {
        const row = await forwardRows(model, prompt.state, [TOKEN], phase, revocable);
        assertSameRows(row, rowOf(phase), phase);
        row.state.release();
      });
      await model.close();
    }

    for (const [title, first, second, revocable] of TRAPS) {
      test(`no bit leaks: ${title}`, () =>
        withPrompt(async (step) => {
          await step(first);
          await step(second, revocable);
          await step(first);
          await step(second, revocable);
        }));
    }

    test('one row in any phase after one row in any other has the bits of its own class', () =>
      withPrompt(async (step) => {
        for (const first of PHASES) {
          for (const second of PHASES) {
            await step(first);
            await step(second);
          }
        }
      }));
  });
}

test('a plan key names lowering class and policy: equal for two phases exactly where their class is', async () => {
  const { backend } = await openBackend('reference');
  const texts = new Set<string>();
  for (const gatePolicy of POLICIES) {
    const { model } = await openPlantedModel(DIR, backend, { law: LAW, gatePolicy });
    const keyOf = (phase: Phase): string =>
      planKeyText(model.trunk.planKey({ group: 'trunk', lowering: phaseLowering(phase), rows: 1, outRows: 1 }));
    for (const first of PHASES) {
      texts.add(keyOf(first));
      assert.ok(keyOf(first).includes(`/${CLASS_OF_PHASE[first]}/${gatePolicy}/`), keyOf(first));
      for (const second of PHASES) {
        assert.equal(keyOf(first) === keyOf(second), CLASS_OF_PHASE[first] === CLASS_OF_PHASE[second]);
      }
    }
    await model.close();
  }
  assert.equal(texts.size, 2 * POLICIES.length);
  await backend.close();
});
