import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { AnswerReader, THINK_AND_TOOL_CALL_TAGS, type AnswerReaderOptions } from './answer-reader.js';
import type { AnswerPart } from './conversation.js';

const reader = (options: Partial<AnswerReaderOptions> = {}) =>
  new AnswerReader(THINK_AND_TOOL_CALL_TAGS, {
    start: 'answer',
    readToolCalls: true,
    newCallId: (index) => `call_${index}`,
    ...options,
  });

/** Neighbouring parts of one kind joined: what a client sees at the end. */
function merge(parts: readonly AnswerPart[]): AnswerPart[] {
  const merged: AnswerPart[] = [];
  for (const part of parts) {
    const last = merged.at(-1);
    if (
      last !== undefined &&
      'text' in last &&
      'text' in part &&
      last.kind === part.kind &&
      part.kind !== 'tool-arguments'
    ) {
      merged[merged.length - 1] = { ...last, text: last.text + part.text };
    } else merged.push(part);
  }
  return merged;
}

function read(pieces: readonly string[], options: Partial<AnswerReaderOptions> = {}): AnswerPart[] {
  const one = reader(options);
  return merge([...pieces.flatMap((piece) => one.push(piece)), ...one.finish()]);
}

const content = (text: string): AnswerPart => ({ kind: 'content', text });
const reasoning = (text: string): AnswerPart => ({ kind: 'reasoning', text });
const call = (index: number, name: string, args: string): AnswerPart[] => [
  { kind: 'tool-call', index, id: `call_${index}`, name },
  { kind: 'tool-arguments', index, text: args },
];

/** Answers out of everything that matters to the reader, whole and broken. */
const fragments = fc.array(
  fc.constantFrom(
    '<think>',
    '</think>',
    '<tool_call>',
    '</tool_call>',
    '\n',
    '\n\n',
    ' ',
    'text',
    '<',
    '</',
    '<t',
    '"',
    '\\',
    '{',
    '}',
    '{"name": "f", "arguments": {"a": "</tool_call>"}}',
    '{"name": "g"}',
    '<tool_call>{"name": "g"}</tool_call>',
  ),
  { maxLength: 14 },
);
const someOptions = fc.record({
  start: fc.constantFrom('answer', 'reasoning-tag', 'reasoning'),
  readToolCalls: fc.boolean(),
} as const);

/** Cuts a text at arbitrary places. */
const cut = (text: string, cuts: readonly number[]): string[] => {
  const at = [0, ...cuts.map((one) => one % (text.length + 1)).sort((a, b) => a - b), text.length];
  return at.slice(1).map((end, i) => text.slice(at[i], end));
};

