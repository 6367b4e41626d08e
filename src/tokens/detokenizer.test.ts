import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { byteTokenizer, FIRST_BYTE } from '../../test/support/byte-tokenizer.js';
import { Detokenizer, unfinishedTail, type TokenBytes } from './detokenizer.js';

const whole = (bytes: readonly number[]) =>
  new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(bytes));

/** Tokens of any bytes: id i is pieces[i]. */
const pieceTokenizer = (pieces: readonly (readonly number[])[]): TokenBytes => ({
  tokenBytes: (id) => (pieces[id] === undefined ? undefined : Uint8Array.from(pieces[id])),
  isSpecial: () => false,
});

/** Bytes that meet every branch of the UTF-8 table far more often than uniform ones do. */
const anyByte = fc.oneof(
  fc.integer({ min: 0, max: 255 }),
  fc.constantFrom(
    0x41,
    0x7f,
    0x80,
    0x8f,
    0x90,
    0x9f,
    0xa0,
    0xbf,
    0xc0,
    0xc1,
    0xc2,
    0xdf,
    0xe0,
    0xe1,
    0xed,
    0xef,
    0xf0,
    0xf1,
    0xf4,
    0xf5,
    0xff,
    0xbb,
  ),
);
const textBytes = fc.string({ unit: 'binary', maxLength: 4 }).map((text) => [...new TextEncoder().encode(text)]);
/** Token byte strings: arbitrary bytes, or pieces of well-formed text cut anywhere. */
const pieces = fc.oneof(
  fc.array(fc.array(anyByte, { maxLength: 5 }), { maxLength: 12 }),
  fc
    .tuple(fc.array(textBytes, { maxLength: 8 }), fc.array(fc.nat({ max: 40 }), { maxLength: 8 }))
    .map(([texts, cuts]) => {
      const bytes = texts.flat();
      const at = [0, ...cuts.filter((cut) => cut <= bytes.length).sort((a, b) => a - b), bytes.length];
      return at.slice(1).map((end, i) => bytes.slice(at[i], end));
    }),
);

describe('detokenizer', () => {
  test('any split of any bytes concatenates to one decoding of the whole', () => {
    fc.assert(
      fc.property(pieces, (parts) => {
        const detokenizer = new Detokenizer(pieceTokenizer(parts));
        const text = parts.map((_, id) => detokenizer.push(id)).join('') + detokenizer.flush();
        assert.equal(text, whole(parts.flat()));
      }),
      { numRuns: 2000 },
    );
  });

  test('every emitted piece is final, and nothing but an unfinished sequence is held back', () => {
    fc.assert(
      fc.property(pieces, (parts) => {
        const detokenizer = new Detokenizer(pieceTokenizer(parts));
        let text = '';
        for (const [id] of parts.entries()) {
          const step = detokenizer.push(id);
          assert.doesNotMatch(step, /\p{Surrogate}/u);
          text += step;
          const bytes = parts.slice(0, id + 1).flat();
          const held = unfinishedTail(Uint8Array.from(bytes));
          assert.equal(text, whole(bytes.slice(0, bytes.length - held)));
        }
      }),
    );
  });

  test('the table of unfinished sequences holds for every pair of bytes', () => {
    const finishes = (head: readonly number[]) => completions(head).some((full) => /^[^\ufffd]$/u.test(whole(full)));
    for (let first = 0; first < 256; first++) {
      for (let second = 0; second < 256; second++) {
        const expected = finishes([first, second]) ? 2 : finishes([second]) ? 1 : 0;
        assert.equal(unfinishedTail(Uint8Array.of(first, second)), expected, `${first} ${second}`);
      }
    }
  });

  test('holds back exactly while a character is unfinished', () => {
    const detokenizer = new Detokenizer(byteTokenizer());
    const push = (...bytes: number[]) => bytes.map((byte) => detokenizer.push(FIRST_BYTE + byte));
    assert.deepEqual(push(0xe2, 0x82, 0xac), ['', '', '€']);
    assert.deepEqual(push(0xf0, 0x9f, 0x98, 0x80), ['', '', '', '😀']);
    assert.deepEqual(push(0xe0, 0x80), ['', '\ufffd\ufffd']);
    assert.deepEqual(push(0xed, 0xa0), ['', '\ufffd\ufffd']);
    assert.deepEqual(push(0xf0, 0x9f, 0x41), ['', '', '\ufffdA']);
    assert.deepEqual(push(0xff, 0xc3), ['\ufffd', '']);
    assert.equal(detokenizer.flush(), '\ufffd');
    assert.equal(detokenizer.flush(), '');
  });

  test('a byte order mark is kept', () => {
    const detokenizer = new Detokenizer(byteTokenizer());
    assert.equal(
      byteTokenizer()
        .encode('\ufeffa')
        .map((id) => detokenizer.push(id))
        .join(''),
      '\ufeffa',
    );
  });

  test('special tokens are skipped or kept, and never cut a character', () => {
    const ids = [FIRST_BYTE + 0xe2, 1, FIRST_BYTE + 0x82, FIRST_BYTE + 0xac, 260];
    const read = (keepSpecial: boolean) => {
      const detokenizer = new Detokenizer(byteTokenizer(), { keepSpecial });
      return ids.map((id) => detokenizer.push(id)).join('') + detokenizer.flush();
    };
    assert.equal(read(false), '€<think>');
    assert.equal(read(true), '\ufffd<|im_end|>\ufffd\ufffd<think>');
  });

  test('an id without a token adds nothing', () => {
    assert.equal(new Detokenizer(byteTokenizer()).push(300), '');
  });
});

/** A few ways to go on after an unfinished sequence. */
function completions(head: readonly number[]): number[][] {
  const tails = [
    [0x80],
    [0xbf],
    [0x90],
    [0xa0],
    [0x80, 0x80],
    [0x90, 0x80],
    [0xa0, 0x80],
    [0x80, 0x80, 0x80],
    [0x90, 0x80, 0x80],
  ];
  return tails.map((tail) => [...head, ...tail]);
}
