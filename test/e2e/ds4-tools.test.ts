/**
 * Tool calls of both ds4 dialects through HTTP: streamed as they are written; a block that cannot be read gets one second pass
 * with the same generator, where nothing was given out yet.
 */
import assert from 'node:assert/strict';
import { basename } from 'node:path';
import { test } from 'node:test';
import { DS4 } from '../../src/sample/laws/ds4/constants.js';
import { Xorshift64Star } from '../../src/sample/rng/xorshift64star.js';
import { Dictation, idsOfText, tinyCheckpoint, tinyServer } from '../support/ds4-server.js';
import { readEvents } from '../support/http-app.js';
import { temporaryFolder } from '../support/repository.js';
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

interface Whole {
  readonly choices: readonly {
    readonly message: {
      readonly content: string | null;
      readonly tool_calls?: readonly { readonly function: unknown }[];
    };
    readonly finish_reason: string;
  }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly error?: { readonly code: string };
  readonly plumbline: {
    readonly seed: string;
    readonly second_pass?: { readonly reason: string; readonly second?: object; readonly declined?: string };
    readonly session?: Readonly<Record<string, unknown>>;
  };
}

/** What a block that cannot be read looks like, and how its answer ends. */
const BAD: Readonly<Partial<Record<TinyModel, { malformed: string; unterminated: string }>>> = {
  deepseek: {
    malformed: `<${D}tool_calls>\n<${D}invoke name="say">\nno tag<｜end▁of▁sentence｜>`,
    unterminated: `<${D}tool_calls>\n<${D}invoke name="sa<｜end▁of▁sentence｜>`,
  },
  glm: {
    malformed: '<tool_call>say<arg_key>text</arg_key>no tag</tool_call><|user|>',
    unterminated: '<tool_call>say<arg_key>text</arg_key><|user|>',
  },
};

for (const model of DS4_MODELS) {
  for (const fault of ['malformed', 'unterminated'] as const) {
    test(`${model}: a ${fault} block gets one second pass, of which the answer is`, async (t) => {
      const folder = tinyCheckpoint(t, model);
      const dictation = new Dictation();
      const server = await tinyServer(t, folder, dictation);
      const first = `Well.\n\n${BAD[model]![fault]}`;
      const good = `Sorry.\n\n${CALL[model]}`;
      const body = {
        ...{ model: basename(folder), temperature: 1, max_tokens: 600, think: false, tools: TOOLS, seed: 5 },
        messages: [{ role: 'user', content: 'Hi' }],
      };
      const ask = async (more: object = {}): Promise<Whole> =>
        (await (await server.post('/v1/chat/completions', { ...body, ...more })).json()) as Whole;
      dictation.texts = [first, good];
      const answer = await ask();
      assert.deepEqual(
        answer.choices.map(({ message: { content, tool_calls: calls }, finish_reason: reason }) => [content, calls?.map((call) => call.function), reason]), // prettier-ignore
        [['Sorry.', [{ name: 'say', arguments: '{"text": "héllo"}' }], 'tool_calls']],
      );
      assert.equal(answer.plumbline.seed, '5');
      assert.equal(answer.plumbline.second_pass?.reason, fault);
      assert.deepEqual(dictation.texts, [], 'both were said');
      // DSML is over with its block, without an end mark.
      const said = idsOfText(first).length + idsOfText(good).length;
      assert.equal(answer.usage.completion_tokens, said);
      // The generator goes on: the second pass begins with the state that the first one left.
      const [, second] = dictation.seeds;
      assert.equal(dictation.seeds[0], 5n);
      const steps = new Xorshift64Star(5n, DS4.random);
      for (let draws = 0; draws <= said && steps.state !== second; draws++) steps.next();
      assert.equal(steps.state, second);
      assert.notEqual(second, 5n);

      dictation.texts = [first, first];
      const twice = await ask();
      if (fault === 'malformed') {
        assert.match(twice.choices[0]!.message.content!, /^Well\./);
        assert.ok(twice.choices[0]!.message.content!.includes('no tag'));
        assert.equal(twice.choices[0]!.message.tool_calls, undefined);
      } else assert.equal(twice.error?.code, 'tool_call_unterminated');

      dictation.texts = [first];
      const { events, done } = await readEvents(await server.post('/v1/chat/completions', { ...body, stream: true }));
      assert.equal(done, false);
      const { error } = events.at(-1) as Whole;
      assert.equal(error?.code, fault === 'malformed' ? 'tool_call_malformed' : 'tool_call_unterminated');

      dictation.texts = [first];
      const room = idsOfText(first).length;
      const tight = await ask({ max_tokens: room });
      if (fault === 'malformed') assert.deepEqual(tight.plumbline.second_pass, { reason: fault, declined: 'no_room' });
      else assert.equal(tight.error?.code, 'tool_call_unterminated');
    });
  }
}

for (const model of DS4_MODELS) {
  test(`${model}: what follows a second pass is the same whatever is kept of it`, async (t) => {
    const folder = tinyCheckpoint(t, model);
    const dictation = new Dictation();
    const outcomes: unknown[] = [];
    const restores: unknown[] = [];
    for (const way of ['warm', 'restarted', 'nothing kept'] as const) {
      const options =
        way === 'nothing kept' ? { sessions: 'off' as const } : { sessionDir: temporaryFolder(t, 'second-pass') };
      let server = await tinyServer(t, folder, dictation, options);
      const ask = async (messages: readonly object[]): Promise<Whole> => {
        const body = { model: basename(folder), temperature: 0, max_tokens: 600, think: false, tools: TOOLS, messages };
        const headers = { 'x-session-id': 'named' };
        return (await (await server.post('/v1/chat/completions', body, { headers })).json()) as Whole;
      };
      const question = { role: 'user', content: 'Hi' };
      dictation.texts = [`Well.\n\n${BAD[model]!.malformed}`, CALL[model]!];
      const called = await ask([question]);
      assert.equal(called.plumbline.second_pass?.reason, 'malformed');
      const { tool_calls: calls } = called.choices[0]!.message;
      if (way === 'restarted') {
        await server.close(5000);
        server = await tinyServer(t, folder, dictation, options);
      }
      const asked = { role: 'assistant', content: null, tool_calls: [{ ...calls![0], id: 'a' }] };
      dictation.text = undefined;
      const last = await ask([question, asked, { role: 'tool', tool_call_id: 'a', content: 'said' }]);
      outcomes.push([last.usage.prompt_tokens, last.choices]);
      restores.push(last.plumbline.session?.['restore']);
    }
    assert.deepEqual(outcomes[1], outcomes[0]);
    assert.deepEqual(outcomes[2], outcomes[0]);
    assert.deepEqual([restores[0], restores[2]], ['restored', undefined]);
  });
}
