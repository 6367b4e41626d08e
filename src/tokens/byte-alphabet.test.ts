import assert from 'node:assert/strict';
import { test } from 'node:test';
import { alphabetToBytes, BYTE_CHARACTERS, bytesToAlphabet } from './byte-alphabet.js';

test('the alphabet is a bijection and has the published characters', () => {
  assert.equal(new Set(BYTE_CHARACTERS).size, 256);
  assert.equal(BYTE_CHARACTERS[0x41], 'A');
  assert.equal(BYTE_CHARACTERS[0x20], 'Ġ');
  assert.equal(BYTE_CHARACTERS[0x0a], 'Ċ');
  assert.equal(BYTE_CHARACTERS[0x00], 'Ā');
  assert.equal(BYTE_CHARACTERS[0xad], 'Ń');
  assert.equal(BYTE_CHARACTERS[0xff], 'ÿ');
});

test('every byte string survives the round trip', () => {
  const all = Uint8Array.from({ length: 256 }, (_, byte) => byte);
  assert.deepEqual(alphabetToBytes(bytesToAlphabet(all)), all);
});

test('a character outside the alphabet has no bytes', () => {
  for (const outside of [' ', '\n', '\u00ad', '\u0144', '中', '😀', '\ud800'])
    assert.equal(alphabetToBytes(`a${outside}`), undefined);
});
