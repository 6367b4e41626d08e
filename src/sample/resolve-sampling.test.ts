import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PlumblineError } from '../errors.js';
import { resolveSampling, type SamplingWishes } from './resolve-sampling.js';
import { samplingRules } from './sampler.js';

const FAMILY = { temperature: 1, topP: 0.95, topK: 20 };
const MTPLX = { ...samplingRules('mtplx'), freshSeed: (): bigint => 7n };
const DS4 = { ...samplingRules('ds4'), freshSeed: (): bigint => 7n };
const resolve = (
  request: SamplingWishes,
  serverFlags: SamplingWishes = {},
  generationConfig: SamplingWishes = {},
  rules = MTPLX,
  thinking = false,
) => resolveSampling({ request, serverFlags, generationConfig, familyDefaults: FAMILY, thinking }, rules);

test('a silent request takes the family defaults, and the defaults of the law where the family is silent', () => {
  const expected = { ...FAMILY, minP: 0, presencePenalty: 0, frequencyPenalty: 0, seed: 7n };
  assert.deepEqual(resolve({}), expected);
  const nobody = { request: {}, serverFlags: {}, generationConfig: {}, familyDefaults: {} };
  assert.equal(resolveSampling(nobody, MTPLX).temperature, 0.6);
  assert.deepEqual(resolveSampling(nobody, DS4), {
    ...{ temperature: 1, topP: 1, topK: 0, minP: 0.05 },
    ...{ presencePenalty: 0, frequencyPenalty: 0, seed: 7n },
  });
});

test('request, server flag, generation_config.json, family: the first that speaks wins, field by field', () => {
  const sources: SamplingWishes[] = [
    { temperature: 0.1 },
    { temperature: 0.2, topP: 0.2 },
    { temperature: 0.3, topP: 0.3, topK: 3 },
  ];
  const [request, flags, config] = sources;
  const resolved = resolve(request!, flags, config);
  assert.equal(resolved.temperature, 0.1);
  assert.equal(resolved.topP, 0.2);
  assert.equal(resolved.topK, 3);
  assert.equal(resolve({}, {}, { temperature: 0 }).temperature, 0);
});

test('a request turns filters off over every default', () => {
  const resolved = resolve({ topP: 1, topK: 0 }, { topP: 0.5, topK: 5 });
  assert.equal(resolved.topP, 1);
  assert.equal(resolved.topK, 0);
  assert.equal(resolve({ topK: -1 }).topK, -1);
});

test('a temperature so small that a logit divided by it is infinite is refused, and names its source', () => {
  for (const temperature of [5e-324, 1e-310, 9e-201]) {
    assert.throws(() => resolve({ temperature }), {
      code: 'invalid_request',
      message: /temperature of the request must be 0/,
    });
    assert.throws(() => resolve({}, { temperature }), { code: 'invalid_option' });
  }
  assert.equal(resolve({ temperature: 1e-200 }).temperature, 1e-200);
  assert.equal(resolve({ temperature: 0 }).temperature, 0);
});

test('penalties are clamped to [-2, 2]', () => {
  const { presencePenalty, frequencyPenalty } = resolve({ presencePenalty: 9, frequencyPenalty: -9 });
  assert.deepEqual([presencePenalty, frequencyPenalty], [2, -2]);
});

test('seeds: the request before the server before a fresh one, 0 to 2^64 - 1', () => {
  assert.equal(resolve({ seed: 0n }, { seed: 1n }).seed, 0n);
  assert.equal(resolve({}, { seed: 1n }).seed, 1n);
  assert.equal(resolve({ seed: (1n << 64n) - 1n }).seed, (1n << 64n) - 1n);
  const seeds = Array.from({ length: 200 }, samplingRules('mtplx').freshSeed);
  assert.ok(seeds.every((seed) => seed >= 0n && seed < 2n ** 31n - 1n));
  assert.ok(new Set(seeds).size > 190);
});

test('a bad value is refused with the code of the source that said it', () => {
  const refused = (run: () => unknown, code: string, param: string): void =>
    void assert.throws(
      run,
      (thrown) => thrown instanceof PlumblineError && thrown.code === code && thrown.param === param,
    );
  refused(() => resolve({ temperature: Number.NaN }), 'invalid_request', 'temperature');
  refused(() => resolve({}, { topP: Infinity }), 'invalid_option', 'top_p');
  refused(() => resolve({}, {}, { topK: 1.5 }), 'config_invalid', 'top_k');
  refused(() => resolve({ presencePenalty: Infinity }), 'invalid_request', 'presence_penalty');
  refused(() => resolve({ seed: -1n }), 'invalid_request', 'seed');
  refused(() => resolve({ seed: 1n << 64n }), 'invalid_request', 'seed');
});

test('under the ds4 law the seed 0 says nothing, no temperature is too small, and generation_config.json is not read', () => {
  assert.equal(resolve({ seed: 0n }, {}, {}, DS4).seed, 7n);
  assert.equal(resolve({ seed: 0n }, { seed: 3n }, {}, DS4).seed, 3n);
  assert.equal(resolve({ seed: 5n }, { seed: 3n }, {}, DS4).seed, 5n);
  assert.ok(Array.from({ length: 200 }, samplingRules('ds4').freshSeed).every((seed) => seed > 0n && seed < 2n ** 48n));
  assert.equal(resolve({ temperature: 1e-310 }, {}, {}, DS4).temperature, 1e-310);
  assert.equal(resolve({}, {}, { temperature: 0.3 }, DS4).temperature, FAMILY.temperature);
});

test('in thinking mode the ds4 law has its own defaults for what the client does not say; another law does not', () => {
  const flags = { temperature: 0.2, topP: 0.5, topK: 5, seed: 3n };
  const own = { temperature: 1, topP: 1, topK: 0, minP: 0.05, presencePenalty: 0, frequencyPenalty: 0, seed: 3n };
  assert.deepEqual(resolve({}, flags, {}, DS4, true), own);
  assert.deepEqual(resolve({ topP: 0.9 }, flags, {}, DS4, true), { ...own, topP: 0.9 });
  assert.equal(resolve({}, flags, {}, DS4, false).temperature, 0.2);
  assert.equal(resolve({}, flags, {}, MTPLX, true).temperature, 0.2);
});
