/**
 * Requests that are refused: each with its status, code and the field at fault, and a server that goes on as if nothing
 * had happened.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ErrorCode } from '../../src/errors.js';
import { readEvents, testServer } from '../support/http-app.js';

const CHAT = '/v1/chat/completions';
const TEXT = '/v1/completions';
const user = { role: 'user', content: 'hi' };

interface Case {
  readonly name: string;
  readonly path?: string;
  readonly body: unknown;
  readonly headers?: Record<string, string>;
  readonly status?: number;
  readonly code?: ErrorCode;
  readonly param?: string | null;
}

/** A chat request that is right but for the given fields. */
const chat = (
  name: string,
  fields: Record<string, unknown>,
  param: string | null,
  code: ErrorCode = 'invalid_request',
): Case => ({
  name,
  body: { model: 'fake', messages: [user], ...fields },
  param,
  code,
});
const completion = (
  name: string,
  fields: Record<string, unknown>,
  param: string | null,
  code: ErrorCode = 'invalid_request',
): Case => ({
  name,
  path: TEXT,
  body: { model: 'fake', prompt: 'hi', ...fields },
  param,
  code,
});
const messages = (name: string, value: unknown, param: string, code?: ErrorCode): Case =>
  chat(name, { messages: value }, param, code);

const CASES: readonly Case[] = [
  // ---- the body as a whole ----
  { name: 'empty body', body: '', code: 'invalid_json' },
  { name: 'cut JSON', body: '{"model": "fake", "messages": [', code: 'invalid_json' },
  { name: 'not JSON at all', body: 'model=fake', code: 'invalid_json' },
  { name: 'two JSON values', body: '{}{}', code: 'invalid_json' },
  { name: 'an array', body: [], code: 'invalid_request' },
  { name: 'a string', body: '"hi"', code: 'invalid_request' },
  { name: 'null', body: 'null', code: 'invalid_request' },
  {
    name: 'nested a thousand levels deep',
    body: `{"model":"fake","messages":[],"x":${'['.repeat(1000)}${']'.repeat(1000)}}`,
    code: 'invalid_json',
  },
  {
    name: 'nested a hundred thousand levels deep',
    body: '['.repeat(100_000) + ']'.repeat(100_000),
    code: 'invalid_json',
  },
  { name: 'too large', body: `{"model":"${'x'.repeat(1024 * 1024)}"}`, status: 413, code: 'body_too_large' },
  {
    name: 'form encoding',
    body: 'model=fake',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    status: 415,
    code: 'unsupported_media_type',
  },
  {
    name: 'plain text type',
    body: '{}',
    headers: { 'content-type': 'text/plain' },
    status: 415,
    code: 'unsupported_media_type',
  },
  {
    name: 'another charset',
    body: '{}',
    headers: { 'content-type': 'application/json; charset=utf-16' },
    status: 415,
    code: 'unsupported_media_type',
  },
  {
    name: 'compressed body',
    body: '{}',
    headers: { 'content-encoding': 'gzip' },
    status: 415,
    code: 'unsupported_media_type',
  },
  // ---- the model ----
  { name: 'no model', body: { messages: [user] }, param: 'model' },
  chat('model of the wrong type', { model: 3 }, 'model'),
  chat('empty model', { model: '' }, 'model'),
  {
    name: 'unknown model',
    body: { model: 'gpt-4o', messages: [user] },
    status: 404,
    code: 'model_not_found',
    param: 'model',
  },
  // ---- messages ----
  { name: 'no messages', body: { model: 'fake' }, param: 'messages' },
  messages('messages not an array', 'hi', 'messages'),
  messages('empty messages', [], 'messages'),
  messages('message not an object', ['hi'], 'messages[0]'),
  messages('message null', [null], 'messages[0]'),
  messages('no role', [{ content: 'x' }], 'messages[0].role'),
  messages('unknown role', [user, { role: 'robot', content: 'x' }], 'messages[1].role'),
  messages('user without content', [{ role: 'user' }], 'messages[0].content'),
  messages('user content null', [{ role: 'user', content: null }], 'messages[0].content'),
  messages('user content a number', [{ role: 'user', content: 5 }], 'messages[0].content'),
  messages('content without parts', [{ role: 'user', content: [] }], 'messages[0].content'),
  messages('part without type', [{ role: 'user', content: [{ text: 'x' }] }], 'messages[0].content[0].type'),
  messages('part without text', [{ role: 'user', content: [{ type: 'text' }] }], 'messages[0].content[0].text'),
  messages(
    'an image',
    [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'x' },
          { type: 'image_url', image_url: { url: 'data:' } },
        ],
      },
    ],
    'messages[0].content[1].type',
    'unsupported_parameter',
  ),
  messages('assistant with nothing', [user, { role: 'assistant' }], 'messages[1].content'),
  messages(
    'assistant with no calls and no content',
    [user, { role: 'assistant', content: null, tool_calls: [] }],
    'messages[1].content',
  ),
  messages(
    'tool call without id',
    [{ role: 'assistant', tool_calls: [{ type: 'function', function: { name: 'f', arguments: '{}' } }] }],
    'messages[0].tool_calls[0].id',
  ),
  messages(
    'tool call arguments not text',
    [{ role: 'assistant', tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: {} } }] }],
    'messages[0].tool_calls[0].function.arguments',
  ),
  messages(
    'tool call of another type',
    [{ role: 'assistant', tool_calls: [{ id: 'a', type: 'custom', function: { name: 'f', arguments: '' } }] }],
    'messages[0].tool_calls[0].type',
    'unsupported_parameter',
  ),
  messages('tool answer without id', [{ role: 'tool', content: 'x' }], 'messages[0].tool_call_id'),
  // ---- sampling ----
  chat('temperature below zero', { temperature: -0.1 }, 'temperature'),
  chat('temperature above two', { temperature: 2.1 }, 'temperature'),
  chat('temperature as text', { temperature: '1' }, 'temperature'),
  {
    name: 'temperature beyond all numbers',
    body: '{"model":"fake","messages":[{"role":"user","content":"x"}],"temperature":1e999}',
    param: 'temperature',
  },
  chat('top_p zero', { top_p: 0 }, 'top_p'),
  chat('top_p above one', { top_p: 1.5 }, 'top_p'),
  chat('top_k negative', { top_k: -1 }, 'top_k'),
  chat('top_k not an integer', { top_k: 1.5 }, 'top_k'),
  chat('seed negative', { seed: -1 }, 'seed'),
  chat('seed not an integer', { seed: 0.5 }, 'seed'),
  chat('seed beyond exact numbers', { seed: 2 ** 53 }, 'seed'),
  chat('seed text beyond 64 bits', { seed: '18446744073709551616' }, 'seed'),
  chat('seed text with a sign', { seed: '+5' }, 'seed'),
  chat('presence_penalty out of range', { presence_penalty: 2.5 }, 'presence_penalty'),
  chat('frequency_penalty out of range', { frequency_penalty: -2.5 }, 'frequency_penalty'),
  // ---- limits and stops ----
  chat('max_tokens zero', { max_tokens: 0 }, 'max_tokens'),
  chat('max_tokens a fraction', { max_tokens: 1.5 }, 'max_tokens'),
  chat('max_completion_tokens negative', { max_completion_tokens: -5 }, 'max_completion_tokens'),
  chat('two different limits', { max_tokens: 1, max_completion_tokens: 2 }, 'max_tokens'),
  chat('more tokens than the context', { max_tokens: 5000 }, 'messages', 'context_length_exceeded'),
  messages(
    'a prompt longer than the context',
    [{ role: 'user', content: 'x'.repeat(5000) }],
    'messages',
    'context_length_exceeded',
  ),
  chat('seventeen stops', { stop: Array.from({ length: 17 }, (_, index) => `s${index}`) }, 'stop'),
  chat('an empty stop', { stop: ['a', ''] }, 'stop[1]'),
  chat('an empty stop string', { stop: '' }, 'stop[0]'),
  chat('stop of the wrong type', { stop: 5 }, 'stop'),
  // ---- log-probabilities ----
  chat('logprobs as a number', { logprobs: 3 }, 'logprobs'),
  chat('top_logprobs without logprobs', { top_logprobs: 3 }, 'top_logprobs'),
  chat('top_logprobs too many', { logprobs: true, top_logprobs: 21 }, 'top_logprobs'),
  // ---- streaming ----
  chat('stream as text', { stream: 'yes' }, 'stream'),
  chat('stream_options without stream', { stream_options: { include_usage: true } }, 'stream_options'),
  chat('stream_options of the wrong type', { stream: true, stream_options: true }, 'stream_options'),
  chat(
    'include_usage as text',
    { stream: true, stream_options: { include_usage: 'yes' } },
    'stream_options.include_usage',
  ),
  // ---- known and unsupported ----
  chat('n = 2', { n: 2 }, 'n', 'unsupported_parameter'),
  chat('logit_bias', { logit_bias: { 50: 1 } }, 'logit_bias', 'unsupported_parameter'),
  chat('JSON mode', { response_format: { type: 'json_object' } }, 'response_format', 'unsupported_parameter'),
  chat(
    'a JSON schema',
    { response_format: { type: 'json_schema', json_schema: {} } },
    'response_format',
    'unsupported_parameter',
  ),
  chat('a forced tool call', { tools: [], tool_choice: 'required' }, 'tool_choice', 'unsupported_parameter'),
  chat(
    'a named tool call',
    { tool_choice: { type: 'function', function: { name: 'f' } } },
    'tool_choice',
    'unsupported_parameter',
  ),
  chat('tool_choice misspelt', { tool_choice: 'sometimes' }, 'tool_choice'),
  chat('old functions', { functions: [] }, 'functions', 'unsupported_parameter'),
  chat('min_p', { min_p: 0.1 }, 'min_p', 'unsupported_parameter'),
  chat('audio', { modalities: ['text', 'audio'] }, 'modalities', 'unsupported_parameter'),
  // ---- tools and template ----
  chat('tools not an array', { tools: {} }, 'tools'),
  chat('a tool of another type', { tools: [{ type: 'web_search' }] }, 'tools[0].type', 'unsupported_parameter'),
  chat('a tool without function', { tools: [{ type: 'function' }] }, 'tools[0].function'),
  chat('a tool without name', { tools: [{ type: 'function', function: {} }] }, 'tools[0].function.name'),
  chat(
    'a tool name with a space',
    { tools: [{ type: 'function', function: { name: 'a b' } }] },
    'tools[0].function.name',
  ),
  chat('template variables not an object', { chat_template_kwargs: [] }, 'chat_template_kwargs'),
  chat('messages that the template refuses', { chat_template_kwargs: { refuse: true } }, null, 'chat_template_error'),
  // ---- completions ----
  { name: 'no prompt', path: TEXT, body: { model: 'fake' }, param: 'prompt' },
  completion('prompt null', { prompt: null }, 'prompt'),
  completion('prompt a number', { prompt: 5 }, 'prompt'),
  completion('empty prompt', { prompt: '' }, 'prompt'),
  completion('empty prompt array', { prompt: [] }, 'prompt'),
  completion('empty token array', { prompt: [[]] }, 'prompt'),
  completion('two prompts', { prompt: ['a', 'b'] }, 'prompt', 'unsupported_parameter'),
  completion('two token prompts', { prompt: [[1], [2]] }, 'prompt', 'unsupported_parameter'),
  completion('text among tokens', { prompt: [1, 'a'] }, 'prompt'),
  completion('a negative token', { prompt: [1, -1] }, 'prompt'),
  completion('half a token', { prompt: [1, 1.5] }, 'prompt'),
  completion('a token beyond the vocabulary', { prompt: [1, 2, 128] }, 'prompt[2]'),
  completion('logprobs as a boolean', { logprobs: true }, 'logprobs'),
  completion('logprobs too many', { logprobs: 21 }, 'logprobs'),
  completion('echo', { echo: true }, 'echo', 'unsupported_parameter'),
  completion('suffix', { suffix: 'x' }, 'suffix', 'unsupported_parameter'),
  completion('best_of', { best_of: 3 }, 'best_of', 'unsupported_parameter'),
];

