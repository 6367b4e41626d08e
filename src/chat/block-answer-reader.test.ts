import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { fixture } from '../../test/support/repository.js';
import { BlockAnswerReader, type BlockReaderOptions } from './block-answer-reader.js';
import { BlockGuide } from './block-guide.js';
import type { AnswerPart, ToolDefinition } from './conversation.js';
import { chatDialect } from './dialects/index.js';

const dsml = chatDialect('dsml')!;
const pairs = chatDialect('argument-pairs')!;

const TOOLS: readonly ToolDefinition[] = [
  { type: 'function', function: { name: 'f', parameters: { properties: { text: { type: 'string' } } } } },
];

type Dialect = typeof dsml;

function read(
  dialect: Dialect,
  pieces: readonly string[],
  { cut = false, ...options }: Partial<BlockReaderOptions> & { cut?: boolean } = {},
): AnswerPart[] {
  const reader = new BlockAnswerReader(dialect, {
    start: 'answer',
    tools: TOOLS,
    newCallId: (index) => `call_${index}`,
    ...options,
  });
  const merged: AnswerPart[] = [];
  for (const part of [...pieces.flatMap((piece) => reader.push(piece)), ...reader.finish(cut)]) {
    const last = merged.at(-1);
    const joins = last?.kind === part.kind && (part.kind === 'content' || part.kind === 'reasoning');
    if (joins && 'text' in last && 'text' in part) merged[merged.length - 1] = { ...last, text: last.text + part.text };
    else merged.push(part);
  }
  return merged;
}

const content = (text: string): AnswerPart => ({ kind: 'content', text });
const reasoning = (text: string): AnswerPart => ({ kind: 'reasoning', text });
const call = (index: number, name: string, args: string): AnswerPart[] => [
  { kind: 'tool-call', index, id: `call_${index}`, name },
  { kind: 'tool-arguments', index, text: args },
];

const D = '｜DSML｜';
const parameter = (name: string, isString: boolean, value: string): string =>
  `<${D}parameter name="${name}" string="${isString}">${value}</${D}parameter>\n`;
const invoke = (name: string, inner: string): string => `<${D}invoke name="${name}">\n${inner}</${D}invoke>\n`;
const block = (inner: string): string => `<${D}tool_calls>\n${inner}</${D}tool_calls>`;
const pair = (key: string, value: string): string => `<arg_key>${key}</arg_key><arg_value>${value}</arg_value>`;

const unterminated = { code: 'tool_call_unterminated' } as const;

