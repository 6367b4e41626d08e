/** Conversations over HTTP: what is reused, what is put back, and what the answer tells of it. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { GivenOptions } from '../../src/config.js';
import { MODEL, withEmbeddedServer, type EmbeddedServer } from '../support/embedded-server.js';
import { temporaryFolder } from '../support/repository.js';

interface Message {
  readonly role: string;
  readonly content: string | null;
  readonly reasoning_content?: string;
}

interface Body {
  readonly choices: readonly { readonly message: Message }[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
  readonly plumbline: { readonly session: Record<string, unknown> | null };
}

const QUESTIONS = ['What does fs.readFileSync do?', 'And fs.writeFileSync?', 'And fs.appendFileSync?'];

async function ask(
  server: EmbeddedServer,
  messages: readonly Message[],
  more: object = {},
  headers = {},
): Promise<Body> {
  const body = { model: MODEL, temperature: 0, max_tokens: 24, ...more, messages };
  const response = await server.post('/v1/chat/completions', body, { headers });
  const json: unknown = await response.json();
  assert.equal(response.status, 200, JSON.stringify(json));
  return json as Body;
}

/** The conversation of all questions, each answer sent back as `resend` makes it. */
async function converse(
  server: EmbeddedServer,
  more: object,
  headers: Record<string, string> = {},
  resend: (message: Message) => Message = (message) => message,
): Promise<Body[]> {
  const answers: Body[] = [];
  let messages: Message[] = [];
  for (const content of QUESTIONS) {
    messages = [...messages, { role: 'user', content }];
    const answer = await ask(server, messages, more, headers);
    answers.push(answer);
    messages = [...messages, resend(answer.choices[0]!.message)];
  }
  return answers;
}

const cached = ({ usage }: Body): number => usage.prompt_tokens_details.cached_tokens;
const whole = ({ usage }: Body): number => usage.prompt_tokens + usage.completion_tokens;
const open = (t: TestContext, options: GivenOptions = {}) => withEmbeddedServer(t, { context: 1024, ...options });

test('a named session goes on from its whole last turn, reasoning left out by the client or not', async (t) => {
  const thinking = { chat_template_kwargs: { enable_thinking: true } };
  const forget = ({ role, content }: Message): Message => ({ role, content });
  for (const [name, more, resend] of [
    ['plain', {}, undefined],
    ['thinking', thinking, undefined],
    ['forgetful', thinking, forget],
  ] as const) {
    const server = await open(t); // what one session knows another one could use
    const answers = await converse(server, more, { 'x-session-id': name }, resend);
    for (const [i, answer] of answers.entries()) {
      const session = answer.plumbline.session!;
      assert.deepEqual([session['id'], session['source'], session['spliced_turns']], [name, 'header', i]);
      assert.equal(session['splice_declined'], null);
      assert.deepEqual(session['stored'], { ram: 'stored', disk: 'off' });
      if (i > 0) assert.equal(cached(answer), whole(answers[i - 1]!), `${name}, turn ${i}`);
      assert.equal(session['reused_tokens'], cached(answer));
    }
  }
});

test('prompt_cache_key names a session, the header counts before it, and bad names are refused', async (t) => {
  const server = await open(t);
  const [answer] = await converse(server, { prompt_cache_key: 'key' });
  assert.deepEqual(
    [answer!.plumbline.session!['id'], answer!.plumbline.session!['source']],
    ['key', 'prompt_cache_key'],
  );
  const [both] = await converse(server, { prompt_cache_key: 'key' }, { 'x-session-id': 'head' });
  assert.equal(both!.plumbline.session!['id'], 'head');
  const messages = [{ role: 'user', content: 'Hello' }];
  for (const name of ['auto-1', 'two words', 'x'.repeat(129)]) {
    const response = await server.post('/v1/chat/completions', { model: MODEL, messages, prompt_cache_key: name });
    const { error } = (await response.json()) as { error: { code: string; param: string } };
    assert.deepEqual([response.status, error.code, error.param], [400, 'invalid_request', 'prompt_cache_key']);
  }
});

test('without a name the conversation is recognised, its beginning reused, and the bytes are those of a cold server', async (t) => {
  const warm = await open(t);
  const answers = await converse(warm, {});
  const ids = new Set(answers.map((answer) => answer.plumbline.session!['id']));
  assert.equal(ids.size, 1);
  assert.ok(answers.slice(1).every((answer) => cached(answer) > 0));
  const cold = await open(t, { sessions: 'off' });
  const again = await converse(cold, {});
  for (const [i, answer] of again.entries()) {
    assert.equal(answer.plumbline.session, null);
    assert.equal(cached(answer), 0);
    assert.deepEqual(answer.choices[0]!.message, answers[i]!.choices[0]!.message);
  }
});

