import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NonFiniteLogitsError, PlumblineError } from '../errors.js';
import { resolveSampling, type ResolvedSampling, type SamplingWishes } from './resolve-sampling.js';
import {
  createSampler,
  createSpeculativeSampler,
  samplingRules,
  type RequestSampler,
  type SamplerOptions,
} from './sampler.js';
import type { RowContext } from './validity.js';

const VOCAB = 64;
const context = (step: number): RowContext => ({ site: 'ar_step', phase: 'decode', step });

const resolved = (request: SamplingWishes): ResolvedSampling =>
  resolveSampling({ request, serverFlags: {}, generationConfig: {}, familyDefaults: {} }, samplingRules('mtplx'));

const sampler = (wishes: SamplingWishes, options: Partial<SamplerOptions> = {}): RequestSampler =>
  createSampler('mtplx', resolved({ temperature: 1, topP: 0.95, topK: 20, seed: 7n, ...wishes }), {
    vocabSize: VOCAB,
    ...options,
  });

const rowOf = (fill: number, entries: Readonly<Record<number, number>> = {}): Float32Array => {
  const row = new Float32Array(VOCAB).fill(fill);
  for (const [id, value] of Object.entries(entries)) row[Number(id)] = value;
  return row;
};

const BAD_ROWS = [
  { name: 'R1 all NaN', row: rowOf(Number.NaN), nanCount: 64, infCount: 0 },
  { name: 'R2 +inf, then zeros', row: rowOf(0, { 0: Infinity }), nanCount: 0, infCount: 1 },
  { name: 'R3 NaN, then zeros', row: rowOf(0, { 0: Number.NaN }), nanCount: 1, infCount: 0 },
  { name: 'R4 all -inf', row: rowOf(-Infinity), nanCount: 0, infCount: 64 },
  { name: 'NaN behind every candidate', row: rowOf(-9, { 0: 5, 1: 4, 63: Number.NaN }), nanCount: 1, infCount: 0 },
];
const R5 = rowOf(-Infinity, { 1: 2, 3: 1 });
const GOOD = Float32Array.from({ length: VOCAB }, (_, i) => Math.sin(i * 1.7) * 2);

const SETTINGS = [0, 0.6, 1].flatMap((temperature) =>
  [0.95, 1].flatMap((topP) => [20, 0].map((topK) => ({ temperature, topP, topK }))),
);

for (const settings of SETTINGS) {
  const label = `T ${settings.temperature}, top_p ${settings.topP}, top_k ${settings.topK}`;

  test(`invalid rows raise with their census and spend nothing: ${label}`, () => {
    for (const { name, row, nanCount, infCount } of BAD_ROWS) {
      for (const penalties of [{}, { presencePenalty: 1, frequencyPenalty: 0.5 }]) {
        const subject = sampler({ ...settings, ...penalties });
        const twin = sampler({ ...settings, ...penalties });
        subject.next(GOOD, context(0));
        twin.next(GOOD, context(0));
        assert.throws(
          () => subject.next(row, context(1)),
          (thrown) => {
            assert.ok(thrown instanceof NonFiniteLogitsError, name);
            assert.deepEqual(thrown.census, { ...context(1), nanCount, infCount, vocabSize: VOCAB }, name);
            return true;
          },
        );
        for (let step = 1; step < 6; step++) {
          assert.equal(subject.next(GOOD, context(step)).tokenId, twin.next(GOOD, context(step)).tokenId, name);
        }
      }
    }
  });

  test(`R5, a legal mask, gives 1 when greedy and 1 or 3 when sampled: ${label}`, () => {
    const allowed = settings.temperature === 0 ? [1] : [1, 3];
    const seen = new Set<number>();
    for (let seed = 0n; seed < 40n; seed++) seen.add(sampler({ ...settings, seed }).next(R5, context(0)).tokenId);
    assert.deepEqual([...seen].sort(), allowed);
  });
}

test('one seed, one stream; another seed, another', () => {
  const stream = (seed: bigint): number[] => {
    const subject = sampler({ seed });
    return Array.from({ length: 30 }, (_, step) => subject.next(GOOD, context(step)).tokenId);
  };
  assert.deepEqual(stream(5n), stream(5n));
  assert.notDeepEqual(stream(5n), stream(6n));
});