describe('DSML', () => {
  const both = block(
    invoke('f', parameter('text', true, 'a "<b>" &amp;\n') + parameter('n', false, ' [1.0, {"x": "</"}] ')) +
      invoke('g', ''),
  );
  const calls = [...call(0, 'f', '{"text": "a \\"<b>\\" &amp;\\n", "n": [1.0, {"x": "</"}]}'), ...call(1, 'g', '{}')];

  test('a block behind content is read; strings as they stand, other values with their source', () => {
    assert.deepEqual(read(dsml, [`Looking.\n\n${both}`]), [content('Looking.'), ...calls]);
    assert.deepEqual(read(dsml, [`why</think>Looking.${both}`], { start: 'reasoning' }), [
      reasoning('why'),
      content('Looking.'),
      ...calls,
    ]);
  });

  test('without tools in the request its marks are content', () => {
    assert.deepEqual(read(dsml, [both], { tools: [] }), [content(both)]);
  });

  test('attributes are unescaped, and an escaped closing tag in a string', () => {
    const text = block(invoke('a&quot;b', parameter('k', true, `x&lt;/${D}parameter>`)));
    assert.deepEqual(read(dsml, [text]), call(0, 'a"b', JSON.stringify({ k: `x</${D}parameter>` }).replace(':', ': ')));
  });

  test('a block that lacks nothing but closing tags is completed', () => {
    const whole = block(invoke('f', parameter('text', true, 'abc') + parameter('n', false, '1')));
    const complete = call(0, 'f', '{"text": "abc", "n": 1}');
    for (let end = whole.indexOf(`</${D}invoke`); end < whole.length; end++) {
      assert.deepEqual(read(dsml, [whole.slice(0, end)], { cut: true }), complete, whole.slice(0, end));
    }
    const inJson = whole.slice(0, whole.lastIndexOf(`</${D}parameter`));
    assert.deepEqual(read(dsml, [inJson]), complete, 'the answer ended by itself behind the value');
    assert.throws(() => read(dsml, [inJson], { cut: true }), unterminated, 'the value may go on');
    assert.deepEqual(read(dsml, [`${inJson}</`], { cut: true }), complete);
    const inString = whole.slice(0, whole.indexOf('bc'));
    assert.deepEqual(read(dsml, [inString]), call(0, 'f', '{"text": "a"}'));
    assert.throws(() => read(dsml, [inString], { cut: true }), { ...unterminated, message: /max_tokens/ });
  });

  test('a block that ends anywhere else is an error', () => {
    const starts = [
      `<${D}tool_calls>`,
      `<${D}tool_calls>\n<${D}invoke name="f`,
      `<${D}tool_calls>${invoke('f', '').replace(`</${D}invoke>\n`, `<${D}para`)}`,
      `<${D}tool_calls>${invoke('f', parameter('n', false, '{"a": ')).split(`</${D}param`)[0]}`,
    ];
    for (const text of starts) assert.throws(() => read(dsml, [text]), unterminated, text);
  });

  test('a malformed block comes back as content, with everything behind it', () => {
    for (const inner of [
      '',
      'text',
      parameter('n', false, '1'),
      `<${D}invoke>\n</${D}invoke>`,
      invoke('f', 'text'),
      invoke('f', parameter('n', false, 'one')),
      `</${D}invoke>`,
    ]) {
      const text = `So.\n\n${block(inner)} ${both}`;
      assert.deepEqual(read(dsml, [text]), [content(`So.${block(inner)} ${both}`)], inner);
    }
  });

  test('a missing closing tag of a call inside the block is forgiven', () => {
    const text = block(invoke('f', '').replace(`</${D}invoke>`, '') + invoke('g', ''));
    assert.deepEqual(read(dsml, [text]), [...call(0, 'f', '{}'), ...call(1, 'g', '{}')]);
  });

  test('a whole block inside unclosed reasoning is accepted, an opening mark alone is not', () => {
    assert.deepEqual(read(dsml, [`I call it.\n\n${both}`], { start: 'reasoning' }), [
      reasoning('I call it.'),
      ...calls,
    ]);
    const alone = `I would write <${D}tool_calls> and then`;
    assert.deepEqual(read(dsml, [alone], { start: 'reasoning' }), [reasoning(alone)]);
    assert.deepEqual(read(dsml, [`${alone}</think>Yes.`], { start: 'reasoning' }), [reasoning(alone), content('Yes.')]);
  });
});

describe('argument pairs', () => {
  test('calls are read; the schema says what is a string', () => {
    const text = `Looking.\n\n<tool_call>f${pair('text', '12')}${pair('n', '12')}${pair('m', 'x y')}</tool_call>\n\n<tool_call>g</tool_call>`;
    assert.deepEqual(read(pairs, [text]), [
      content('Looking.'),
      ...call(0, 'f', '{"text": "12", "n": 12, "m": "x y"}'),
      ...call(1, 'g', '{}'),
    ]);
    assert.deepEqual(
      read(pairs, ['<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>{"a": 1}</arg_value>\n</tool_call> Done.']),
      [...call(0, 'f', '{"n": {"a": 1}}'), content(' Done.')],
    );
  });

  test('lacking only closing tags is completed, other ends are errors, what is no call is content', () => {
    const whole = `<tool_call>f${pair('n', '1')}</tool_call>`;
    for (let end = whole.indexOf('</tool_call'); end < whole.length; end++) {
      assert.deepEqual(read(pairs, [whole.slice(0, end)], { cut: true }), call(0, 'f', '{"n": 1}'));
    }
    assert.throws(() => read(pairs, ['<tool_call>f<arg_key>n</arg_key>']), unterminated);
    assert.throws(() => read(pairs, ['<tool_call>f<arg_key>n</arg_key><arg_value>1'], { cut: true }), unterminated);
    assert.deepEqual(read(pairs, ['<tool_call>a b</tool_call> x']), [content('<tool_call>a b</tool_call> x')]);
    assert.deepEqual(read(pairs, ['<tool_call>f<b></tool_call>']), [content('<tool_call>f<b></tool_call>')]);
  });
});

