/**
 * Rounds of speculation under the phase law: rows of a window equal those of the same tokens one at a time in the same
 * phase, by the engine and by the layer-at-a-time judge; a commit, a repair and the single steps leave one state; and the
 * pending token that ends a turn is forwarded with the lowering of its phase. Greedy and sampled, at depths 1 to 3, on a
 * checkpoint whose every gate feels the lowering, and on the shipped model.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Backend, BackendName } from '../../src/engine/backends/backend.js';
import { openBackend } from '../../src/engine/backends/open-backend.js';
import type { SequenceState } from '../../src/engine/model.js';
import type { QwenModel } from '../../src/families/qwen/model.js';
import { cpuAbsence } from '../support/cpu-backends.js';
import { assertSameRows, assertSameState, forwardRows, type Rows } from '../support/gate-rows.js';
import { BF16, BF16_MTPLX, F32 } from '../support/gate-sites.js';
import { LayerwiseQwen, type LayerwiseState } from '../support/layerwise-qwen.js';
import { openTestModel } from '../support/models.js';
import { seededRandom } from '../support/op-case-writer.js';
import { writePlantedCheckpoint } from '../support/planted-checkpoint.js';
import { openPlantedModel, sitesOf } from '../support/planted-model.js';
import { temporaryFolder } from '../support/repository.js';

const DIR = temporaryFolder({ after }, 'planted');
const PLANTED = writePlantedCheckpoint(DIR);

/** The token after a row, by its place in the sequence: the greatest logit, or drawn with that place's own number. */
type Choose = (logits: Float32Array, place: number) => number;

const greedy: Choose = (logits) => logits.indexOf(Math.max(...logits));

function sampled(seed: string): Choose {
  return (logits, place) => {
    const most = Math.max(...logits);
    const weights = Array.from(logits, (logit) => Math.exp(logit - most));
    let left = seededRandom(`${seed} ${place}`)() * weights.reduce((sum, weight) => sum + weight);
    const token = weights.findIndex((weight) => (left -= weight) < 0);
    return token < 0 ? greedy(logits, place) : token;
  };
}

/** The judge's side of a run; absent where only the engine is compared with itself. */
interface Judge {
  readonly judge: LayerwiseQwen;
  readonly sites: Parameters<LayerwiseQwen['step']>[2];
  state: LayerwiseState;
}

interface Run {
  readonly model: QwenModel;
  readonly judge: Judge | undefined;
  readonly depth: number;
  readonly choose: Choose;
  readonly random: () => number;
}

/** The window of a round, made while it is walked token by token: about two drafts in three are what follows. */
async function walk({ model, depth, choose, random }: Run, state: SequenceState, primary: number) {
  const tokens = [primary];
  const next: number[] = [];
  const rows = { hidden: [] as Float32Array[], logits: [] as Float32Array[] };
  const states: SequenceState[] = [];
  for (let i = 0; i <= depth; i++) {
    const step = await forwardRows(model, states.at(-1) ?? state, [tokens[i]!], 'verify');
    states.push(step.state);
    rows.hidden.push(...step.hidden);
    rows.logits.push(...step.logits);
    next.push(choose(step.logits[0]!, state.length + i));
    if (i < depth) tokens.push(random() < 0.67 ? next[i]! : Math.floor(random() * model.vocabSize));
  }
  return { tokens, next, rows, states };
}

/** The judge's rows of a window and its state after each of them. */
function judgeWindow({ judge, sites, state }: Judge, tokens: readonly number[]): Rows & { states: LayerwiseState[] } {
  const steps: ReturnType<LayerwiseQwen['step']>[] = [];
  for (const token of tokens) steps.push(judge.step(steps.at(-1)?.state ?? state, token, sites));
  const [hidden, logits] = [steps.map((step) => step.hidden), steps.map((step) => step.logits)];
  return { hidden, logits, states: steps.map((step) => step.state) };
}