test('samplers of two requests do not disturb each other', () => {
  const alone = sampler({ topK: 0 });
  const expected = Array.from({ length: 20 }, (_, step) => alone.next(GOOD, context(step)).tokenId);
  const subject = sampler({ topK: 0 });
  const stranger = sampler({ topK: 0, seed: 99n, presencePenalty: 2 });
  const mixed = expected.map((_, step) => {
    stranger.next(R5, context(step));
    return subject.next(GOOD, context(step)).tokenId;
  });
  assert.deepEqual(mixed, expected);
});

test('an id beyond the tokenizer is never drawn, however likely', () => {
  const row = rowOf(0, { 60: 30, 63: 40 });
  for (const settings of SETTINGS) {
    const subject = sampler(settings, { tokenizerSize: 60 });
    for (let step = 0; step < 20; step++) assert.ok(subject.next(row, context(step)).tokenId < 60);
  }
});

test('penalties count completion tokens: a greedy run moves on', () => {
  const row = rowOf(0, { 5: 1.5, 9: 1 });
  const subject = sampler({ temperature: 0, presencePenalty: 1 });
  const drawn = Array.from({ length: 3 }, (_, step) => subject.next(row, context(step)).tokenId);
  assert.deepEqual(drawn, [5, 9, 5]);
});

test('log-probabilities: of the processed row, before temperature and filters', () => {
  const row = rowOf(0, { 5: 1.5, 9: 1, 62: 50 });
  const subject = sampler({ temperature: 0, presencePenalty: 1 }, { tokenizerSize: 60, topLogprobs: 2 });
  const first = subject.next(row, context(0));
  const logMass = Math.log(58 + Math.exp(1.5) + Math.exp(1));
  assert.ok(Math.abs(first.logprob!.logprob - (1.5 - logMass)) < 1e-14);
  assert.deepEqual(
    first.topLogprobs!.map(({ tokenId }) => tokenId),
    [5, 9],
  );
  const second = subject.next(row, context(1));
  assert.equal(second.tokenId, 9);
  assert.deepEqual(
    second.topLogprobs!.map(({ tokenId }) => tokenId),
    [9, 5],
  );
  assert.equal('logprob' in sampler({}).next(GOOD, context(0)), false);
});

test('a row of another length is a fault, not a token', () => {
  assert.throws(
    () => sampler({}).next(new Float32Array(10), context(0)),
    (thrown) => thrown instanceof PlumblineError && thrown.code === 'internal_error',
  );
});

test('a speculative sampler decodes plainly as a plain one does', () => {
  const settings = resolved({ seed: 5n, temperature: 1 });
  const options = { vocabSize: VOCAB, topLogprobs: 2 };
  for (const acceptance of ['plain', 'block', 'coupled'] as const) {
    const plain = createSampler('mtplx', settings, options);
    const subject = createSpeculativeSampler('mtplx', settings, { ...options, acceptance });
    assert.deepEqual([subject.acceptance, subject.seed, subject.greedy], [acceptance, 5n, false]);
    for (let step = 0; step < 20; step++) {
      assert.deepEqual(subject.next(GOOD, context(step)), plain.next(GOOD, context(step)));
    }
  }
});

test('a vocabulary of 248,320 is sampled to the same token as its compact row', () => {
  const row = new Float32Array(248320).fill(-Infinity);
  [7, 1000, 248000, 248319].forEach((id, i) => (row[id] = 1 + i * 0.5));
  const big = createSampler('mtplx', resolved({ seed: 3n }), { vocabSize: row.length });
  const small = createSampler('mtplx', resolved({ seed: 3n }), { vocabSize: 4 });
  const compact = Float32Array.of(1, 1.5, 2, 2.5);
  for (let step = 0; step < 10; step++) {
    const at = small.next(compact, context(step)).tokenId;
    assert.equal(big.next(row, context(step)).tokenId, [7, 1000, 248000, 248319][at]);
  }
});
