import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { Tokenizer } from '../tokens/tokenizer.js';
import { byteTokenizer } from '../../test/support/byte-tokenizer.js';
import { ChatFormat } from './chat-format.js';
import type { Conversation } from './conversation.js';
import { ChatTemplate } from './template.js';

const root = join(import.meta.dirname, '..', '..', '..');
const ask = (content: string, more: Partial<Conversation> = {}): Conversation => ({
  turns: [{ role: 'user', content }],
  tools: [],
  templateArguments: {},
  ...more,
});

describe('chat format of the embedded model', () => {
  let format: ChatFormat;
  let golden: { name: string; input_ids: number[]; text: string }[];
  before(async () => {
    const folder = join(root, 'models', 'plumbline-tiny');
    format = await ChatFormat.load(folder, await Tokenizer.load(folder), { newCallId: (index) => `call_${index}` });
    const lines = (await readFile(join(root, 'test/fixtures/tokens/decode-plumbline-tiny.jsonl'), 'utf8'))
      .trimEnd()
      .split('\n');
    golden = lines.slice(1).map((line) => JSON.parse(line));
  });
  const row = (name: string) => {
    const found = golden.find((one) => one.name === name);
    assert.ok(found);
    return found;
  };

  test('prepares the golden prompts', () => {
    assert.deepEqual(format.prepare(ask('Hi')).promptTokens, row('hello').input_ids);
    const thinking = ask('What does path.resolve do?', { templateArguments: { enable_thinking: true } });
    assert.deepEqual(format.prepare(thinking).promptTokens, row('thinking').input_ids);
  });

  test('reads the golden answers', () => {
    const { reader } = format.prepare(
      ask('What does path.resolve do?', { templateArguments: { enable_thinking: true } }),
    );
    const parts = [...reader.push(row('thinking').text.replace('<|im_end|>', '')), ...reader.finish(false)];
    assert.deepEqual(parts, [
      { kind: 'reasoning', text: 'The user asks about path.resolve. I recall what the documentation says.' },
      {
        kind: 'content',
        text: 'The `path.resolve()` method resolves a sequence of paths or path segments into an absolute path.',
      },
    ]);
    const tools = [{ type: 'function', function: { name: 'get_weather' } }];
    const calling = format.prepare(ask('What is the weather in Paris?', { tools })).reader;
    assert.deepEqual(
      [...calling.push(row('tool').text.replace('<|im_end|>', '')), ...calling.finish(false)],
      [
        { kind: 'tool-call', index: 0, id: 'call_0', name: 'get_weather' },
        { kind: 'tool-arguments', index: 0, text: '{"city": "Paris"}' },
      ],
    );
  });

  test('a call that comes back with its answer is rendered with the bytes that the model wrote', () => {
    const tools = [{ type: 'function', function: { name: 'get_weather' } }];
    const first = ask('What is the weather in Paris?', { tools });
    const written = row('tool').text.replace('<|im_end|>', '');
    const { reader } = format.prepare(first);
    const [head, args] = [...reader.push(written), ...reader.finish(false)];
    assert.ok(head?.kind === 'tool-call' && args?.kind === 'tool-arguments');
    const toolCalls = [{ id: head.id, name: head.name, arguments: args.text }];
    const second = format.render({
      ...first,
      turns: [...first.turns, { role: 'assistant', toolCalls }, { role: 'tool', content: '12', toolCallId: head.id }],
    });
    assert.ok(second.includes(`<|im_start|>assistant\n${written}<|im_end|>\n<|im_start|>tool\n12<|im_end|>`));
  });
});

test('a model without a template refuses conversations and says what to do', () => {
  assert.throws(() => new ChatFormat(byteTokenizer(), undefined).prepare(ask('Hi')), {
    code: 'chat_template_error',
    message: /completions route/,
  });
});

test('ids of calls are unique when nobody makes them', () => {
  const format = new ChatFormat(byteTokenizer(), new ChatTemplate({ default: 'x' }));
  const ids = [1, 2, 3].flatMap(() =>
    format
      .prepare(ask('', { tools: [{}] }))
      .reader.push('<tool_call>{"name": "g"}</tool_call>'.repeat(2))
      .flatMap((part) => (part.kind === 'tool-call' ? part.id : [])),
  );
  assert.equal(new Set(ids).size, 6);
  for (const id of ids) assert.match(id, /^call_[0-9a-f]{24}$/);
});
