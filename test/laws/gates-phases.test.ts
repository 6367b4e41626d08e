/**
 * Whole forwards under the phase law: on a checkpoint whose every gate is the sensitive one, each phase, by its name and
 * under each policy, gives the rows of a computation one token and one layer at a time with the lowerings that the law
 * names, and the executed plan says so. Nothing but gates differs between two such computations, so the classes differ
 * through their gates alone. No backend has a matrix product of reduced precision, so there is no such mode to vary.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { PlumblineError } from '../../src/errors.js';
import type { Backend, BackendName } from '../../src/engine/backends/backend.js';
import { openBackend } from '../../src/engine/backends/open-backend.js';
import type { ActivationLaw } from '../../src/engine/plan/builder.js';
import { PHASES, type Phase } from '../../src/engine/plan/phase.js';
import { phaseLowering } from '../../src/families/qwen/laws.js';
import { MAX_WINDOW } from '../../src/families/qwen/trunk.js';
import { cpuAbsence } from '../support/cpu-backends.js';
import { assertSameRows, assertSameState, forwardRows, judgedRows, sameBits, type Rows } from '../support/gate-rows.js';
import { BF16, BF16_MTPLX, F32, LAWS, type Lowering } from '../support/gate-sites.js';
import type { SiteLowerings } from '../support/layerwise-blocks.js';
import { LayerwiseQwen } from '../support/layerwise-qwen.js';
import { openTestModel, type QwenCheckpoint } from '../support/models.js';
import { SENSITIVE, writePlantedCheckpoint, type PlantedCheckpoint } from '../support/planted-checkpoint.js';
import { CLASS_OF_PHASE, openPlantedModel, POLICIES, sitesOf } from '../support/planted-model.js';
import { temporaryFolder } from '../support/repository.js';

const PROMPT = [3, 77, 140, 9, 251, 18];
const WINDOW = [42, 200, 7, 131];
const BACKENDS: readonly BackendName[] = ['cpu', 'wasm', 'reference'];

interface Planted extends PlantedCheckpoint {
  readonly dir: string;
}

function planted(streams: 2 | 4): Planted {
  const dir = temporaryFolder({ after }, 'planted');
  return { ...writePlantedCheckpoint(dir, streams), dir };
}

const NARROW = planted(2);
const WIDE = planted(4);

interface Judged {
  readonly judge: LayerwiseQwen;
  readonly prompt: Rows;
  readonly window: (sites: SiteLowerings) => Rows;
}

/** A judge that has read the prompt, and remembers the windows that it was asked for. */
function judgeOf(checkpoint: PlantedCheckpoint, law: ActivationLaw, floatLaw: Backend['floatLaw']): Judged {
  const judge = new LayerwiseQwen(checkpoint, law, floatLaw);
  const prompt = judgedRows(judge, judge.newState(), PROMPT, sitesOf('strict', 'standalone'));
  const windows = new Map<string, Rows>();
  return {
    judge,
    prompt,
    window: (sites) => {
      const key = JSON.stringify(sites);
      const rows = windows.get(key) ?? judgedRows(judge, prompt.state, WINDOW, sites);
      windows.set(key, rows);
      return rows;
    },
  };
}

const firstRow = ({ hidden, logits }: Rows): Rows => ({ hidden: hidden.slice(0, 1), logits: logits.slice(0, 1) });

const everyRowDiffers = (a: Rows, b: Rows): boolean => a.hidden.every((row, i) => !sameBits(row, b.hidden[i]!));

test('every gate of the planted checkpoints is -6.84375: all sites, layers, rows, trunk and draft head', () => {
  for (const checkpoint of [NARROW, WIDE]) {
    for (const law of [BF16, BF16_MTPLX]) {
      const gates: number[] = [];
      const judge = new LayerwiseQwen(checkpoint, law, 'fma', (gate) => gates.push(gate));
      for (const lowering of ['standalone', 'fused'] as const) {
        const sites = sitesOf('mtplx', lowering);
        const { hidden } = judgedRows(judge, judge.newState(), [...PROMPT, ...WINDOW], sites);
        const streams = checkpoint.config.hyperConnections.streams;
        // Per token: 16 attention gates, 4 injections, 2 shared experts, 1 n-gram gate a stream.
        assert.equal(gates.length, hidden.length * (16 + 4 * streams + 2 + streams));
        const { hidden: stream } = judge.draft(undefined, hidden.at(-1)!, 5, sites);
        judge.draft(undefined, stream, 6, sites);
        assert.ok(gates.splice(0).every((gate) => gate === SENSITIVE));
      }
    }
  }
});