test('an answer that was edited is text again, and the reason is told', async (t) => {
  const server = await open(t);
  const headers = { 'x-session-id': 'edited' };
  const shout = ({ role, content }: Message): Message => ({ role, content: `${content}!` });
  const answers = await converse(server, {}, headers, shout);
  const session = answers[1]!.plumbline.session!;
  assert.deepEqual([session['spliced_turns'], session['splice_declined']], [0, 'content_differs']);
  assert.equal(session['restore'], 'restored', 'the question before it is the same');
  assert.ok(cached(answers[1]!) < answers[0]!.usage.prompt_tokens);
});

test('an unnamed conversation goes on after a restart, from the disk, under the name that it had', async (t) => {
  const folder = temporaryFolder(t, 'e2e-sessions');
  const options = { sessionDir: folder, sessionMinFreeMib: 0 };
  for (const speculation of ['off', 'plain']) {
    const first = await open(t, options);
    const [answer, next] = await converse(first, { speculation });
    await first.close();
    const second = await open(t, options);
    const messages = [
      { role: 'user', content: QUESTIONS[0]! },
      answer!.choices[0]!.message,
      { role: 'user', content: QUESTIONS[1]! },
    ];
    const warm = await ask(second, messages, { speculation });
    const session = warm.plumbline.session!;
    assert.deepEqual([session['restore'], session['from']], ['restored', 'disk'], JSON.stringify(session));
    assert.ok(cached(warm) >= cached(next!));
    assert.deepEqual(warm.choices[0]!.message, next!.choices[0]!.message);
    assert.equal(session['id'], next!.plumbline.session!['id']);
    await second.close();
  }
});

test('health tells what is kept', async (t) => {
  const server = await open(t);
  await converse(server, {});
  const health = (await (await fetch(`${server.url}/health`)).json()) as {
    models: readonly { sessions: { mode: string; ram: { entries: number; restored: number; used_bytes: number } } }[];
  };
  const { mode, ram } = health.models[0]!.sessions;
  assert.equal(mode, 'on');
  assert.ok(ram.entries > 0 && ram.restored >= 2 && ram.used_bytes > 0);
});

test('metrics tell by model what is held, restored, refused, evicted and written, as health does', async (t) => {
  const server = await open(t, {
    sessionDir: temporaryFolder(t, 'e2e-metrics'),
    sessionMinFreeMib: 0,
    sessionRamMib: 8,
  });
  for (const name of ['a', 'b', 'c', 'd']) await converse(server, {}, { 'x-session-id': name });
  const { sessions } = server.models[0]!;
  await sessions.store!.flush(10_000);
  const text = await (await fetch(`${server.url}/metrics`)).text();
  const value = (name: string, ...labels: string[]): number => {
    const line = text
      .split('\n')
      .find((row) => row.startsWith(`${name}{`) && labels.every((label) => row.includes(label)));
    assert.ok(line !== undefined && line.includes(`model="${MODEL}"`), `${name} ${labels.join()}`);
    return Number(line.split(' ').at(-1));
  };
  const { ram, disk, restores } = sessions.health();
  const told = (name: string, ...labels: string[]): number => value(`plumbline_session_${name}`, ...labels);
  assert.equal(told('bytes', 'place="ram"'), ram!.used_bytes);
  assert.equal(told('budget_bytes', 'place="ram"'), 8 * 2 ** 20);
  assert.equal(told('bytes', 'place="disk"'), disk!.bytes);
  assert.equal(told('bytes', 'place="queue"'), 0);
  assert.equal(told('entries', 'place="disk"'), disk!.checkpoints);
  assert.equal(told('restores_total', 'outcome="ram"'), restores!['ram']);
  assert.equal(told('evictions_total', 'place="ram"'), ram!.evicted);
  assert.equal(told('evictions_total', 'place="disk"'), 0);
  assert.equal(told('refused_total', 'place="ram"', 'reason="no_room"'), ram!.refused_no_room);
  assert.equal(told('written_bytes_total', 'kind="fixed"'), disk!.written.fixed_bytes);
  assert.ok(ram!.evicted > 0 && restores!['ram']! > 0 && disk!.written.fixed_bytes > 0);
});
