/**
 * The official client against a real socket: good streams succeed, a failure throws, and a stream that breaks off is
 * never a success. What protects here: `finish_reason` is sent once, at the very end, in one write with what follows it;
 * the `.stream()` helper refuses a choice without one, and a torn connection is an error of the transport.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import OpenAI, { APIError } from 'openai';
import { listen, type ListeningServer } from '../../src/http/node-server.js';
import { NonFiniteLogitsError } from '../../src/errors.js';
import { says } from '../support/fake-served-model.js';
import { testServer } from '../support/http-app.js';

const server = testServer();
let listening: ListeningServer;
let client: OpenAI;

before(async () => {
  listening = await listen(server, '127.0.0.1', 0);
  client = new OpenAI({ baseURL: `${listening.url}/v1`, apiKey: 'unused', maxRetries: 0 });
});
after(async () => listening.stop(0));

const ask = { model: 'fake', messages: [{ role: 'user', content: 'hi' }] } satisfies OpenAI.ChatCompletionCreateParams;
const census = { site: 'ar_step', phase: 'decode', step: 1, nanCount: 1, infCount: 0, vocabSize: 128 } as const;

test('answers, raw streams and the stream helper agree', async () => {
  server.model.script = says(['Hel', 'lo', '!']);
  const whole = await client.chat.completions.create(ask);
  assert.equal(whole.choices[0]?.message.content, 'Hello!');
  let raw = '';
  for await (const chunk of await client.chat.completions.create({ ...ask, stream: true }))
    raw += chunk.choices[0]?.delta.content ?? '';
  assert.equal(raw, 'Hello!');
  const helper = client.chat.completions.stream({ ...ask, stream_options: { include_usage: true } });
  const final = await helper.finalChatCompletion();
  assert.equal(final.choices[0]?.message.content, 'Hello!');
  assert.equal(final.choices[0]?.finish_reason, 'stop');
  assert.equal(final.usage?.completion_tokens, 3);
  assert.ok('plumbline' in final, 'the helper keeps the block of the finish chunk');
  let text = '';
  for await (const chunk of await client.completions.create({ model: 'fake', prompt: 'x', stream: true }))
    text += chunk.choices[0]?.text ?? '';
  assert.equal(text, 'Hello!');
});

test('the model list can be read', async () => {
  const ids: string[] = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert.deepEqual(ids, ['fake']);
  assert.equal((await client.models.retrieve('fake')).owned_by, 'plumbline');
});

test('log-probabilities add up in the stream helper', async () => {
  const final = await client.chat.completions.stream({ ...ask, logprobs: true, top_logprobs: 1 }).finalChatCompletion();
  assert.equal(final.choices[0]?.logprobs?.content?.length, 3);
});

const isNonFinite = (thrown: unknown): boolean =>
  thrown instanceof APIError &&
  thrown.code === 'non_finite_logits' &&
  thrown.type === 'server_error' &&
  /1 NaN and 0 infinite of 128/.test(thrown.message);

test('an invalid row throws in every form: whole, raw stream, stream helper, before and after the first text', async () => {
  for (const said of [[], ['a', 'b']]) {
    server.model.script = async function* (request) {
      for await (const event of says(said)(request)) if (event.type !== 'finish') yield event;
      throw new NonFiniteLogitsError(census);
    };
    await assert.rejects(client.chat.completions.create(ask), isNonFinite);
    await assert.rejects(async () => {
      for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) assert.ok(chunk);
    }, isNonFinite);
    await assert.rejects(client.chat.completions.stream(ask).finalChatCompletion(), isNonFinite);
    await assert.rejects(async () => {
      for await (const chunk of client.chat.completions.stream(ask)) assert.ok(chunk);
    }, isNonFinite);
    await assert.rejects(async () => {
      for await (const chunk of await client.completions.create({ model: 'fake', prompt: 'x', stream: true }))
        assert.ok(chunk);
    }, isNonFinite);
  }
});

test('the client repeats neither a failed row nor a malformed request by itself', async () => {
  const eager = new OpenAI({ baseURL: `${listening.url}/v1`, apiKey: 'unused', maxRetries: 2 });
  let runs = 0;
  server.model.script = async function* () {
    runs += 1;
    yield { type: 'prefill', processed: 1, total: 2 };
    throw new NonFiniteLogitsError(census);
  };
  await assert.rejects(eager.chat.completions.create(ask), isNonFinite);
  assert.equal(runs, 1);
});

/** Passes a connection on to the server, but only so many bytes of what comes back; then it ends or tears the line. */
async function cutAfter(
  bytes: number,
  how: 'end' | 'tear',
): Promise<{ url: string; close: () => Promise<void>; passed: () => number }> {
  let passed = 0;
  const sockets = new Set<Socket>();
  const proxy = createServer((socket) => {
    sockets.add(socket);
    const upstream = connect(listening.port, '127.0.0.1');
    socket.on('error', () => upstream.destroy());
    upstream.on('error', () => socket.destroy());
    socket.on('close', () => upstream.destroy());
    upstream.on('close', () => socket.end());
    socket.pipe(upstream);
    upstream.on('data', (data: Buffer) => {
      const part = data.subarray(0, Math.max(0, bytes - passed));
      passed += part.length;
      if (part.length > 0) socket.write(part);
      if (passed < bytes) return;
      upstream.destroy();
      if (how === 'tear') socket.resetAndDestroy();
      else socket.end();
    });
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const { port } = proxy.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/v1`,
    passed: () => passed,
    close: async () =>
      new Promise((resolve) => {
        proxy.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

test('a stream that is cut after any number of bytes is a success neither for the raw stream nor for the helper', async () => {
  server.model.script = says(['Hel', 'lo', '!']);
  const open = await cutAfter(Number.MAX_SAFE_INTEGER, 'end');
  const through = new OpenAI({
    baseURL: open.url,
    apiKey: 'unused',
    maxRetries: 0,
  });
  await through.chat.completions.stream(ask).finalChatCompletion();
  const total = open.passed();
  await open.close();
  assert.ok(total > 1000);
  // Every place near the end, where the finish and the terminator are, and a sample of the places before.
  const cuts = Array.from({ length: total }, (_, index) => index + 1).filter(
    (cut) => cut < total - 5 && (cut > total - 60 || cut % 97 === 0),
  );
  for (const cut of cuts) {
    const proxy = await cutAfter(cut, cut % 2 === 0 ? 'end' : 'tear');
    const cutClient = new OpenAI({ baseURL: proxy.url, apiKey: 'unused', maxRetries: 0 });
    await assert.rejects(
      cutClient.chat.completions.stream(ask).finalChatCompletion(),
      `helper, cut after ${cut} of ${total} bytes`,
    );
    await proxy.close();
    const again = await cutAfter(cut, cut % 2 === 0 ? 'tear' : 'end');
    const rawClient = new OpenAI({ baseURL: again.url, apiKey: 'unused', maxRetries: 0 });
    await assert.rejects(async () => {
      for await (const chunk of await rawClient.chat.completions.create({ ...ask, stream: true })) assert.ok(chunk);
    }, `raw stream, cut after ${cut} of ${total} bytes`);
    await again.close();
  }
});

test('without a transport that tells (no length, clean close), the helper succeeds only with the finish chunk', async () => {
  server.model.script = says(['Hel', 'lo', '!']);
  const whole = await (await server.post('/v1/chat/completions', { ...ask, stream: true })).text();
  const finishEnds = whole.indexOf('\n\n', whole.indexOf('"finish_reason":"stop"')) + 2;
  for (let cut = 0; cut <= whole.length; cut += 13) {
    const body = whole.slice(0, cut);
    const fetchCut: typeof fetch = async () => new Response(body, { headers: { 'content-type': 'text/event-stream' } });
    const cutClient = new OpenAI({
      baseURL: 'http://127.0.0.1:1/v1',
      apiKey: 'unused',
      maxRetries: 0,
      fetch: fetchCut,
    });
    const result = await cutClient.chat.completions
      .stream(ask)
      .finalChatCompletion()
      .then(
        (final) => final.choices[0]?.message.content,
        () => 'refused',
      );
    // Behind the finish chunk only the terminator is missing: the answer is whole.
    assert.equal(result, cut < finishEnds - 1 ? 'refused' : 'Hello!', `cut after ${cut} of ${whole.length} characters`);
  }
});
