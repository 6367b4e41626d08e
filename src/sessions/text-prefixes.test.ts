import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { TextPrefixes, type StoredPrefix } from './text-prefixes.js';

/** Ids below 256 are bytes; further ones stand for several. */
const WORDS = ['ab', 'abc', 'é', '<t>', 'x<t>hid</t>'];
const NO_TOKEN = 999;
const idOf = (word: string): number => 256 + WORDS.indexOf(word);
const tokenBytes = (id: number): Uint8Array | undefined =>
  id < 256 ? Uint8Array.of(id) : id === NO_TOKEN ? undefined : Buffer.from(WORDS[id - 256]!);
const bytes = (text: string): number[] => [...Buffer.from(text)];

const kept = (tokens: readonly number[], session = 'auto-1'): StoredPrefix => ({
  identity: {},
  session,
  tokens: () => Int32Array.from(tokens),
});

function over(stored: readonly StoredPrefix[], exact = 0): TextPrefixes {
  return new TextPrefixes({
    stored: () => stored,
    reach: () => exact,
    tokenBytes,
    visibleTexts: (text) => [text.replaceAll(/<t>.*?<\/t>/g, '<t></t>')],
  });
}

test('the longest stored text wins, whatever its tokens are, and the rest is text', () => {
  const long = kept([idOf('abc'), ...bytes('d')]);
  const prefixes = over([kept([idOf('ab')]), long, kept(bytes('abx')), kept([idOf('abc'), ...bytes('dé!')])]);
  const found = prefixes.longest(bytes('abcdé?'), undefined);
  assert.deepEqual(found && { ...found, tokens: [...found.tokens] }, {
    tokens: [...long.tokens()],
    rest: 'é?',
    by: 'text',
  });
});

test('of equal texts the one of more tokens wins', () => {
  const few = kept([idOf('ab'), ...bytes('c')]);
  const many = kept(bytes('abc'));
  for (const order of [
    [few, many],
    [many, few],
  ]) {
    assert.deepEqual([...over(order).longest([idOf('abc'), ...bytes('d')], undefined)!.tokens], [...many.tokens()]);
  }
});

test('what the own tokens reach stays, something is left over, and characters are not cut', () => {
  const prompt = bytes('abcd');
  assert.equal(over([kept([idOf('abc')])], 3).longest(prompt, undefined), undefined);
  assert.ok(over([kept([idOf('abc')])], 2).longest(prompt, undefined));
  assert.equal(over([kept([idOf('abc'), ...bytes('d')])]).longest(prompt, undefined), undefined);
  const half = kept([idOf('ab'), Buffer.from('é')[0]!]);
  assert.equal(over([half]).longest([idOf('ab'), idOf('é')], undefined), undefined);
  assert.ok(over([kept([idOf('ab'), ...bytes('é')])]).longest([idOf('ab'), idOf('é'), 33], undefined));
});

test('ids without bytes find nothing and are not found', () => {
  assert.equal(over([kept([idOf('ab')])]).longest([...bytes('ab'), NO_TOKEN], undefined), undefined);
  assert.equal(over([kept([idOf('ab'), NO_TOKEN])]).longest(bytes('abcd'), undefined), undefined);
});

test('a text that hides something serves its own session, or the unnamed', () => {
  const prompt = bytes('x<t></t>y');
  const hiding = (session: string): StoredPrefix => kept([idOf('x<t>hid</t>')], session);
  const by = (stored: StoredPrefix, session: string | undefined) => over([stored]).longest(prompt, session)?.by;
  assert.equal(by(hiding('auto-1'), undefined), 'visible_text');
  assert.equal(by(hiding('mine'), 'mine'), 'visible_text');
  assert.equal(by(hiding('mine'), 'yours'), undefined);
  assert.equal(by(hiding('mine'), undefined), undefined);
  assert.equal(by(hiding('auto-1'), 'mine'), undefined);
  assert.equal(over([hiding('mine')]).longest(bytes('x<t>hid</t>y'), 'yours')?.by, 'text');
});

test('what is found is what a search through all stored texts finds', () => {
  const tokens = fc.array(fc.constantFrom(97, 98, 99, idOf('ab'), idOf('abc'), idOf('é')), {
    minLength: 1,
    maxLength: 6,
  });
  const textOf = (ids: Iterable<number>): Buffer => Buffer.concat([...ids].map((id) => tokenBytes(id)!));
  fc.assert(
    fc.property(fc.array(tokens, { maxLength: 12 }), tokens, (stored, prompt) => {
      const found = over(stored.map((ids) => kept(ids))).longest(prompt, undefined);
      const text = textOf(prompt);
      const fitting = stored.filter((ids) => {
        const own = textOf(ids);
        return own.length < text.length && text.subarray(0, own.length).equals(own);
      });
      const longest = Math.max(0, ...fitting.map((ids) => textOf(ids).length));
      const most = Math.max(0, ...fitting.filter((ids) => textOf(ids).length === longest).map((ids) => ids.length));
      if (!found) return assert.equal(fitting.length, 0);
      assert.deepEqual([textOf(found.tokens).length, found.tokens.length], [longest, most]);
      assert.ok(Buffer.concat([textOf(found.tokens), Buffer.from(found.rest)]).equals(text));
    }),
    { numRuns: 500 },
  );
});