test('the judge feels the lowering of every single site, in every row', () => {
  // Without MTPLX's rounding points the ordinary sigmoid of the other two sites equals the fused one at this gate.
  for (const [law, sites] of [
    [BF16, ['attention', 'injection']],
    [BF16_MTPLX, ['attention', 'injection', 'sharedExpert', 'ngram']],
  ] as const) {
    const { window } = judgeOf(NARROW, law, 'fma');
    const standalone = sitesOf('mtplx', 'standalone');
    for (const site of sites) {
      const rows = window({ ...standalone, [site]: 'fused' });
      assert.ok(everyRowDiffers(rows, window(standalone)), `${law.name} ${site}`);
    }
  }
});

for (const name of BACKENDS) {
  describe(`${name} phases`, { skip: name === 'cpu' && cpuAbsence() }, () => {
    let backend: Backend;
    before(async () => {
      backend = (await openBackend(name, 2)).backend;
    });
    after(() => backend.close());

    async function judgePhases(checkpoint: Planted, laws: readonly ActivationLaw[]): Promise<void> {
      for (const law of laws) {
        const judged = judgeOf(checkpoint, law, backend.floatLaw);
        for (const gatePolicy of POLICIES) {
          const { model, spy } = await openPlantedModel(checkpoint.dir, backend, { law, gatePolicy });
          const prompt = await forwardRows(model, model.newState(), PROMPT, 'prefill');
          assertSameRows(prompt, judged.prompt, `${law.name} ${gatePolicy} prompt`);
          for (const phase of PHASES) {
            const label = `${law.name} ${gatePolicy} ${phase}`;
            const sites = sitesOf(gatePolicy, CLASS_OF_PHASE[phase]);
            spy.takeGates();
            const window = await forwardRows(model, prompt.state, WINDOW, phase);
            const one = await forwardRows(model, prompt.state, WINDOW.slice(0, 1), phase);
            assertExecuted(spy.takeGates(), sites, label);
            assertSameRows(window, judged.window(sites), label);
            assertSameRows(one, firstRow(judged.window(sites)), `${label}, one row`);
            window.state.release();
            one.state.release();
          }
          prompt.state.release();
          await model.close();
        }
      }
    }

    test('every phase gives the rows of its lowering class under every policy and law, and its plan says so', () =>
      judgePhases(NARROW, LAWS));

    test('the same with four streams, whose injection logit is -27.375', () => judgePhases(WIDE, [BF16_MTPLX]));

    test('draft steps and cache rows are standalone under every policy', async () => {
      const law = BF16_MTPLX;
      const judged = judgeOf(NARROW, law, backend.floatLaw);
      const sites = sitesOf('strict', 'standalone');
      for (const gatePolicy of POLICIES) {
        const { model, spy } = await openPlantedModel(NARROW.dir, backend, { law, gatePolicy });
        const head = model.speculation.head!;
        spy.takeGates();
        const pairs = { tokens: PROMPT.slice(1), hidden: judged.prompt.hidden.slice(0, -1) };
        const [history] = await head.forward([{ state: head.newState(), ...pairs, output: 'none' }], {});
        const judge = { cache: undefined as Parameters<LayerwiseQwen['draft']>[0] };
        pairs.hidden.forEach((hidden, i) => {
          judge.cache = judged.judge.draft(judge.cache, hidden, pairs.tokens[i]!, sites).state;
        });
        let state = history!.state;
        let hidden = judged.prompt.hidden.at(-1)!;
        for (const token of WINDOW) {
          const [step] = await head.forward([{ state, tokens: [token], hidden: [hidden], output: 'last' }], {});
          const expected = judged.judge.draft(judge.cache, hidden, token, sites);
          judge.cache = expected.state;
          const rows = { hidden: [step!.hidden!], logits: [step!.logits!] };
          assertSameRows(rows, { hidden: [expected.hidden], logits: [expected.logits] }, `${gatePolicy} ${token}`);
          state.release();
          state = step!.state;
          hidden = step!.hidden!;
        }
        state.release();
        for (const lowerings of Object.values(spy.takeGates())) assert.ok(!lowerings.includes('fused'));
        await model.close();
      }
    });

    test('a batch that is cut into narrower calls keeps its class in each of them', async () => {
      const { window } = judgeOf(NARROW, BF16, backend.floatLaw);
      const { model, spy } = await openPlantedModel(NARROW.dir, backend, {
        law: BF16,
        gatePolicy: 'strict',
        maxRows: 3,
      });
      const { state } = await forwardRows(model, model.newState(), PROMPT, 'prefill');
      spy.takeGates();
      // A call has rows for one window of the greatest length: the last of these is cut.
      const count = Math.floor(model.speculation.maxWindow / WINDOW.length) + 1;
      const request = { state, tokens: WINDOW, logits: 'all', hidden: 'all' } as const;
      const results = await model.forward(Array<typeof request>(count).fill(request), { phase: 'repair' });
      for (const { logits, hidden } of results) {
        assertSameRows({ logits, hidden: hidden! }, window(sitesOf('strict', 'fused')), 'repair in two calls');
      }
      assert.deepEqual(spy.takeGates().attention, ['fused', 'fused']);
      await model.close();
    });
  });
}

