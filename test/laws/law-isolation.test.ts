/**
 * Laws do not reach into each other: every constant of one law is changed in turn, where the running code reads it, and what
 * the other families answer stays what it was, while what the own family answers moves.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { openBackend } from '../../src/engine/backends/open-backend.js';
import type { FamilyLaws } from '../../src/engine/model.js';
import { DEEPSEEK_LAWS } from '../../src/families/deepseek/laws.js';
import { GLM_LAWS } from '../../src/families/glm/laws.js';
import { loadModel } from '../../src/families/load.js';
import { QWEN_ACTIVATION_LAWS, qwenLaws } from '../../src/families/qwen/laws.js';
import { PlumblineError } from '../../src/errors.js';
import { DS4 } from '../../src/sample/laws/ds4/constants.js';
import { MTPLX } from '../../src/sample/laws/mtplx/constants.js';
import { resolveSampling, type SamplingWishes } from '../../src/sample/resolve-sampling.js';
import { createSampler, samplingRules } from '../../src/sample/sampler.js';
import { temporaryFolder } from '../support/repository.js';
import { writeCheckpoint } from '../support/write-checkpoint.js';
import { writeDeepseekCheckpoint } from '../support/write-deepseek.js';
import { writeGlmCheckpoint } from '../support/write-glm.js';

type Mutable = Record<string, unknown>;

/** A place that holds a constant, and what it is changed to. */
interface Change {
  readonly name: string;
  readonly holder: object;
  readonly key: string;
  readonly to: unknown;
}

const MTPLX_CHANGES: readonly Change[] = [
  { name: 'mostPenalty', holder: MTPLX, key: 'mostPenalty', to: 0.01 },
  { name: 'leastTemperature', holder: MTPLX, key: 'leastTemperature', to: 1e-100 },
  { name: 'freshSeeds', holder: MTPLX, key: 'freshSeeds', to: 1 },
  { name: 'defaults.temperature', holder: MTPLX.defaults, key: 'temperature', to: 3 },
  { name: 'defaults.topP', holder: MTPLX.defaults, key: 'topP', to: 0.2 },
  { name: 'defaults.topK', holder: MTPLX.defaults, key: 'topK', to: 1 },
];

const DS4_CHANGES: readonly Change[] = [
  { name: 'start', holder: DS4, key: 'start', to: 1 },
  { name: 'mostTopK', holder: DS4, key: 'mostTopK', to: 2 },
  { name: 'maskedLogprob', holder: DS4, key: 'maskedLogprob', to: -5 },
  { name: 'random.multiplier', holder: DS4.random, key: 'multiplier', to: 0x9fb21c651e98df25n },
  { name: 'random.zeroState', holder: DS4.random, key: 'zeroState', to: 5n },
  ...[0, 1, 2].map((at) => ({
    ...{ name: `random.shifts[${at}]`, holder: DS4.random.shifts, key: String(at), to: 11n },
  })),
  { name: 'defaults.temperature', holder: DS4.defaults, key: 'temperature', to: 9 },
  { name: 'defaults.topP', holder: DS4.defaults, key: 'topP', to: 0.2 },
  { name: 'defaults.topK', holder: DS4.defaults, key: 'topK', to: 1 },
  { name: 'defaults.minP', holder: DS4.defaults, key: 'minP', to: 0.9 },
];

function holding<T>({ holder, key, to }: Change, run: () => T): T {
  const before = (holder as Mutable)[key];
  assert.notEqual(before, undefined);
  (holder as Mutable)[key] = to;
  try {
    return run();
  } finally {
    (holder as Mutable)[key] = before;
  }
}

const ROWS = [12, 2100].map((size) => Float32Array.from({ length: size }, (_, i) => Math.sin(i * 1.3) * 2));
const HOLES = Float32Array.of(Number.NaN, 0.5, 2, Number.NaN, -3e30);

const WISHES: readonly SamplingWishes[] = [
  {},
  { temperature: 0 },
  { temperature: 1, topP: 1, topK: 2000 },
  { temperature: 1, topP: 0.9, topK: 0 },
  { temperature: 1, topP: 1, topK: 0 },
];

/** Tokens, log-probabilities, defaults and refusals under the laws of a family whose own defaults say nothing. */
function answers({ sampler: law }: FamilyLaws): unknown {
  const rules = samplingRules(law);
  const silent = { serverFlags: {}, generationConfig: {}, familyDefaults: {} };
  const drawn = ROWS.flatMap((row) =>
    WISHES.flatMap((wishes) =>
      [0n, 3n].map((seed) => {
        const penalty = rules.penalties ? { presencePenalty: 1.5 } : {};
        const settings = resolveSampling(
          { ...silent, request: { ...wishes, ...penalty } },
          { ...rules, freshSeed: () => seed },
        );
        const sampler = createSampler(law, settings, { vocabSize: row.length, topLogprobs: 1 });
        return Array.from({ length: 24 }, (_, step) =>
          Number(sampler.next(row, { site: 'ar_step', phase: 'decode', step }).tokenId),
        );
      }),
    ),
  );
  const refused = [1e-190, 1e-210].map((temperature) => {
    try {
      return resolveSampling({ ...silent, request: { temperature } }, { ...rules, freshSeed: () => 1n });
    } catch (thrown) {
      return thrown instanceof PlumblineError ? thrown.code : thrown;
    }
  });
  const seedsDiffer = new Set(Array.from({ length: 40 }, () => rules.freshSeed())).size > 1;
  return { drawn, refused, seedsDiffer, holes: holesOf(law) };
}

