import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { byteTokenizer, FIRST_BYTE } from '../../test/support/byte-tokenizer.js';
import { StopMatcher } from './stop-matcher.js';
import { TextAssembler } from './text-assembler.js';

const tokenizer = byteTokenizer();

function assemble(ids: readonly number[], stop: readonly string[]): { text: string; stop?: string | undefined } {
  const assembler = new TextAssembler(tokenizer, { stop });
  let text = '';
  for (const id of ids) {
    const step = assembler.push(id);
    text += step.text;
    if (step.stop !== undefined) return { text, stop: step.stop };
  }
  const last = assembler.flush();
  return { text: text + last.text, stop: last.stop };
}

describe('text assembler', () => {
  test('ids give the decoded text up to the first stop string', () => {
    const id = fc.oneof(
      fc.constantFrom(1, 260, 300),
      fc.constantFrom(0x61, 0x62, 0xc3, 0xa9, 0xff).map((byte) => FIRST_BYTE + byte),
    );
    const stops = fc.array(fc.constantFrom('ab', 'b', 'é', 'aé', '\ufffd', 'a\ufffd', '<think>'), { maxLength: 3 });
    fc.assert(
      fc.property(fc.array(id, { maxLength: 20 }), stops, (ids, stop) => {
        const bytes = ids.flatMap((one) => (tokenizer.isSpecial(one) ? [] : [...(tokenizer.tokenBytes(one) ?? [])]));
        const matcher = new StopMatcher(stop);
        const whole = matcher.push(new TextDecoder().decode(Uint8Array.from(bytes)));
        assert.deepEqual(assemble(ids, stop), { text: whole.text + matcher.flush(), stop: whole.stop });
      }),
      { numRuns: 1000 },
    );
  });

  test('a cut character at the end can complete a stop string', () => {
    assert.deepEqual(assemble([FIRST_BYTE + 0x61, FIRST_BYTE + 0xc3], ['a\ufffd']), { text: '', stop: 'a\ufffd' });
  });

  test('flush after a match is empty', () => {
    const assembler = new TextAssembler(tokenizer, { stop: ['a'] });
    assert.deepEqual(assembler.push(FIRST_BYTE + 0x61), { text: '', stop: 'a' });
    assert.deepEqual(assembler.flush(), { text: '' });
  });
});
