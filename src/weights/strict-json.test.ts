import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseStrictJson, quoteName } from './strict-json.js';

class Refused extends Error {}

function parse(text: string | Uint8Array): unknown {
  const bytes = typeof text === 'string' ? new TextEncoder().encode(text) : text;
  return parseStrictJson(bytes, (why) => {
    throw new Refused(why);
  });
}

/** Ordinary objects for comparison: ours have no prototype. */
function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

test('every document that JSON.stringify can write reads back as it was', () => {
  fc.assert(
    fc.property(fc.json(), fc.constantFrom(0, 2), (text, indent) => {
      const value: unknown = JSON.parse(text);
      assert.deepEqual(plain(parse(JSON.stringify(value, null, indent))), plain(value));
    }),
  );
});

test('whatever JSON.parse refuses is refused; of what it accepts, only repeated keys and infinite numbers are', () => {
  const soup = fc.array(
    fc.constantFrom(
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"a"',
      '"b"',
      '1',
      '-0.5e3',
      'true',
      'null',
      ' ',
      '01',
      '"',
      '\\',
      '.',
    ),
    {
      maxLength: 9,
    },
  );
  fc.assert(
    fc.property(soup, (parts) => {
      const text = parts.join('');
      let expected: unknown;
      try {
        expected = JSON.parse(text);
      } catch {
        assert.throws(() => parse(text), Refused);
        return;
      }
      try {
        assert.deepEqual(plain(parse(text)), plain(expected));
      } catch (error) {
        assert.ok(error instanceof Refused && /occurs twice|out of range/.test(error.message), String(error));
      }
    }),
    { numRuns: 2000 },
  );
});

test('a repeated key is an error at any depth', () => {
  assert.throws(() => parse('{"a": 1, "b": {"c": 1, "c": 1}}'), /the key "c" occurs twice, at character \d+/);
  assert.throws(() => parse('{"a": 1, "\\u0061": 2}'), /the key "a" occurs twice/);
});

test('keys that name parts of every JavaScript object are plain keys', () => {
  const object = parse('{"__proto__": {"polluted": true}, "constructor": 1, "toString": 2}') as Record<string, unknown>;
  assert.deepEqual(Object.keys(object), ['__proto__', 'constructor', 'toString']);
  assert.equal(({} as Record<string, unknown>)['polluted'], undefined);
  assert.equal((parse('{}') as Record<string, unknown>)['constructor'], undefined);
});

test('bytes that are no UTF-8, a byte order mark, and an empty document are refused', () => {
  assert.throws(() => parse(Uint8Array.of(0x22, 0xff, 0x22)), /not UTF-8/);
  assert.throws(() => parse(Uint8Array.of(0xef, 0xbb, 0xbf, 0x7b, 0x7d)), Refused);
  assert.throws(() => parse(''), /unexpected end/);
});

test('deep nesting is refused before it can exhaust the stack', () => {
  assert.throws(() => parse('['.repeat(1_000_000)), /nesting deeper than 64/);
  assert.throws(() => parse('{"a":'.repeat(1_000_000)), /nesting deeper than 64/);
});

test('numbers must be finite, and words that are not JSON are shown', () => {
  assert.throws(() => parse('{"a": 1e999}'), /a number out of range/);
  assert.throws(() => parse('{"a": NaN}'), /unexpected "NaN"/);
  assert.throws(() => parse('{"a": -Infinity}'), /unexpected "-"/);
});

test('a long or unprintable name is cut and escaped in messages', () => {
  assert.equal(quoteName('a\nb'), '"a\\nb"');
  assert.equal(quoteName('x'.repeat(500)).length, 122);
});