describe('answer reader', () => {
  test('any chunking gives the same answer', () => {
    fc.assert(
      fc.property(fragments, someOptions, fc.array(fc.nat(), { maxLength: 12 }), (parts, options, cuts) => {
        const text = parts.join('');
        const whole = read([text], options);
        assert.deepEqual(read(cut(text, cuts), options), whole);
        assert.deepEqual(read([...text], options), whole);
      }),
      { numRuns: 3000 },
    );
  });

  test('nothing but tags, their line breaks and space between calls is dropped', () => {
    const bare = (text: string) => text.replaceAll(/<\/?think>|<\/?tool_call>|\s/g, '');
    fc.assert(
      fc.property(fragments, someOptions, (parts, options) => {
        const text = parts.join('');
        let given = '';
        let written: { name: string; arguments: string } | undefined;
        for (const part of read([text], options)) {
          if (part.kind === 'tool-call') written = { name: part.name, arguments: '' };
          // The two calls that the fragments hold, as they are written there.
          else if (part.kind === 'tool-arguments')
            given += written?.name === 'g' ? '{"name": "g"}' : `{"name": "f", "arguments": ${part.text}}`;
          else given += part.text;
        }
        assert.equal(bare(given), bare(text));
      }),
      { numRuns: 3000 },
    );
  });

  test('held back is only what may still become a tag', () => {
    const one = reader();
    assert.deepEqual(one.push('Use a < b and '), [content('Use a < b and ')]);
    assert.deepEqual(one.push('<tool'), []);
    assert.deepEqual(one.push('box>'), [content('<toolbox>')]);
    const thinking = reader({ start: 'reasoning-tag' });
    assert.deepEqual(thinking.push('\nI see\n'), [reasoning('I see')]);
    assert.deepEqual(thinking.push('more'), [reasoning('\nmore')]);
    assert.deepEqual(thinking.push('\n</think>\n\nSo'), [content('So')]);
  });

  test('reasoning opens at the beginning only, with or without its tag in the prompt', () => {
    assert.deepEqual(read(['<think>\nhm\n</think>\n\nYes.']), [reasoning('hm'), content('Yes.')]);
    assert.deepEqual(read([' \n<think>hm</think>Yes.']), [reasoning('hm'), content('Yes.')]);
    assert.deepEqual(read(['hm\n</think>\n\nYes.'], { start: 'reasoning' }), [reasoning('hm'), content('Yes.')]);
    assert.deepEqual(read(['\nhm'], { start: 'reasoning' }), [reasoning('\nhm')]);
    assert.deepEqual(read(['\nhm'], { start: 'reasoning-tag' }), [reasoning('hm')]);
    assert.deepEqual(read(['<think>\n\n</think>\n\nYes.']), [content('Yes.')]);
    assert.deepEqual(read(['The tag <think> opens it, </think> closes it.']), [
      content('The tag <think> opens it, </think> closes it.'),
    ]);
  });

  test('only the line breaks of the template belong to the tags', () => {
    assert.deepEqual(read(['<think>\n\n a \n\n</think>\n\n\n b\n']), [reasoning('\n a \n'), content('\n b\n')]);
  });

  test('reasoning that is cut off stays reasoning', () => {
    assert.deepEqual(read(['<think>\nI am not done\n</thi']), [reasoning('I am not done\n</thi')]);
  });

  test('calls are read, white space between and behind them is dropped', () => {
    const text =
      'Looking.\n<tool_call>\n{"name": "f", "arguments": {"a": 1.0}}\n</tool_call>\n<tool_call>{"name": "g"}</tool_call>\n';
    assert.deepEqual(read([text]), [content('Looking.\n'), ...call(0, 'f', '{"a": 1.0}'), ...call(1, 'g', '{}')]);
    assert.deepEqual(read(['<tool_call>{"name": "g"}</tool_call>\n\nDone.']), [
      ...call(0, 'g', '{}'),
      content('\n\nDone.'),
    ]);
  });

  test('a call is given out with its closing tag, not later', () => {
    const one = reader();
    const long = '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>';
    assert.deepEqual(one.push(long), call(0, 'f', '{"a": "</tool_call>"}'));
    assert.deepEqual(one.push('<tool_call>{"name": "g"}</tool_call>'), call(1, 'g', '{}'));
    assert.deepEqual(one.push(long), call(2, 'f', '{"a": "</tool_call>"}'));
  });

  test('a closing tag inside a string of the arguments does not close the call', () => {
    const text = '<tool_call>{"name": "f", "arguments": {"text": "\\"</tool_call>"}}</tool_call>';
    assert.deepEqual(read([text]), call(0, 'f', '{"text": "\\"</tool_call>"}'));
  });

  test('what is no call comes back as content, and reading goes on behind it', () => {
    assert.deepEqual(read(['<tool_call>{"name": f}</tool_call> x']), [content('<tool_call>{"name": f}</tool_call> x')]);
    assert.deepEqual(read(['a <tool_call>{"name": "f"']), [content('a <tool_call>{"name": "f"')]);
    const unclosed = '<tool_call>{"name": "f</tool_call>';
    assert.deepEqual(read([`${unclosed}<tool_call>{"name": "g"}</tool_call>`]), [
      content(unclosed),
      ...call(0, 'g', '{}'),
    ]);
  });

  test('without tools in the request their tags are content', () => {
    const text = '<tool_call>{"name": "g"}</tool_call>';
    assert.deepEqual(read([text], { readToolCalls: false }), [content(text)]);
  });

  test('a format without markers is all content', () => {
    const plain = new AnswerReader({}, { start: 'answer', readToolCalls: true, newCallId: String });
    assert.deepEqual(plain.push('<think>a</think><tool_call>'), [content('<think>a</think><tool_call>')]);
    assert.deepEqual(plain.finish(), []);
  });
});