/** A row with NaN and very low values, where the law makes tokens of it. */
function holesOf(law: FamilyLaws['sampler']): unknown {
  if (law === 'mtplx') return undefined;
  return [0, 1].map((temperature) => {
    const settings = { ...samplingRules(law).defaults, temperature, topK: 0, topP: 1, seed: 1n };
    const sampler = createSampler(law, settings, { vocabSize: HOLES.length, topLogprobs: 1 });
    const low = Float32Array.of(Number.NaN, 0.5, Number.NaN, Number.NaN, -3e30);
    const nothing = Float32Array.of(Number.NaN, Number.NaN, Number.NaN, Number.NaN, Number.NaN);
    return [HOLES, low, nothing].map((row) => sampler.next(row, { site: 'ar_step', phase: 'decode', step: 0 }));
  });
}

const everyone = () => ({
  qwen4: answers(qwenLaws('qwen4_exp')),
  qwen35: answers(qwenLaws('qwen3_5')),
  deepseek: answers(DEEPSEEK_LAWS),
  glm: answers(GLM_LAWS),
});

const normal = everyone();

for (const change of MTPLX_CHANGES) {
  test(`MTPLX ${change.name}: changed, it moves its own family and no other`, () => {
    const changed = holding(change, everyone);
    assert.notDeepEqual(changed.qwen4, normal.qwen4);
    assert.notDeepEqual(changed.qwen35, normal.qwen35);
    assert.deepEqual([changed.deepseek, changed.glm], [normal.deepseek, normal.glm]);
  });
}

for (const change of DS4_CHANGES) {
  test(`DS4 ${change.name}: changed, it moves its own families and no other`, () => {
    const changed = holding(change, everyone);
    assert.notDeepEqual(changed.deepseek, normal.deepseek);
    assert.notDeepEqual(changed.glm, normal.glm);
    assert.deepEqual([changed.qwen4, changed.qwen35], [normal.qwen4, normal.qwen35]);
  });
}

test('the lists above have every number of both laws', () => {
  const leaves = (value: object): string[] =>
    Object.entries(value).flatMap(([key, inner]: [string, unknown]) => {
      if (typeof inner !== 'object' || inner === null) return [key];
      const separator = Array.isArray(inner) ? leaves(inner).map((at) => `${key}[${at}]`) : undefined;
      return separator ?? leaves(inner).map((at) => `${key}.${at}`);
    });
  const named = (changes: readonly Change[]): string[] => changes.map(({ name }) => name).sort();
  assert.deepEqual(named(MTPLX_CHANGES), leaves(MTPLX).sort());
  assert.deepEqual(named(DS4_CHANGES), leaves(DS4).sort());
});

test('what families hand over is nobody else’s object', () => {
  const handed = [qwenLaws('qwen4_exp'), qwenLaws('qwen3_5'), DEEPSEEK_LAWS, GLM_LAWS];
  assert.equal(new Set(handed).size, handed.length);
  assert.equal(new Set(handed.map(({ samplingDefaults }) => samplingDefaults)).size, handed.length);
});

test('the activation law that is Qwen’s own moves the forward pass of Qwen alone', async (t) => {
  const own = QWEN_ACTIVATION_LAWS.at(-1)!;
  const before = await logits(t);
  for (const other of [{ mtplx: 0 }, { act: 0, mtplx: 0, kvType: 0 }]) {
    const held = { ...own };
    Object.assign(own, other);
    try {
      const changed = await logits(t);
      assert.notDeepEqual(changed.qwen, before.qwen);
      assert.deepEqual([changed.deepseek, changed.glm], [before.deepseek, before.glm]);
    } finally {
      Object.assign(own, held);
    }
  }
});

/** Logits of one forward of each family, from fresh checkpoints that are always the same. */
async function logits(t: TestContext): Promise<Record<'qwen' | 'deepseek' | 'glm', Float32Array>> {
  const of = async (dtype: string, write: (folder: string) => unknown): Promise<Float32Array> => {
    const dir = temporaryFolder(t, 'isolation');
    write(dir);
    const { backend } = await openBackend('reference', 1);
    const shape = { id: 'x', gatePolicy: 'uniform', maxRows: 16, sequences: 1 } as const;
    const { model } = await loadModel({ dir, backend, dtype, ...shape });
    const empty = model.newState();
    try {
      const tokens = [5, 9, 200, 33, 7, 5, 9];
      const [result] = await model.forward([{ state: empty, tokens, logits: 'last' }], { phase: 'prefill' });
      result!.state.release();
      return result!.logits[0]!;
    } finally {
      empty.release();
      await model.close();
      await backend.close();
    }
  };
  return {
    qwen: await of('bf16-mtplx', writeCheckpoint),
    deepseek: await of('f32', writeDeepseekCheckpoint),
    glm: await of('f32', writeGlmCheckpoint),
  };
}
