import assert from 'node:assert/strict';
import { test } from 'node:test';
import { says } from '../support/fake-served-model.js';
import { readEvents, testServer } from '../support/http-app.js';

const TEXT = '/v1/completions';

interface TextCompletion {
  readonly object: string;
  readonly choices: readonly {
    readonly text: string;
    readonly finish_reason: string | null;
    readonly logprobs: Logprobs | null;
  }[];
  readonly usage?: { readonly completion_tokens: number } | null;
}
interface Logprobs {
  readonly tokens: readonly string[];
  readonly token_logprobs: readonly number[];
  readonly top_logprobs: readonly Record<string, number>[];
  readonly text_offset: readonly number[];
}

test('a prompt may be text, one text in an array, ids, or one array of ids', async () => {
  const server = testServer();
  for (const prompt of ['ab', ['ab'], [97, 98], [[97, 98]]]) {
    assert.equal((await server.post(TEXT, { model: 'fake', prompt })).status, 200);
  }
  assert.deepEqual(
    server.model.submitted.map((request) => request.promptTokens),
    [1, 2, 3, 4].map(() => [97, 98]),
  );
});

test('streamed and not: the same text, log-probabilities and usage; the finish comes last', async () => {
  const server = testServer();
  server.model.script = says(['x', '', 'yz'], 'length');
  const ask = { model: 'fake', prompt: 'ab', logprobs: 1 };
  const whole = (await (await server.post(TEXT, ask)).json()) as TextCompletion;
  assert.equal(whole.object, 'text_completion');
  assert.equal(whole.choices[0]?.text, 'xyz');
  assert.equal(whole.choices[0]?.finish_reason, 'length');
  assert.deepEqual(whole.choices[0]?.logprobs?.text_offset, [0, 1, 1]);
  const { events, done } = await readEvents(
    await server.post(TEXT, { ...ask, stream: true, stream_options: { include_usage: true } }),
  );
  const chunks = events as TextCompletion[];
  assert.ok(done);
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.text ?? '').join(''), 'xyz');
  assert.deepEqual(
    chunks.map((chunk) => chunk.choices[0]?.finish_reason),
    [null, null, null, 'length', undefined],
  );
  assert.deepEqual(chunks.at(-1)?.usage, whole.usage);
  assert.deepEqual(
    chunks.flatMap((chunk) => chunk.choices[0]?.logprobs?.tokens ?? []),
    whole.choices[0]?.logprobs?.tokens,
  );
});

test('the chosen token is always among the alternatives, and no logprob is null', async () => {
  const server = testServer();
  server.model.script = async function* (request) {
    yield {
      type: 'token',
      tokenId: 120,
      text: 'x',
      logprob: { tokenId: 120, logprob: -Infinity },
      topLogprobs: [{ tokenId: 121, logprob: -0.1 }],
    };
    yield* says([])(request);
  };
  const whole = (await (
    await server.post(TEXT, { model: 'fake', prompt: 'ab', logprobs: 1 })
  ).json()) as TextCompletion;
  assert.deepEqual(whole.choices[0]?.logprobs, {
    tokens: ['x'],
    token_logprobs: [-9999],
    top_logprobs: [{ y: -0.1, x: -9999 }],
    text_offset: [0],
  });
});
