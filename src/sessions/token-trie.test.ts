import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { TokenTrie } from './token-trie.js';

const sequence = fc.array(fc.integer({ min: 0, max: 2 }), { maxLength: 7 });
const startsWith = (tokens: readonly number[], start: readonly number[]): boolean =>
  start.length <= tokens.length && start.every((token, i) => tokens[i] === token);

test('a trie finds what a list finds, however values come and go', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(sequence, fc.boolean()), { maxLength: 30 }), sequence, (steps, prompt) => {
      const trie = new TokenTrie<number>();
      const list = new Map<number, readonly number[]>();
      steps.forEach(([tokens, removes], value) => {
        trie.add(Int32Array.from(tokens), value);
        list.set(value, tokens);
        const oldest = removes ? [...list.keys()][0]! : undefined;
        if (oldest === undefined) return;
        assert.equal(trie.remove(Int32Array.from(list.get(oldest)!), oldest), true);
        list.delete(oldest);
      });
      const along = [...trie.along(prompt)].flatMap(({ depth, values }) => [...values].map((value) => [depth, value]));
      const expected = [...list]
        .filter(([, tokens]) => startsWith(prompt, tokens))
        .map(([value, tokens]) => [tokens.length, value]);
      assert.deepEqual(along.map(String).sort(), expected.map(String).sort());
      assert.deepEqual(
        along.map(([depth]) => depth),
        along.map(([depth]) => depth).sort((a, b) => a! - b!),
        'shortest first',
      );
      const under = [...list].filter(([, tokens]) => startsWith(tokens, prompt)).map(([value]) => value);
      assert.deepEqual([...trie.under(prompt)].sort(), under.sort());
    }),
    { numRuns: 300 },
  );
});

test('what is not there cannot be removed', () => {
  const trie = new TokenTrie<string>();
  trie.add(Int32Array.of(1, 2, 3), 'a');
  for (const tokens of [[], [1, 2], [1, 2, 3, 4], [2]]) assert.equal(trie.remove(Int32Array.from(tokens), 'a'), false);
  assert.equal(trie.remove(Int32Array.of(1, 2, 3), 'b'), false);
  assert.equal(trie.remove(Int32Array.of(1, 2, 3), 'a'), true);
  assert.deepEqual([...trie.along([1, 2, 3])], []);
});
