/** What happens on real connections: clients that leave or do not read, long silences, and a server that stops. */
import assert from 'node:assert/strict';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { test, type TestContext } from 'node:test';
import type { HttpOptions } from '../../src/http/context.js';
import { listen, type ListeningServer } from '../../src/http/node-server.js';
import { PlumblineError } from '../../src/errors.js';
import { says, untilAborted, usageOf } from '../support/fake-served-model.js';
import { testServer, type TestServer } from '../support/http-app.js';

const CHAT = '/v1/chat/completions';
const ask = { model: 'fake', messages: [{ role: 'user', content: 'hi' }] };

async function start(
  t: TestContext,
  options: Partial<HttpOptions> = {},
): Promise<TestServer & { listening: ListeningServer }> {
  const server = testServer(options);
  const listening = await listen(server, '127.0.0.1', 0);
  t.after(async () => listening.stop(0));
  return { ...server, listening };
}

const post = async (server: { listening: ListeningServer }, body: object, signal?: AbortSignal): Promise<Response> =>
  fetch(server.listening.url + CHAT, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  });

/** A script that waits for ever, and tells when it began and with which reason it was aborted. */
function waiting(said: readonly string[]) {
  let began: () => void = () => undefined;
  let ended: (reason: unknown) => void = () => undefined;
  const begin = new Promise<void>((resolve) => (began = resolve));
  const end = new Promise<unknown>((resolve) => (ended = resolve));
  const script: TestServer['model']['script'] = async function* (request) {
    try {
      for (const text of said) yield { type: 'token', tokenId: 65, text };
      began();
      await untilAborted(request.signal);
    } finally {
      ended(request.signal?.reason);
    }
  };
  return { script, begin, end };
}

test('an answer given before the body was read ends the connection and says so; the next request is not hurt', async (t) => {
  const server = await start(t, { apiKey: 'key', maxBodyBytes: 1_000_000 });
  server.model.script = says(['ok']);
  const key = { authorization: 'Bearer key' };
  const body = Buffer.alloc(2_000_000, 'a');
  const refused = [
    [401, { 'content-type': 'application/json' }],
    [413, { ...key, 'content-type': 'application/json' }],
    [415, { ...key, 'content-type': 'text/plain' }],
  ] as const;
  for (const [status, headers] of [...refused, ...refused]) {
    const response = await fetch(server.listening.url + CHAT, { method: 'POST', headers, body });
    assert.deepEqual([response.status, response.headers.get('connection')], [status, 'close']);
    await response.text();
    const next = await fetch(server.listening.url + CHAT, {
      method: 'POST',
      headers: { ...key, 'content-type': 'application/json' },
      body: JSON.stringify(ask),
    });
    assert.deepEqual([next.status, next.headers.get('connection')], [200, 'keep-alive']);
    await next.text();
  }
});

test('a client that goes away stops the work: streamed or not, before and after the first token', async (t) => {
  const server = await start(t);
  for (const stream of [true, false]) {
    for (const said of [[], ['A', 'B']]) {
      const run = waiting(said);
      server.model.script = run.script;
      const leave = new AbortController();
      const answer = post(server, { ...ask, stream }, leave.signal);
      answer.catch(() => undefined);
      await run.begin;
      if (stream) await (await answer).body?.getReader().read();
      leave.abort();
      const reason = await run.end;
      assert.ok(reason instanceof PlumblineError && reason.code === 'request_cancelled');
      await server.active.idle();
      assert.equal(server.active.size, 0);
    }
  }
  assert.deepEqual(server.context.telemetry.receipts, [], 'a client that leaves is no failure');
  server.model.script = says(['ok']);
  assert.equal((await post(server, ask)).status, 200);
});

test('comments keep a stream alive while the prompt is computed, and stop when tokens come', async (t) => {
  const server = await start(t, { keepAliveMs: 20 });
  server.model.script = says(['A'], 'stop', async () => new Promise((resolve) => setTimeout(resolve, 150)));
  const response = await post(server, { ...ask, stream: true });
  const text = await response.text();
  const beforeText = text.slice(0, text.indexOf('"content":"A"'));
  const comments = beforeText.split(': keep-alive\n\n').length - 1;
  assert.ok(comments >= 2, `${comments} comments`);
  assert.ok(text.endsWith('data: [DONE]\n\n'));
  // The official parser takes comments for nothing: what is left are whole frames.
  assert.ok(
    text.split('\n\n').every((frame) => frame === '' || frame === ': keep-alive' || frame.startsWith('data: ')),
  );
});

