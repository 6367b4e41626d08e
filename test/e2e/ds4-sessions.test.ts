/**
 * Sessions of models under the ds4 law, through HTTP: states are known by the text that they stand for, also by the text
 * without reasoning that the client was to leave out; the answer then is that of a cold run of the very same tokens; rows
 * that are no numbers end nothing.
 */
import assert from 'node:assert/strict';
import { basename } from 'node:path';
import { test } from 'node:test';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import { invalidRows } from '../support/invalid-rows.js';
import type { EmbeddedServer } from '../support/embedded-server.js';
import { CONTEXT, Dictation, idsOfText, tinyCheckpoint, tinyServer } from '../support/ds4-server.js';
import { temporaryFolder } from '../support/repository.js';
import { ALL_MODELS, DS4_MODELS, threeFamilies, VOCABULARY } from '../support/three-families.js';

interface Body {
  readonly choices: readonly {
    readonly text?: string;
    readonly message?: { readonly content: string; readonly reasoning_content?: string };
    readonly logprobs?: unknown;
  }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly plumbline: { readonly session: Record<string, unknown>; readonly logits_warning?: object };
}

const END = { deepseek: '<｜end▁of▁sentence｜>', glm: '<|user|>' } as const;

async function post(server: EmbeddedServer, path: string, body: object, headers = {}): Promise<Body> {
  const response = await server.post(path, body, { headers });
  const json: unknown = await response.json();
  assert.equal(response.status, 200, JSON.stringify(json));
  return json as Body;
}

const chat = (server: EmbeddedServer, folder: string, messages: readonly object[], more: object = {}, headers = {}) =>
  post(
    server,
    '/v1/chat/completions',
    { model: basename(folder), temperature: 0, max_tokens: 40, messages, ...more },
    headers,
  );
const complete = (server: EmbeddedServer, folder: string, prompt: unknown, more: object = {}) =>
  post(server, '/v1/completions', { model: basename(folder), temperature: 0, max_tokens: 6, prompt, ...more });

const newestTurn = (server: EmbeddedServer): Int32Array =>
  server.models[0]!.sessions.bank!.entries()
    .filter(({ capture }) => capture.kind === 'turn')
    .at(-1)!.capture.tokens;

for (const model of DS4_MODELS) {
  test(`${model}: a conversation goes on behind reasoning that the client left out, from memory and from disk`, async (t) => {
    const folder = tinyCheckpoint(t, model);
    const sessionDir = temporaryFolder(t, 'ds4-sessions');
    const dictation = new Dictation();
    for (const headers of [{}, { 'x-session-id': 'named' }]) {
      const server = await tinyServer(t, folder, dictation, { sessionDir });
      const question = `Why${Object.keys(headers).length}?`;
      dictation.text = `I think so.</think>Because.${END[model]}`;
      const first = await chat(server, folder, [{ role: 'user', content: question }], {}, headers);
      assert.deepEqual(
        [first.choices[0]!.message!.content, first.choices[0]!.message!.reasoning_content],
        ['Because.', 'I think so.'],
      );
      const turn = newestTurn(server);
      assert.equal(turn.length, first.usage.prompt_tokens + first.usage.completion_tokens);
      dictation.text = undefined;
      const messages = [
        { role: 'user', content: question },
        { role: 'assistant', content: 'Because.' },
        { role: 'user', content: 'Really?' },
      ];
      const more = { max_tokens: 5, logprobs: true };
      // Another process first, so that the turn is the newest state there, too.
      await server.close();
      const later = await tinyServer(t, folder, dictation, { sessionDir });
      dictation.rows = [];
      const fromDisk = await chat(later, folder, messages, more, headers);
      const warmRows = dictation.rows;
      dictation.rows = [];
      const fromRam = await chat(later, folder, messages, more, headers);
      for (const [warm, from] of [
        [fromDisk, 'disk'],
        [fromRam, 'ram'],
      ] as const) {
        const session = warm.plumbline.session;
        assert.deepEqual([session['restore'], session['from'], session['matched_by']], ['restored', from, 'visible_text'], JSON.stringify(session)); // prettier-ignore
        assert.ok((session['reused_tokens'] as number) >= turn.length);
        assert.deepEqual(warm.choices, fromDisk.choices);
      }
      assert.deepEqual(dictation.rows, warmRows);
      // The very same tokens, cold.
      const whole = newestTurn(later);
      const prompt = [...whole.subarray(0, fromDisk.usage.prompt_tokens)];
      assert.deepEqual(prompt.slice(0, turn.length), [...turn]);
      const plain = await tinyServer(t, folder, dictation, { sessions: 'off' });
      dictation.rows = [];
      const cold = await complete(plain, folder, prompt, { max_tokens: 5 });
      assert.equal(cold.usage.prompt_tokens, prompt.length);
      assert.ok(warmRows.length > 0);
      // What ends an answer is not the same on the two routes.
      assert.deepEqual(dictation.rows.slice(0, warmRows.length), warmRows.slice(0, dictation.rows.length));
      await plain.close();
      await later.close();
    }
  });

  test(`${model}: the same text as other tokens finds the state, and the stored tokens stay`, async (t) => {
    const folder = tinyCheckpoint(t, model);
    const dictation = new Dictation();
    const server = await tinyServer(t, folder, dictation);
    const spelled = idsOfText('a <think> b', 'bytes');
    dictation.text = 'answer';
    const first = await complete(server, folder, spelled);
    assert.equal(first.plumbline.session['matched_by'], null);
    dictation.text = undefined;
    const text = 'a <think> banswer, and on';
    const warm = await complete(server, folder, text, { logprobs: 2 });
    const session = warm.plumbline.session;
    assert.deepEqual([session['matched_by'], session['reused_tokens']], ['text', spelled.length + 6]);
    assert.equal(session['text_declined'], null);
    const tokens = [...spelled, ...idsOfText('answer, and on')];
    assert.equal(warm.usage.prompt_tokens, tokens.length);
    const plain = await tinyServer(t, folder, dictation, { sessions: 'off' });
    assert.deepEqual(
      warm.choices,
      (await complete(plain, folder, tokens, { logprobs: 2 })).choices,
      'a cold run of the tokens',
    );
    // Ids are meant as they are, and the own tokens come first where they reach as far.
    const ids = idsOfText(text);
    const exact = await complete(server, folder, ids, { logprobs: 2 });
    assert.equal(exact.usage.prompt_tokens, ids.length);
    assert.notEqual(exact.plumbline.session['matched_by'], 'text');
    assert.deepEqual(exact.choices, (await complete(plain, folder, ids, { logprobs: 2 })).choices);
    // A prompt for whose answer the stored tokens leave no room is taken as its text says.
    const room = CONTEXT - idsOfText('a <think> banswer').length - 1;
    dictation.text = 'x';
    const tight = await complete(server, folder, 'a <think> banswer!', { max_tokens: room, stop: 'x' });
    assert.notEqual(tight.plumbline.session['matched_by'], 'text');
    assert.equal(tight.plumbline.session['text_declined'], 'no_room');
  });

  test(`${model}: rows that are no numbers end no session, and their states are kept`, async (t) => {
    const folder = tinyCheckpoint(t, model);
    const dictation = new Dictation();
    const server = await tinyServer(t, folder, dictation, { sessionDir: temporaryFolder(t, 'ds4-rows') });
    const { containment } = server.models[0]!.sessions;
    for (const [i, { fill }] of invalidRows(VOCABULARY).entries()) {
      const name = `s${i}`;
      dictation.spoil = (row, step) => void (step === 0 && fill(row));
      const first = await complete(server, folder, idsOfText(`prompt ${i}`), { prompt_cache_key: name });
      dictation.spoil = undefined;
      assert.ok(first.plumbline.logits_warning);
      assert.deepEqual(first.plumbline.session['stored'], { ram: 'stored', disk: 'queued' });
      const turn = newestTurn(server);
      const next = await complete(server, folder, [...turn, 50], { prompt_cache_key: name });
      assert.deepEqual(
        [next.plumbline.session['restore'], next.plumbline.session['reused_tokens']],
        ['restored', turn.length],
      );
    }
    assert.equal(containment!.counts.containments, 0);
    assert.deepEqual(containment!.fences.notReady, []);
  });
}