test('reasoning opens at the beginning only, and one that is cut off stays reasoning', () => {
  assert.deepEqual(read(dsml, [' <think>hm</think>Yes.']), [reasoning('hm'), content('Yes.')]);
  assert.deepEqual(read(dsml, ['The tag <think> opens it.']), [content('The tag <think> opens it.')]);
  assert.deepEqual(read(dsml, ['hm</thi'], { start: 'reasoning' }), [reasoning('hm</thi')]);
});

const FRAGMENTS: Readonly<Record<string, readonly string[]>> = {
  dsml: [
    '<think>',
    '</think>',
    '\n\n',
    'text',
    '<',
    '</',
    `<${D}tool_calls>`,
    `</${D}tool_calls>`,
    `<${D}invoke name="f">`,
    `</${D}invoke>`,
    `<${D}parameter name="a" string="true">`,
    `<${D}parameter name="b" string="false">`,
    `</${D}parameter>`,
    '{"x": "\\""}',
    '"',
    block(invoke('f', parameter('a', true, '1'))),
  ],
  'argument-pairs': [
    '</think>',
    '\n\n',
    'text',
    '<',
    '<tool_call>',
    '</tool_call>',
    '<arg_key>',
    '</arg_key>',
    '<arg_value>',
    '</arg_value>',
    pair('k', '1'),
    `<tool_call>f${pair('k', '1')}</tool_call>`,
  ],
};

for (const name of ['dsml', 'argument-pairs'] as const) {
  test(`${name}: any chunking gives the same answer, or the same error`, () => {
    const dialect = chatDialect(name)!;
    const result = (pieces: readonly string[], start: 'answer' | 'reasoning', cut: boolean): unknown => {
      try {
        return read(dialect, pieces, { start, cut });
      } catch (thrown) {
        return thrown;
      }
    };
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(...FRAGMENTS[name]!), { maxLength: 12 }),
        fc.constantFrom('answer', 'reasoning'),
        fc.boolean(),
        (parts, start, cut) => {
          const text = parts.join('');
          const whole = result([text], start, cut);
          assert.deepEqual(result([...text], start, cut), whole);
          assert.deepEqual(result(parts, start, cut), whole);
        },
      ),
      { numRuns: 1500 },
    );
  });

  test(`${name}: the guide forces structure and leaves values free, however the text is cut into tokens`, () => {
    const dialect = chatDialect(name)!;
    const text =
      name === 'dsml'
        ? `Hi\n\n${block(invoke('f', parameter('a', true, 'xy') + parameter('b', false, '{"k": "v"}')))} more`
        : `Hi\n\n<tool_call>f${pair('a', 'xy')}</tool_call> more`;
    const free =
      name === 'dsml'
        ? [text.indexOf('xy'), text.indexOf('k"'), text.indexOf('v"')].map(
            (at, i) => [at, at + (i === 0 ? 2 : 1)] as const,
          )
        : [[text.indexOf('xy'), text.indexOf('xy') + 2] as const];
    const openEnd = text.indexOf(dialect.tools.open) + dialect.tools.open.length;
    const closeEnd = text.indexOf(' more');
    const tokens = [...text];
    const guide = new BlockGuide(dialect.tools, [], {
      tokenBytes: (id) => new TextEncoder().encode(tokens[id]),
      isSpecial: () => false,
    });
    tokens.forEach((_, at) => {
      // The first character of a closing tag may still be one of the value.
      const isFree = at < openEnd || at >= closeEnd || free.some(([from, to]) => at >= from && at <= to + 1);
      const atBoundary = free.some(([, to]) => at === to + 1 || at === to);
      if (!atBoundary) assert.equal(guide.forcesGreedy, !isFree, `${at}: ${text.slice(0, at)}`);
      guide.push(at);
    });
    assert.equal(guide.completedAt, name === 'dsml' ? closeEnd : undefined);
  });
}