/** A POST whose answer is not read until the caller does. */
async function unreadPost(server: { listening: ListeningServer }, body: object): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      server.listening.url + CHAT,
      { method: 'POST', headers: { 'content-type': 'application/json' } },
      resolve,
    );
    request.on('error', reject);
    request.end(JSON.stringify(body));
  });
}

test('a client that reads slowly slows the generation down, and gets everything', async (t) => {
  const server = await start(t);
  const piece = 'x'.repeat(64 * 1024);
  const count = 400;
  let made = 0;
  server.model.script = async function* (request) {
    for (; made < count; made++) yield { type: 'token', tokenId: 65, text: piece };
    yield { type: 'finish', reason: 'stop', text: '', usage: usageOf(request, count) };
  };
  const response = await unreadPost(server, { ...ask, stream: true });
  let before = -1;
  while (before !== made) {
    before = made;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.ok(made < count, `${made} of ${count} pieces were made while nobody read`);
  let bytes = 0;
  for await (const chunk of response) bytes += (chunk as Buffer).length;
  assert.equal(made, count);
  assert.ok(bytes > count * piece.length);
});

test('a client that stops reading for good is cut off, and its request is cancelled', async (t) => {
  const server = await start(t, { stallTimeoutMs: 100 });
  const piece = 'x'.repeat(64 * 1024);
  let made = 0;
  let closed = false;
  server.model.script = async function* () {
    try {
      for (; ; made++) yield { type: 'token', tokenId: 65, text: piece };
    } finally {
      closed = true;
    }
  };
  const response = await unreadPost(server, { ...ask, stream: true });
  response.on('error', () => undefined);
  await server.active.idle();
  assert.ok(closed);
  assert.ok(made < 1000, `${made} pieces were made, most of them for nobody`);
  response.destroy();
});

test('a stop lets running answers end, refuses new ones, and leaves nothing open', async (t) => {
  const server = await start(t);
  let release: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => (release = resolve));
  server.model.script = says(['A', 'B'], 'stop', async (index) => (index === 1 ? gate : undefined));
  const running = await post(server, { ...ask, stream: true });
  const stopped = server.listening.stop(5000);
  assert.equal((await server.get('/health')).status, 503);
  const refused = await server.post(CHAT, ask);
  assert.deepEqual(
    [refused.status, ((await refused.json()) as { error: { code: string } }).error.code],
    [503, 'shutting_down'],
  );
  await assert.rejects(post(server, ask), 'the port is closed');
  release();
  assert.ok((await running.text()).endsWith('data: [DONE]\n\n'));
  await stopped;
});

test('what does not end in time ends with an error frame', async (t) => {
  const server = await start(t);
  const run = waiting(['A']);
  server.model.script = run.script;
  const running = await post(server, { ...ask, stream: true });
  const whole = post(server, ask);
  while (server.model.submitted.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  await server.listening.stop(20);
  const text = await running.text();
  assert.match(text, /"code":"shutting_down"/);
  assert.ok(!text.includes('[DONE]'));
  assert.equal((await whole).status, 503);
});

test('a hurried stop takes the time away that running answers were given', async (t) => {
  const server = await start(t);
  server.model.script = waiting(['A']).script;
  const running = await post(server, { ...ask, stream: true });
  const hurry = new AbortController();
  const stopped = server.listening.stop(600_000, hurry.signal);
  assert.match(new TextDecoder().decode((await running.clone().body?.getReader().read())?.value), /data/);
  hurry.abort();
  await stopped;
  const text = await running.text();
  assert.match(text, /"code":"shutting_down"/);
  assert.ok(!text.includes('[DONE]'));
});

test('a taken port and an impossible address are clear errors', async (t) => {
  const server = await start(t);
  const other = testServer();
  await assert.rejects(
    listen(other, '127.0.0.1', server.listening.port),
    (thrown: unknown) =>
      thrown instanceof PlumblineError &&
      thrown.code === 'address_in_use' &&
      thrown.message.includes(String(server.listening.port)),
  );
  await assert.rejects(
    listen(other, '192.0.2.1', 0),
    (thrown: unknown) => thrown instanceof PlumblineError && thrown.code === 'invalid_option',
  );
});

test('a Host header that is no host is refused with an error body', async (t) => {
  const server = await start(t);
  const response = await new Promise<IncomingMessage>((resolve) => {
    httpRequest(`${server.listening.url}/health`, { headers: { host: 'a b"' } }, resolve).end();
  });
  assert.equal(response.statusCode, 400);
  let text = '';
  for await (const chunk of response) text += String(chunk);
  assert.equal((JSON.parse(text) as { error: { code: string } }).error.code, 'invalid_request');
});