/** Every gate of the executed plans has its site's lowering; in a plan the ordinary sigmoid is written as standalone. */
function assertExecuted(gates: Readonly<Record<keyof SiteLowerings, Lowering[]>>, sites: SiteLowerings, label: string) {
  const perForward = { attention: 1, injection: 4, sharedExpert: 2, ngram: 1 };
  for (const [site, lowerings] of Object.entries(gates) as [keyof SiteLowerings, Lowering[]][]) {
    const expected = sites[site] === 'fused' ? 'fused' : 'standalone';
    assert.deepEqual(lowerings, new Array<Lowering>(2 * perForward[site]).fill(expected), `${label} ${site}`);
  }
}

const RUNS: readonly (readonly [QwenCheckpoint, ActivationLaw])[] = [
  ...LAWS.map((law) => ['plumbline-tiny', law] as const),
  ['qwen4-exp-wide', BF16_MTPLX],
  ['qwen4-exp-tiny', BF16],
  ['qwen3.5-dense-tiny', F32],
];

test('rows and states of every standalone phase are the same bytes under every policy', async (t) => {
  for (const [checkpoint, { name: dtype }] of RUNS) {
    const runs: Awaited<ReturnType<typeof forwardRows>>[] = [];
    for (const gatePolicy of POLICIES) {
      const { model } = await openTestModel(t, checkpoint, { dtype, gatePolicy });
      const tokens = Array.from({ length: 24 }, (_, i) => (97 * i + 31) % model.vocabSize);
      for (const [prompt, step] of [
        ['prefill', 'decode'],
        ['postcommit', 'draft'],
      ] as const) {
        // prettier-ignore
        const read = await forwardRows(model, model.newState(), tokens.slice(0, -1), prompt);
        const last = await forwardRows(model, read.state, tokens.slice(-1), step);
        runs.push({ ...last, hidden: [...read.hidden, ...last.hidden], logits: [...read.logits, ...last.logits] });
      }
    }
    for (const run of runs) {
      assertSameRows(run, runs[0]!, `${checkpoint} ${dtype}`);
      assertSameState(run.state, runs[0]!.state, `${checkpoint} ${dtype}`);
    }
  }
});

const refused = (error: unknown): boolean => error instanceof PlumblineError && error.code === 'internal_error';

test('a phase that is none, and a verify forward wider than a window, are programming errors', async (t) => {
  assert.throws(() => phaseLowering('decode_verify' as Phase), refused);
  const { model } = await openTestModel(t, 'qwen4-exp-tiny', { gatePolicy: 'strict' });
  const tokens = new Array<number>(MAX_WINDOW + 1).fill(5);
  for (const phase of ['decode_verify' as Phase, 'verify', 'repair', 'final-primary'] as const) {
    await assert.rejects(model.forward([{ state: model.newState(), tokens, logits: 'last' }], { phase }), refused);
  }
});
