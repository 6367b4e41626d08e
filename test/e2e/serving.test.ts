/** The embedded model through the whole house: HTTP, chat template, scheduler, engine, sampler, detokenizer. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { readEvents } from '../support/http-app.js';
import { embeddedServer, MODEL, withEmbeddedServer, type EmbeddedServer } from '../support/embedded-server.js';

let server: EmbeddedServer;
before(async () => {
  server = await embeddedServer();
});
after(async () => server.close(0));

const question = (content: string) => ({ model: MODEL, messages: [{ role: 'user' as const, content }] });
interface Whole {
  readonly choices: readonly { readonly message: { readonly content: string }; readonly finish_reason: string }[];
  readonly usage: { readonly completion_tokens: number; readonly prompt_tokens: number };
  readonly plumbline: { readonly seed: string };
}

const whole = async (body: object): Promise<Whole> => {
  const response = await server.post('/v1/chat/completions', body);
  assert.equal(response.status, 200);
  return (await response.json()) as Whole;
};

test('it answers a question that it knows', async () => {
  const { choices } = await whole({ ...question('Can you explain agent.getName?'), temperature: 0 });
  assert.match(choices[0]?.message.content ?? '', /^Get a unique name for a set of request options/);
  assert.equal(choices[0]?.finish_reason, 'stop');
});

test('the same seed gives the same bytes: again, streamed, among others, and from the seed that an answer names', async () => {
  const ask = { ...question('Write a loop over an array.'), temperature: 1, max_tokens: 48 };
  const first = await whole(ask);
  const text = first.choices[0]?.message.content;
  const seed = first.plumbline.seed;
  assert.equal(
    (await whole({ ...ask, seed })).choices[0]?.message.content,
    text,
    'the named seed gives the answer again',
  );
  const { events } = await readEvents(await server.post('/v1/chat/completions', { ...ask, seed, stream: true }));
  const chunks = events as { choices: { delta: { content?: string } }[] }[];
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join(''), text, 'streamed');
  const crowd = await Promise.all([
    whole({ ...ask, seed }),
    whole({ ...question('Hello!'), max_tokens: 30 }),
    whole({ ...ask, seed }),
    whole({ ...question('x '.repeat(300)), max_tokens: 10 }),
    whole({ ...ask, seed }),
  ]);
  for (const index of [0, 2, 4]) assert.equal(crowd[index]?.choices[0]?.message.content, text, 'among others');
});

test('limits and stops end an answer where they say', async () => {
  const ask = { ...question('Can you explain agent.getName?'), temperature: 0 };
  const short = await whole({ ...ask, max_tokens: 3 });
  assert.deepEqual([short.choices[0]?.finish_reason, short.usage.completion_tokens], ['length', 3]);
  const full = (await whole(ask)).choices[0]?.message.content ?? '';
  const stopped = await whole({ ...ask, stop: [' name', 'nowhere'] });
  assert.equal(stopped.choices[0]?.message.content, full.slice(0, full.indexOf(' name')));
  assert.equal(stopped.choices[0]?.finish_reason, 'stop');
});

test('log-probabilities are of the raw row: greedy takes the first of the alternatives', async () => {
  const answer = await server.client.chat.completions.create({
    ...question('Hello!'),
    temperature: 0,
    max_tokens: 8,
    logprobs: true,
    top_logprobs: 5,
  });
  for (const { token, logprob, top_logprobs: top } of answer.choices[0]?.logprobs?.content ?? []) {
    assert.equal(top[0]?.token, token);
    assert.equal(top[0]?.logprob, logprob);
    assert.ok(top.every((entry, index) => index === 0 || entry.logprob <= (top[index - 1]?.logprob ?? 0)));
    assert.ok(logprob <= 0);
  }
});

test('the context is a hard limit, told before anything runs', async () => {
  const long = await server.post('/v1/completions', { model: MODEL, prompt: 'word '.repeat(5000) });
  assert.deepEqual(
    [long.status, ((await long.json()) as { error: { code: string } }).error.code],
    [400, 'context_length_exceeded'],
  );
  const ids = Array.from({ length: 4090 }, (_, index) => 100 + (index % 3000));
  const exact = await server.post('/v1/completions', { model: MODEL, prompt: ids, max_tokens: 7 });
  assert.equal(exact.status, 400);
  await exact.body?.cancel();
});

test('ids that no token has, and characters that UTF-8 has not, are handled before the engine sees them', async () => {
  const beyond = await server.post('/v1/completions', { model: MODEL, prompt: [1, 4096], max_tokens: 1 });
  assert.equal(beyond.status, 400);
  await beyond.body?.cancel();
  const lone = await server.client.completions.create({ model: MODEL, prompt: 'a\ud800b', max_tokens: 2 });
  assert.equal(lone.choices.length, 1, 'a lone surrogate is U+FFFD');
});

test('a client that leaves frees its place at once', async (t) => {
  // Without its stop tokens the model goes on to the limit.
  const rowHook = (row: Float32Array): void => {
    row[4089] = -Infinity;
    row[4091] = -Infinity;
  };
  const busy = await withEmbeddedServer(t, { parallel: 1, maxQueue: 0 }, { rowHook });
  const leave = new AbortController();
  const long = {
    model: MODEL,
    prompt: 'const x = ',
    max_tokens: 3000,
    temperature: 1,
    top_p: 1,
    top_k: 0,
    stop: ['\u0000'],
  };
  const response = await busy.post('/v1/completions', { ...long, stream: true }, { signal: leave.signal });
  await response.body?.getReader().read();
  const refused = await busy.post('/v1/completions', { ...long, max_tokens: 1 });
  assert.equal(refused.status, 503, 'the only place is taken');
  await refused.body?.cancel();
  leave.abort();
  const start = performance.now();
  while (busy.models[0]!.live().running > 0) {
    assert.ok(performance.now() - start < 5000, 'the request still runs');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const next = await busy.post('/v1/completions', { ...long, max_tokens: 1 });
  assert.equal(next.status, 200);
  await next.body?.cancel();
});

test('health tells how answers are computed, and metrics count them', async () => {
  const health = (await (await fetch(`${server.url}/health`)).json()) as {
    status: string;
    models: {
      id: string;
      backend: { name: string; reason: string };
      memory: { needed_bytes: number };
      queue: { mode: string };
      declined: unknown[];
    }[];
  };
  const [model] = health.models;
  assert.equal(health.status, 'ok');
  assert.equal(model?.id, MODEL);
  assert.ok(model.backend.reason.length > 0 && model.memory.needed_bytes > 0 && model.queue.mode === 'accepting');
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  assert.match(metrics, /plumbline_generations_total\{model="plumbline-tiny",outcome="stop"\} [1-9]/);
  assert.match(metrics, /plumbline_requests\{state="running"\} 0/);
});

test('a stopped server gives its memory back and its port', async () => {
  const other = await embeddedServer();
  await other.close();
  await assert.rejects(fetch(other.url));
  assert.deepEqual(other.models[0]!.backend.backend.memory(), { allocated: 0, mapped: 0 });
});

test('a server that is to speculate and cannot says why in /health', async (t) => {
  const options = { speculation: 'coupled', draftDepth: 0, contextCopy: 'off' } as const;
  const plain = await withEmbeddedServer(t, options);
  assert.deepEqual(
    plain.models[0]!.health().declined.filter(({ path }) => path.startsWith('speculation')),
    [{ path: 'speculation coupled', reason: 'no draft head is loaded, and context copy is off' }],
  );
  const copying = await withEmbeddedServer(t, { ...options, contextCopy: 'on' });
  assert.deepEqual(
    copying.models[0]!.health().declined.filter(({ path }) => path.startsWith('speculation')),
    [],
  );
});
