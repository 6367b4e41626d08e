/** Tool calls of both ds4 dialects through HTTP: streamed as they are written. */
import assert from 'node:assert/strict';
import { basename } from 'node:path';
import { test } from 'node:test';
import { Dictation, tinyCheckpoint, tinyServer } from '../support/ds4-server.js';
import { readEvents } from '../support/http-app.js';
import { DS4_MODELS, type TinyModel } from '../support/three-families.js';

const TOOLS = [
  {
    type: 'function',
    function: { name: 'say', parameters: { type: 'object', properties: { text: { type: 'string' } } } },
  },
];
const D = '｜DSML｜';
const CALL: Readonly<Partial<Record<TinyModel, string>>> = {
  deepseek: `<${D}tool_calls>\n<${D}invoke name="say">\n<${D}parameter name="text" string="true">héllo</${D}parameter>\n</${D}invoke>\n</${D}tool_calls>`,
  glm: '<tool_call>say<arg_key>text</arg_key><arg_value>héllo</arg_value></tool_call><|user|>',
};

interface Delta {
  readonly tool_calls?: readonly {
    readonly index: number;
    readonly id?: string;
    readonly function: { readonly name?: string; readonly arguments?: string };
  }[];
}

for (const model of DS4_MODELS) {
  test(`${model}: a call is streamed as it is written: id and name, then its arguments, text by text`, async (t) => {
    const folder = tinyCheckpoint(t, model);
    const dictation = new Dictation();
    const server = await tinyServer(t, folder, dictation);
    dictation.text = `Well.\n\n${CALL[model]}`;
    const body = {
      ...{ model: basename(folder), temperature: 0, max_tokens: 300, think: false, tools: TOOLS },
      messages: [{ role: 'user', content: 'Hi' }],
    };
    const { events, done } = await readEvents(await server.post('/v1/chat/completions', { ...body, stream: true }));
    assert.ok(done);
    const choices = (events as { choices: { delta: Delta; finish_reason: string | null }[] }[]).flatMap(
      (e) => e.choices,
    );
    const deltas = choices.flatMap(({ delta }) => delta.tool_calls ?? []);
    assert.equal(deltas[0]?.function.name, 'say');
    assert.match(deltas[0]?.id ?? '', /^call_[0-9a-f]{24}$/);
    assert.deepEqual(
      deltas.slice(1).map((delta) => [delta.index, delta.id, delta.function.name]),
      deltas.slice(1).map(() => [0, undefined, undefined]),
    );
    const texts = deltas.slice(1).map((delta) => delta.function.arguments!);
    assert.deepEqual(texts, ['{"text": "', 'h', 'é', 'l', 'l', 'o', '"', '}']);
    assert.equal(choices.at(-1)?.finish_reason, 'tool_calls');
    const whole = (await (await server.post('/v1/chat/completions', body)).json()) as {
      choices: { message: { content: string; tool_calls: { function: unknown }[] } }[];
    };
    const { content, tool_calls: calls } = whole.choices[0]!.message;
    assert.deepEqual(
      [content, calls.map((call) => call.function)],
      ['Well.', [{ name: 'say', arguments: texts.join('') }]],
    );
  });
}
