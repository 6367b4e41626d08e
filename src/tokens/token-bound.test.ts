import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { PlumblineError } from '../errors.js';
import { byteTokenizerConfig, byteTokenizerJson } from '../../test/support/byte-tokenizer.js';
import { TokenBound } from './token-bound.js';
import { checkTokenizerFiles, readTokenizerFiles } from './tokenizer-files.js';
import { Tokenizer } from './tokenizer.js';

const embedded = join(import.meta.dirname, '..', '..', '..', 'models', 'plumbline-tiny');

test('the bound is never above what encoding gives', async () => {
  const bound = new TokenBound(await readTokenizerFiles(embedded));
  const tokenizer = await Tokenizer.load(embedded);
  const pieces = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.constantFrom(' '.repeat(64), '<|im_end|>', '\ud800', '가'.normalize('NFD'), '\u1f82'.normalize('NFD'), '\n\n'),
  );
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 20 }), (list) => {
      const text = list.join('');
      assert.ok(bound.fewestTokens(text) <= tokenizer.encode(text).length, JSON.stringify(text));
    }),
  );
  const longest = ' '.repeat(64 * 50);
  assert.equal(bound.fewestTokens(longest), tokenizer.encode(longest).length, 'and reached by the longest token');
});

test('a text far beyond the limit is refused by its length, with the field; at the limit it is encoded', async () => {
  const tokenizer = await Tokenizer.load(embedded);
  const limit = { tokens: 50, param: 'prompt' };
  assert.equal(tokenizer.encode(' '.repeat(64 * 50), { limit }).length, 50);
  assert.throws(
    () => tokenizer.encode(' '.repeat(64 * 50 + 1), { limit }),
    (error) =>
      error instanceof PlumblineError &&
      error.code === 'context_length_exceeded' &&
      error.param === 'prompt' &&
      error.message.includes('at least 51 tokens'),
  );
});

test('a tokenizer that may drop or shorten text has no bound', () => {
  const json = byteTokenizerJson();
  const boundOf = (change: Record<string, unknown>): number =>
    new TokenBound(checkTokenizerFiles({ ...json, ...change }, byteTokenizerConfig())).fewestTokens('x'.repeat(1000));
  assert.ok(boundOf({}) > 0);
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, use_regex: false };
  const split = (behavior: string) => ({ type: 'Split', pattern: { String: 'x' }, behavior, invert: false });
  const sequence = (...pretokenizers: object[]) => ({ pre_tokenizer: { type: 'Sequence', pretokenizers } });
  assert.ok(boundOf(sequence(split('Isolated'), byteLevel)) > 0);
  assert.equal(boundOf(sequence(split('Removed'), byteLevel)), 0);
  assert.equal(boundOf(sequence({ type: 'Whitespace' }, byteLevel)), 0);
  assert.equal(boundOf({ normalizer: { type: 'Replace', pattern: { String: 'x' }, content: '' } }), 0);
  const strips = { id: 5000, content: '<x>', special: true, lstrip: true, rstrip: false };
  assert.equal(boundOf({ added_tokens: [...(json['added_tokens'] as object[]), strips] }), 0);
});