test(`each of ${CASES.length} malformed requests gets its own clear error, streamed or not, and the server goes on`, async (t) => {
  const server = testServer();
  for (const { name, path = CHAT, body, headers, status = 400, code = 'invalid_request', param = null } of CASES) {
    await t.test(name, async () => {
      const streamed =
        typeof body === 'object' &&
        body !== null &&
        !Array.isArray(body) &&
        !('stream' in body) &&
        !('stream_options' in body);
      for (const sent of streamed ? [body, { ...body, stream: true }] : [body]) {
        const before = server.model.submitted.length;
        const response = await server.post(path, sent, headers);
        const { error } = (await response.json()) as { error: Record<string, unknown> };
        assert.deepEqual(
          { status: response.status, code: error['code'], param: error['param'] },
          { status, code, param },
        );
        assert.match(response.headers.get('content-type') ?? '', /^application\/json/);
        assert.equal(response.headers.get('x-request-id')?.startsWith('req_'), true);
        assert.equal(typeof error['message'], 'string');
        assert.ok((error['message'] as string).length > 10, 'the message says something');
        if (param !== null) assert.ok((error['message'] as string).includes("'"), 'the message names the field');
        assert.equal(server.model.submitted.length, before, 'nothing was queued');
        assert.equal(server.active.size, 0, 'nothing is left running');
      }
      const next = await server.post(CHAT, { model: 'fake', messages: [user], stream: true });
      const { done, events } = await readEvents(next);
      assert.ok(done && events.length === 5, 'the next request is served');
    });
  }
});

test('a body without an honest length is cut off at the limit while it arrives', async () => {
  const server = testServer({ maxBodyBytes: 100_000 });
  let pulled = 0;
  const endless = new ReadableStream<Uint8Array>({
    pull(controller) {
      pulled += 1;
      controller.enqueue(new Uint8Array(10_000).fill(0x20));
    },
  });
  const request = new Request('http://localhost/v1/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: endless,
    duplex: 'half',
  });
  const response = await server.app.request(request);
  assert.equal(response.status, 413);
  assert.ok(pulled <= 13, `${pulled} pieces were read`);
});

test('a body that is not UTF-8 is refused', async () => {
  const server = testServer();
  const response = await server.app.request('/v1/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x7d),
  });
  const { error } = (await response.json()) as { error: { code: string } };
  assert.deepEqual([response.status, error.code], [400, 'invalid_json']);
});

test('an error about JSON never repeats the body', async () => {
  const server = testServer();
  const response = await server.post(CHAT, '{"secret": swordfish}');
  assert.ok(!(await response.text()).includes('sword'));
});
