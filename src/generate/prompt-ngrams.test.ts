import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PromptNgrams, type PromptMatch } from './prompt-ngrams.js';

/** By reading the prompt from its end: every place of the newest six tokens that another token follows. */
function naiveMatch(prompt: readonly number[], text: readonly number[]): PromptMatch | undefined {
  if (text.length < 6) return undefined;
  const gram = text.slice(-6).join();
  const matches: PromptMatch[] = [];
  for (let next = prompt.length - 1; next >= 6 && matches.length < 32; next--) {
    if (prompt.slice(next - 6, next).join() !== gram) continue;
    let length = 6;
    for (let more = 7; more <= 10 && more <= next && more <= text.length; more++) {
      if (prompt.slice(next - more, next).join() === text.slice(-more).join()) length = more;
      else break;
    }
    matches.push({ next, length });
  }
  return matches.reduce<PromptMatch | undefined>((best, m) => (best && best.length >= m.length ? best : m), undefined);
}

/** Texts over few words, so that grams repeat, with pieces of the prompt in them. */
const words = fc.integer({ min: 0, max: 1 });
const prompt = fc
  .array(fc.oneof({ weight: 3, arbitrary: fc.array(words, { maxLength: 6 }) }, fc.constant([0, 0, 0, 0, 0, 0, 0])), {
    maxLength: 40,
  })
  .map((pieces) => pieces.flat());

test('the longest match, and of equal ones the last, as a search of the prompt finds it', () => {
  let found = 0;
  fc.assert(
    fc.property(prompt, fc.array(words, { maxLength: 14 }), fc.nat(), (tokens, own, cut) => {
      const index = new PromptNgrams(tokens);
      const from = tokens.length === 0 ? 0 : cut % tokens.length;
      for (const text of [own, tokens.slice(from, from + 10), [...own, ...tokens.slice(from, from + 7)], tokens]) {
        const match = index.longestMatch(text);
        if (match) found++;
        assert.deepEqual(match, naiveMatch(tokens, text));
      }
    }),
    { numRuns: 400 },
  );
  assert.ok(found > 100);
});

test('only the last 32 places of a gram are looked at', () => {
  const gram = [1, 2, 3, 4, 5, 6];
  const repeated = (times: number): number[] => Array.from({ length: times }, () => [0, ...gram]).flat();
  // The first place alone matches ten tokens.
  const text = [7, 8, 9, 7, ...gram];
  assert.deepEqual(new PromptNgrams([...text, ...repeated(31), 0]).longestMatch(text), { next: 10, length: 10 });
  const later = [...text, ...repeated(32), 0];
  assert.deepEqual(new PromptNgrams(later).longestMatch(text), { next: later.length - 1, length: 6 });
});

test('a gram at the end of the prompt has nothing to offer, and does not use up a place', () => {
  const gram = [1, 2, 3, 4, 5, 6];
  assert.equal(new PromptNgrams(gram).longestMatch(gram), undefined);
  assert.deepEqual(new PromptNgrams([...gram, ...gram]).longestMatch(gram), { next: 6, length: 6 });
  assert.equal(new PromptNgrams([]).longestMatch(gram), undefined);
});

test('large ids, and ids that hash alike, are told apart', () => {
  const tokens = Array.from({ length: 5000 }, (_, i) => (i * 7919) % 248320);
  const index = new PromptNgrams(tokens);
  for (let next = 10; next < tokens.length; next += 13) {
    assert.deepEqual(index.longestMatch(tokens.slice(next - 10, next)), { next, length: 10 });
    assert.equal(index.longestMatch([...tokens.slice(next - 5, next), 248319]), undefined);
  }
});
