import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ChatTemplate, readTemplateSources } from './template.js';
import type { ChatTurn, Conversation } from './conversation.js';
import { strftime } from './strftime.js';

const root = join(import.meta.dirname, '..', '..', '..');
const modelFolder = join(root, 'models', 'plumbline-tiny');

const conversation = (turns: readonly ChatTurn[], more: Partial<Conversation> = {}): Conversation => ({
  turns,
  tools: [],
  templateArguments: {},
  ...more,
});
const user = (content: string): ChatTurn => ({ role: 'user', content });
const render = (source: string, more: Partial<Conversation> = {}) =>
  new ChatTemplate({ default: source }).render(conversation([user('Hi')], more));

interface FixtureMessage {
  readonly role: ChatTurn['role'];
  readonly content: string;
  readonly reasoning_content?: string;
  readonly tool_call_id?: string;
  readonly tool_calls?: readonly { id: string; function: { name: string; arguments: string } }[];
}

/** A message of the fixture as a turn. */
function turnOf(message: FixtureMessage): ChatTurn {
  return {
    role: message.role,
    content: message.content,
    reasoningContent: message.reasoning_content,
    toolCallId: message.tool_call_id,
    toolCalls: message.tool_calls?.map((call) => ({
      id: call.id,
      name: call.function.name,
      arguments: call.function.arguments,
    })),
  };
}

describe('the template of the embedded model', () => {
  test('renders as the reference implementation does', async () => {
    const sources = await readTemplateSources(modelFolder, {});
    assert.ok(sources);
    const template = new ChatTemplate(sources);
    const lines = (await readFile(join(root, 'test/fixtures/chat/template-plumbline-tiny.jsonl'), 'utf8'))
      .trimEnd()
      .split('\n')
      .slice(1);
    assert.ok(lines.length >= 9);
    for (const line of lines) {
      const { name, messages, tools, enable_thinking, prompt } = JSON.parse(line);
      const templateArguments = enable_thinking === undefined ? {} : { enable_thinking };
      assert.equal(
        template.render({ turns: messages.map(turnOf), tools: tools ?? [], templateArguments }),
        prompt,
        name,
      );
    }
  });

  test('is the same in chat_template.jinja and in tokenizer_config.json', async () => {
    const config = JSON.parse(await readFile(join(modelFolder, 'tokenizer_config.json'), 'utf8'));
    assert.deepEqual(await readTemplateSources(modelFolder, config), await readTemplateSources('/nonexistent', config));
  });
});

describe('template variables', () => {
  test('are those of apply_chat_template', () => {
    const source =
      '{{ bos_token }}|{{ eos_token }}|{{ add_generation_prompt }}|{{ enable_thinking }}|{{ tools is none }}|{{ documents is none }}';
    const template = new ChatTemplate({ default: source }, { namedTokens: { bos: '<s>', eos: '</s>' } });
    assert.equal(template.render(conversation([user('Hi')])), '<s>|</s>|true|false|true|true');
  });

  test('come from the request too, but never over those of the server', () => {
    assert.equal(
      render('{{ enable_thinking }} {{ style }}', { templateArguments: { enable_thinking: true, style: 'terse' } }),
      'true terse',
    );
    for (const name of ['messages', 'tools', 'add_generation_prompt', 'bos_token', 'eos_token', 'raise_exception']) {
      assert.throws(() => render('x', { templateArguments: { [name]: null } }), {
        code: 'invalid_request',
        param: 'chat_template_kwargs',
        message: new RegExp(`'${name}'`),
      });
    }
  });

  test('strftime_now follows the injected clock, in English', () => {
    const template = new ChatTemplate(
      { default: "{{ strftime_now('%d %b %Y') }}" },
      { now: () => new Date(2026, 2, 5, 14, 7, 9) },
    );
    assert.equal(template.render(conversation([user('Hi')])), '05 Mar 2026');
  });

  test('a turn has the members of an OpenAI message, content always a string', () => {
    const turns: ChatTurn[] = [
      { role: 'assistant', toolCalls: [{ id: 'c', name: 'f', arguments: '{}' }] },
      { role: 'tool', content: '1', toolCallId: 'c', name: 'f' },
    ];
    const source = '{% for m in messages %}{{ m | tojson }}{% endfor %}';
    assert.equal(
      new ChatTemplate({ default: source }).render(conversation(turns)),
      '{"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}}]}' +
        '{"role": "tool", "content": "1", "name": "f", "tool_call_id": "c"}',
    );
  });

  test("range is Python's, and has an end", () => {
    assert.equal(
      render('{{ range(3) | list }}{{ range(1, 3) | list }}{{ range(5, 0, -2) | list }}{{ range(3, 1) | list }}'),
      '[0, 1, 2][1, 2][5, 3, 1][]',
    );
    for (const endless of ['range(1000000000)', 'range(0, 5, 0)']) {
      assert.throws(() => render(`{{ ${endless} }}`), {
        code: 'chat_template_error',
        message: /too long or has no end/,
      });
    }
  });
});