/** One round; returns the committed state and the next primary, and says how many tokens it kept. */
async function playRound(run: Run, state: SequenceState, primary: number) {
  const { model, judge } = run;
  const { tokens, next, rows, states } = await walk(run, state, primary);
  const window = await forwardRows(model, state, tokens, 'verify', true);
  assertSameRows(window, rows, `a window of ${tokens.length} against single rows`);
  const judged = judge && judgeWindow(judge, tokens);
  if (judged) assertSameRows(window, judged, `a window of ${tokens.length} against the judge`);
  const refused = tokens.findIndex((token, i) => i > 0 && token !== next[i - 1]);
  const keep = refused < 0 ? tokens.length : refused;
  const [kept] =
    keep === tokens.length
      ? [window.state.retain()]
      : await model.speculation.commit([{ before: state, after: window.state, window: window.window!, keep }], {});
  const repaired = await forwardRows(model, state, tokens.slice(0, keep), 'repair');
  const firstRows = { hidden: rows.hidden.slice(0, keep), logits: rows.logits.slice(0, keep) };
  assertSameRows(repaired, firstRows, `a repair of ${keep} rows`);
  assertSameState(kept!, states[keep - 1]!, `${keep} of ${tokens.length} committed`);
  assertSameState(repaired.state, states[keep - 1]!, `${keep} of ${tokens.length} repaired`);
  if (judge) judge.state = judged!.states[keep - 1]!;
  for (const held of [...states, window.state, repaired.state]) held.release();
  return { state: kept!, primary: next[keep - 1]!, keep };
}

const PROMPT = [3, 77, 140, 9, 251, 18];
const ROUNDS = 5;

/** A turn: prompt, rounds, and the final commit of the pending token. Returns how many tokens each round kept. */
async function playTurn(run: Run): Promise<number[]> {
  const { model, judge, choose } = run;
  const empty = model.newState();
  const prompt = await forwardRows(model, empty, PROMPT, 'prefill');
  let [state, primary] = [prompt.state, choose(prompt.logits.at(-1)!, PROMPT.length - 1)];
  const kept: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const played = await playRound(run, state, primary);
    state.release();
    [state, primary] = [played.state, played.primary];
    kept.push(played.keep);
  }
  const last = await forwardRows(model, state, [primary], 'final-primary');
  const single = await forwardRows(model, state, [primary], 'verify');
  assertSameRows(last, single, 'final-primary');
  assertSameState(last.state, single.state, 'final-primary');
  if (judge) assertSameRows(last, judgeWindow(judge, [primary]), 'final-primary against the judge');
  for (const held of [empty, state, last.state, single.state]) held.release();
  assert.equal(model.stateUsage().used, 0);
  return kept;
}

/** Turns at depths 1 to 3, greedy and sampled; some rounds must keep everything and some must not. */
async function playTurns(model: QwenModel, newJudge: () => Judge | undefined): Promise<void> {
  const outcomes = new Set<'all' | 'some'>();
  for (const depth of [1, 2, 3]) {
    for (const [name, choose] of [
      ['greedy', greedy],
      ['sampled', sampled('places')],
    ] as const) {
      // prettier-ignore
      const random = seededRandom(`${name} ${depth}`);
      const kept = await playTurn({ model, judge: newJudge(), depth, choose, random });
      for (const keep of kept) outcomes.add(keep === depth + 1 ? 'all' : 'some');
    }
  }
  assert.equal(outcomes.size, 2);
}

for (const name of ['cpu', 'wasm', 'reference'] satisfies BackendName[]) {
  describe(`${name} rounds`, { skip: name === 'cpu' && cpuAbsence() }, () => {
    let backend: Backend;
    before(async () => {
      backend = (await openBackend(name, 2)).backend;
    });
    after(() => backend.close());

    for (const [law, gatePolicy] of [
      [BF16_MTPLX, 'strict'],
      [BF16_MTPLX, 'mtplx'],
      [F32, 'strict'],
      [BF16, 'uniform'],
    ] as const) {
      // prettier-ignore
      test(`windows, commits, repairs and the final commit of ${law.name} ${gatePolicy} have one set of bits`, async () => {
        const { model } = await openPlantedModel(DIR, backend, { law, gatePolicy });
        const judge = new LayerwiseQwen(PLANTED, law, backend.floatLaw);
        const standalone = sitesOf(gatePolicy, 'standalone');
        const prompt = PROMPT.reduce((state, token) => judge.step(state, token, standalone).state, judge.newState());
        await playTurns(model, () => ({ judge, sites: sitesOf(gatePolicy, 'fused'), state: prompt }));
        await model.close();
      });
    }
  });
}

test('the shipped model has one set of bits in windows, commits, repairs and the final commit', async (t) => {
  for (const [dtype, gatePolicy] of [
    ['bf16', 'strict'],
    ['bf16-mtplx', 'mtplx'],
  ] as const) {
    const { model } = await openTestModel(t, 'plumbline-tiny', { dtype, gatePolicy });
    await playTurns(model, () => undefined);
  }
});