interface LiveCase {
  readonly name: string;
  readonly dialect: 'dsml' | 'argument-pairs';
  readonly pieces: readonly string[];
  readonly cut?: boolean;
  /** Kind and text of what comes out, in order: `content`, `call` (its name), `arguments`, or `error` (its code) at the end. */
  readonly expected: readonly (readonly [string, string])[];
}

describe('calls given out as they are written', () => {
  const { cases } = JSON.parse(readFileSync(fixture('chat', 'live-calls.json'), 'utf8')) as { cases: LiveCase[] };
  for (const { name, dialect, pieces, cut = false, expected } of cases) {
    test(`${dialect}: ${name}`, () => {
      const reader = new BlockAnswerReader(chatDialect(dialect)!, {
        ...{ start: 'answer', tools: TOOLS, newCallId: (index) => `call_${index}`, live: true },
      });
      const out: [string, string][] = [];
      let calls = 0;
      const take = (parts: readonly AnswerPart[]): void => {
        for (const part of parts) {
          if (part.kind === 'tool-call') {
            assert.deepEqual([part.index, part.id], [calls, `call_${calls++}`]);
            out.push(['call', part.name]);
          } else {
            if (part.kind === 'tool-arguments') assert.equal(part.index, calls - 1);
            out.push([part.kind === 'tool-arguments' ? 'arguments' : part.kind, part.text]);
          }
        }
      };
      try {
        for (const piece of pieces) take(reader.push(piece));
        take(reader.finish(cut));
      } catch (thrown) {
        out.push(['error', (thrown as { code: string }).code]);
      }
      assert.deepEqual(out, expected);
    });
  }

  for (const name of ['dsml', 'argument-pairs'] as const) {
    test(`${name}: any chunking gives the same calls, and those of an answer in one piece where that has some`, () => {
      const dialect = chatDialect(name)!;
      const joined = (pieces: readonly string[], cut: boolean, live: boolean): unknown => {
        try {
          const parts: (AnswerPart & { text?: string })[] = [];
          for (const part of read(dialect, pieces, { cut, live })) {
            const last = parts.at(-1);
            if (part.kind === 'tool-arguments' && last?.kind === part.kind)
              parts[parts.length - 1] = { ...last, text: last.text + part.text };
            else parts.push(part);
          }
          return parts.map((part) =>
            part.kind === 'tool-arguments' ? { ...part, text: JSON.parse(part.text) as unknown } : part,
          );
        } catch (thrown) {
          return (thrown as { code: string }).code;
        }
      };
      fc.assert(
        fc.property(fc.array(fc.constantFrom(...FRAGMENTS[name]!), { maxLength: 12 }), fc.boolean(), (parts, cut) => {
          const text = parts.join('');
          const live = joined([text], cut, true);
          assert.deepEqual(joined([...text], cut, true), live);
          assert.deepEqual(joined(parts, cut, true), live);
          // A malformed block is an error only where its beginning is out.
          if (live !== 'tool_call_malformed') assert.deepEqual(live, joined([text], cut, false));
        }),
        { numRuns: 1500 },
      );
    });
  }
});