describe('tool arguments', () => {
  const turns: ChatTurn[] = [
    user('q'),
    { role: 'assistant', toolCalls: [{ id: 'c', name: 'f', arguments: '{"n":1.0, "s":"é"}' }] },
  ];
  const loop = (body: string) =>
    `{% for m in messages %}{% for c in m.tool_calls or [] %}${body}{% endfor %}{% endfor %}`;
  const printed = (body: string, given = turns) =>
    new ChatTemplate({ default: loop(body) }).render(conversation(given));

  test('go into the prompt as they were written where the template takes text', () => {
    assert.equal(
      printed('{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}'),
      '{"n":1.0, "s":"é"}',
    );
  });

  test('are an object where the template would quote text or needs a mapping', () => {
    assert.equal(printed('{{ c.function.arguments | tojson }}'), '{"n": 1, "s": "é"}');
    assert.equal(printed('{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}'), 'n=1;s=é;');
  });

  test('that are no JSON stay text', () => {
    const broken: ChatTurn[] = [{ role: 'assistant', toolCalls: [{ id: 'c', name: 'f', arguments: '{"n":' }] }];
    assert.equal(printed('{{ c.function.arguments | tojson }}', broken), '"{\\"n\\":"');
  });
});

describe('errors of a template', () => {
  test('raise_exception is repeated', () => {
    assert.throws(() => render("{{ raise_exception('roles must alternate') }}"), {
      code: 'chat_template_error',
      message: 'the chat template of the model refused the messages: roles must alternate',
    });
  });

  test('a failure inside it is a chat_template_error too', () => {
    assert.throws(() => render('{{ messages[0].content | no_such_filter }}'), {
      code: 'chat_template_error',
      message: /failed on the messages: .*no_such_filter/,
    });
    assert.throws(() => render("{{ messages[0].content.nothing.at_all + 'x' }}"), { code: 'chat_template_error' });
  });

  test('one that does not parse is refused when it is loaded', () => {
    assert.throws(() => new ChatTemplate({ default: '{% if x %}' }), {
      code: 'chat_template_error',
      message: /does not parse/,
    });
  });
});

describe('template sources', () => {
  let folder: string;
  before(async () => (folder = await mkdtemp(join(tmpdir(), 'plumbline-template-'))));
  after(() => rm(folder, { recursive: true }));

  test('come from the file first, then from the configuration', async () => {
    assert.equal(await readTemplateSources(folder, {}), undefined);
    assert.equal(await readTemplateSources(folder, { chat_template: null }), undefined);
    assert.deepEqual(await readTemplateSources(folder, { chat_template: 'c' }), { default: 'c' });
    const named = {
      chat_template: [
        { name: 'default', template: 'd' },
        { name: 'tool_use', template: 't' },
      ],
    };
    assert.deepEqual(await readTemplateSources(folder, named), { default: 'd', toolUse: 't' });
    await writeFile(join(folder, 'chat_template.jinja'), 'file');
    assert.deepEqual(await readTemplateSources(folder, { chat_template: 'c' }), { default: 'file' });
  });

  test('of another shape are refused', async () => {
    for (const chat_template of [5, [5], [{ name: 'default' }], [{ name: 'rag', template: 'r' }], {}]) {
      await assert.rejects(readTemplateSources('/nonexistent', { chat_template }), { code: 'chat_template_error' });
    }
  });

  test('the tool template is used when there are tools', () => {
    const template = new ChatTemplate({ default: 'd', toolUse: 't' });
    assert.equal(template.render(conversation([user('Hi')])), 'd');
    assert.equal(template.render(conversation([user('Hi')], { tools: [{ type: 'function' }] })), 't');
  });
});

test('strftime follows Python in the C locale', () => {
  const date = new Date(2026, 11, 31, 0, 5, 9);
  assert.equal(
    strftime(date, '%Y-%m-%d %y %H:%M:%S %I%p %j %B %b %A %a %e 100%% %Q %'),
    '2026-12-31 26 00:05:09 12AM 365 December Dec Thursday Thu 31 100% %Q %',
  );
  assert.equal(strftime(new Date(2026, 0, 1, 13), '%e %I%p %j'), ' 1 01PM 001');
});
