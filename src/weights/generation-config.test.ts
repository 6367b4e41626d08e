import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EMBEDDED_MODEL, fixture } from '../../test/support/repository.js';
import { parseGenerationConfig, readGenerationConfig, type GenerationConfig } from './generation-config.js';
import { JsonKeys } from './json-file.js';
import type { JsonObject } from './strict-json.js';

const FILE = 'generation_config.json';

function parse(value: Record<string, unknown>): GenerationConfig {
  return parseGenerationConfig(new JsonKeys(value as JsonObject, FILE, ''), 1000);
}

test('the embedded model suggests its sampling and its stop ids', () => {
  assert.deepEqual(readGenerationConfig(EMBEDDED_MODEL, 4096), {
    temperature: 0.7,
    topP: 0.95,
    topK: 20,
    eosTokenIds: [4091, 4089],
    padTokenId: 4089,
  });
});

test('absent keys stay open, an absent file is all open', () => {
  assert.deepEqual(parse({}), {
    temperature: undefined,
    topP: undefined,
    topK: undefined,
    eosTokenIds: [],
    padTokenId: undefined,
  });
  assert.deepEqual(readGenerationConfig(fixture('golden'), 1000), { eosTokenIds: [] });
  assert.deepEqual(readGenerationConfig(fixture('golden', 'qwen4-exp-tiny'), 384).eosTokenIds, [1]);
});

test('do_sample false is greedy whatever the temperature; without it the temperature rules', () => {
  assert.equal(parse({ do_sample: false, temperature: 0.7 }).temperature, 0);
  assert.equal(parse({ do_sample: false }).temperature, 0);
  assert.equal(parse({ do_sample: true }).temperature, undefined);
  assert.equal(parse({ temperature: 0.7 }).temperature, 0.7);
  assert.equal(parse({ temperature: 0 }).temperature, 0);
});

test('an eos is one id or several, each once', () => {
  assert.deepEqual(parse({ eos_token_id: 5 }).eosTokenIds, [5]);
  assert.deepEqual(parse({ eos_token_id: [5, 3, 5] }).eosTokenIds, [5, 3]);
  assert.deepEqual(parse({ eos_token_id: null, pad_token_id: null }).eosTokenIds, []);
});

test('values outside their range are refused by key and rule', () => {
  const refused: readonly [Record<string, unknown>, RegExp][] = [
    [{ temperature: -1 }, /temperature is -1/],
    [{ temperature: 'hot' }, /temperature is "hot"/],
    [{ top_p: 0 }, /top_p is 0/],
    [{ top_p: 1.5 }, /top_p is 1\.5/],
    [{ top_k: -1 }, /top_k is -1/],
    [{ top_k: 2.5 }, /top_k is 2\.5/],
    [{ do_sample: 1 }, /do_sample is 1/],
    [{ eos_token_id: 1000 }, /eos_token_id is 1000; it must be an integer from 0 to 999/],
    [{ eos_token_id: [1, '2'] }, /eos_token_id is "2"/],
    [{ pad_token_id: -1 }, /pad_token_id is -1/],
  ];
  for (const [value, message] of refused) assert.throws(() => parse(value), { code: 'config_invalid', message });
});