test('a model whose states are known by tokens alone takes every text as it is', async (t) => {
  const folder = tinyCheckpoint(t, 'qwen');
  const dictation = new Dictation();
  const server = await tinyServer(t, folder, dictation);
  const spelled = idsOfText('a <think> b', 'bytes');
  dictation.text = 'answer';
  await complete(server, folder, spelled);
  dictation.text = undefined;
  const text = 'a <think> banswer, and on';
  const warm = await complete(server, folder, text, { logprobs: 2 });
  assert.equal(warm.usage.prompt_tokens, idsOfText(text).length);
  assert.notEqual(warm.plumbline.session['matched_by'], 'text');
  const plain = await tinyServer(t, folder, dictation, { sessions: 'off' });
  assert.deepEqual(warm.choices, (await complete(plain, folder, text, { logprobs: 2 })).choices);
});

test('a session of another family that fails beside them takes nothing of theirs', async () => {
  let spoilt = false;
  const server = await threeFamilies(ALL_MODELS, { rowHook: (row, _, { session }) => void (spoilt && session?.id === 'fails' && row.fill(NaN)) }); // prettier-ignore
  const ask = async (model: string, session: string): Promise<[number, unknown]> => {
    const body = { model, prompt: 'Once upon a time', max_tokens: 4, temperature: 0, prompt_cache_key: session };
    const response = await server.post('/v1/completions', body);
    return [response.status, ((await response.json()) as { choices?: unknown }).choices];
  };
  const kept = () =>
    server.models.slice(1).map(({ sessions }) =>
      sessions.bank!.entries().map(({ session, lineage, capture: { kind, tokens, trunk } }) => {
        return [session, lineage, kind, tokens, [...(trunk as PagedState).snapshot()]];
      }),
    );
  try {
    const before = await Promise.all(ALL_MODELS.map((model) => ask(model, 'fails')));
    const states = kept();
    assert.ok(states.every((entries) => entries.length > 0));
    spoilt = true;
    assert.equal((await ask('qwen', 'fails'))[0], 500);
    spoilt = false;
    assert.equal(server.models[0]!.sessions.containment!.counts.containments, 1);
    assert.deepEqual(kept(), states);
    for (const [i, model] of ALL_MODELS.entries()) assert.deepEqual(await ask(model, 'fails'), before[i]);
  } finally {
    await server.end();
  }
});
