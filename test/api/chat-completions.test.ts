import { BlockAnswerReader } from '../../src/chat/block-answer-reader.js';
import { chatDialect } from '../../src/chat/dialects/index.js';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NonFiniteLogitsError, PlumblineError } from '../../src/errors.js';
import { fakeModel, says, usageOf } from '../support/fake-served-model.js';
import { readEvents, testServer } from '../support/http-app.js';

const CHAT = '/v1/chat/completions';
const base = { model: 'fake', messages: [{ role: 'user', content: 'hi' }] };

interface Chunk {
  readonly choices: readonly {
    readonly delta: {
      readonly role?: string;
      readonly content?: string;
      readonly reasoning_content?: string;
      readonly tool_calls?: readonly ToolDelta[];
    };
    readonly logprobs: { readonly content: readonly unknown[] } | null;
    readonly finish_reason: string | null;
  }[];
  readonly usage?: unknown;
  readonly plumbline?: unknown;
}
interface ToolDelta {
  readonly index: number;
  readonly id?: string;
  readonly function: { readonly name?: string; readonly arguments?: string };
}

test('a stream has the role first, then the text, then one finish, then the usage that was asked for', async () => {
  const server = testServer();
  const response = await server.post(CHAT, { ...base, stream: true, stream_options: { include_usage: true }, seed: 5 });
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8');
  const { events, done } = await readEvents(response);
  const chunks = events as Chunk[];
  assert.ok(done);
  assert.deepEqual(chunks[0]?.choices[0]?.delta, { role: 'assistant', content: '' });
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join(''), 'Hello!');
  assert.deepEqual(
    chunks.map((chunk) => chunk.choices[0]?.finish_reason),
    [null, null, null, null, 'stop', undefined],
  );
  assert.deepEqual(chunks.at(-1)?.choices, []);
  assert.deepEqual(chunks.at(-1)?.usage, {
    prompt_tokens: 18,
    completion_tokens: 3,
    total_tokens: 21,
    prompt_tokens_details: { cached_tokens: 0 },
  });
  assert.ok(
    chunks.slice(0, -1).every((chunk) => chunk.usage === null),
    'every chunk has the member once usage is asked for',
  );
  assert.equal((chunks.at(-2)?.plumbline as { seed: string }).seed, '5');
});

test('without include_usage no chunk speaks of usage', async () => {
  const { events } = await readEvents(await testServer().post(CHAT, { ...base, stream: true }));
  assert.ok((events as Chunk[]).every((chunk) => !('usage' in chunk)));
});

test('streamed and not: the same text, log-probabilities, finish reason and usage', async () => {
  const pieces = ['a', '', 'é…', '', 'z'];
  const ask = { ...base, logprobs: true, top_logprobs: 2, seed: 3 };
  const server = testServer();
  server.model.script = says(pieces, 'length');
  const whole = (await (await server.post(CHAT, ask)).json()) as {
    choices: { message: { content: string }; logprobs: { content: unknown[] }; finish_reason: string }[];
    usage: unknown;
  };
  const { events } = await readEvents(
    await server.post(CHAT, { ...ask, stream: true, stream_options: { include_usage: true } }),
  );
  const chunks = events as Chunk[];
  assert.equal(
    chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join(''),
    whole.choices[0]?.message.content,
  );
  assert.deepEqual(
    chunks.flatMap((chunk) => chunk.choices[0]?.logprobs?.content ?? []),
    whole.choices[0]?.logprobs.content,
  );
  assert.equal(whole.choices[0]?.logprobs.content.length, pieces.length, 'one entry a token, also for held-back text');
  assert.equal(
    chunks.find((chunk) => chunk.choices[0]?.finish_reason)?.choices[0]?.finish_reason,
    whole.choices[0]?.finish_reason,
  );
  assert.deepEqual(chunks.at(-1)?.usage, whole.usage);
});

test('text that the end sets free is part of the answer, before the finish', async () => {
  const server = testServer();
  server.model.script = async function* (request) {
    yield { type: 'token', tokenId: 65, text: 'A' };
    yield { type: 'finish', reason: 'length', text: 'held', usage: usageOf(request, 2) };
  };
  const whole = (await (await server.post(CHAT, base)).json()) as { choices: { message: { content: string } }[] };
  assert.equal(whole.choices[0]?.message.content, 'Aheld');
  const { events } = await readEvents(await server.post(CHAT, { ...base, stream: true }));
  const deltas = (events as Chunk[]).map((chunk) => chunk.choices[0]);
  assert.deepEqual(
    deltas.slice(-2).map((choice) => [choice?.delta.content, choice?.finish_reason]),
    [
      ['held', null],
      [undefined, 'length'],
    ],
  );
});

test('reasoning and tool calls have their own places, and calls change the finish reason', async () => {
  const server = testServer(
    {},
    fakeModel({
      chat: {
        prepare: () => ({
          promptTokens: [1, 2],
          reader: {
            push: (text) =>
              text === 'R'
                ? [{ kind: 'reasoning', text: 'hm' }]
                : text === 'C'
                  ? [
                      { kind: 'tool-call', index: 0, id: 'call_1', name: 'add' },
                      { kind: 'tool-arguments', index: 0, text: '{"a":' },
                    ]
                  : text === 'D'
                    ? [{ kind: 'tool-arguments', index: 0, text: '1}' }]
                    : [],
            finish: () => [],
          },
        }),
      },
    }),
  );
  server.model.script = says(['R', 'C', 'D']);
  const whole = (await (await server.post(CHAT, base)).json()) as {
    choices: { message: object; finish_reason: string }[];
  };
  assert.deepEqual(whole.choices[0]?.message, {
    role: 'assistant',
    content: null,
    refusal: null,
    reasoning_content: 'hm',
    tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'add', arguments: '{"a":1}' } }],
  });
  assert.equal(whole.choices[0]?.finish_reason, 'tool_calls');
  const { events } = await readEvents(await server.post(CHAT, { ...base, stream: true }));
  const deltas = (events as Chunk[]).map((chunk) => chunk.choices[0]?.delta);
  assert.deepEqual(deltas.slice(1, -1), [
    { reasoning_content: 'hm' },
    { tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'add', arguments: '' } }] },
    { tool_calls: [{ index: 0, function: { arguments: '{"a":' } }] },
    { tool_calls: [{ index: 0, function: { arguments: '1}' } }] },
  ]);
  assert.equal((events.at(-1) as Chunk).choices[0]?.finish_reason, 'tool_calls');
});

test('every sampling field reaches the scheduler, seeds without losing a digit, null as absent', async () => {
  const server = testServer();
  await server.post(CHAT, {
    ...base,
    temperature: 0.25,
    top_p: 0.5,
    top_k: 7,
    min_p: 0,
    presence_penalty: -1,
    frequency_penalty: 2,
    seed: '18446744073709551615',
    max_completion_tokens: 9,
    stop: 'END',
    logprobs: true,
    top_logprobs: 20,
  });
  await server.post(CHAT, {
    ...base,
    temperature: null,
    top_p: null,
    top_k: null,
    seed: null,
    max_tokens: null,
    stop: null,
    stream: null,
    n: null,
    tools: null,
    logit_bias: null,
    response_format: null,
  });
  await server.post(CHAT, { ...base, seed: 2 ** 53 - 1, n: 1, logit_bias: {}, response_format: { type: 'text' } });
  const [full, empty, largest] = server.model.submitted;
  assert.deepEqual(full?.sampling, {
    temperature: 0.25,
    topP: 0.5,
    topK: 7,
    minP: 0,
    presencePenalty: -1,
    frequencyPenalty: 2,
    seed: 2n ** 64n - 1n,
  });
  assert.equal(full?.maxTokens, 9);
  assert.equal(full?.topLogprobs, 20);
  assert.ok(Object.values(empty?.sampling ?? { a: 1 }).every((value) => value === undefined));
  assert.equal(empty?.maxTokens, 4096 - 18, 'the rest of the context');
  assert.equal(empty?.topLogprobs, undefined);
  assert.equal(largest?.sampling.seed, 2n ** 53n - 1n);
});

test('roles and parts become turns: developer is system, leading instructions are one, text parts are joined', async () => {
  const turns: unknown[] = [];
  const server = testServer(
    {},
    fakeModel({
      chat: {
        prepare: (conversation) => {
          turns.push(conversation.turns, conversation.tools, conversation.templateArguments);
          return { promptTokens: [1], reader: { push: () => [], finish: () => [] } };
        },
      },
    }),
  );
  const tool = { type: 'function', function: { parameters: { z: 1, a: 2 }, name: 'f', strict: true } };
  await server.post(CHAT, {
    model: 'fake',
    messages: [
      { role: 'system', content: 'one' },
      { role: 'developer', content: [{ type: 'text', text: 'two' }] },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
        name: 'Ada',
      },
      {
        role: 'assistant',
        content: null,
        reasoning_content: 'why',
        tool_calls: [{ id: 'c1', type: 'function', function: { name: 'f', arguments: '{ }' } }],
      },
      { role: 'tool', tool_call_id: 'c1', content: 'done' },
      { role: 'system', content: 'later' },
    ],
    tools: [tool],
    chat_template_kwargs: { enable_thinking: true },
  });
  await server.post(CHAT, { ...base, tools: [tool], tool_choice: 'none' });
  const [first, tools, variables, , hidden] = turns as [object[], object[], object, object[], object[]];
  assert.deepEqual(
    first.map((turn) => JSON.parse(JSON.stringify(turn)) as object),
    [
      { role: 'system', content: 'one\n\ntwo' },
      { role: 'user', content: 'ab', name: 'Ada' },
      { role: 'assistant', reasoningContent: 'why', toolCalls: [{ id: 'c1', name: 'f', arguments: '{ }' }] },
      { role: 'tool', content: 'done', toolCallId: 'c1' },
      { role: 'system', content: 'later' },
    ],
  );
  assert.equal(JSON.stringify(tools), JSON.stringify([tool]), 'tools keep the order of their keys');
  assert.deepEqual(variables, { enable_thinking: true });
  assert.deepEqual(hidden, [], 'tool_choice none hides the tools');
});

test('fields that nothing reads are named in the answer, at every level, and nothing else is', async () => {
  const body = {
    ...base,
    messages: [{ role: 'user', content: 'x', cache_control: {}, refusal: null }],
    stream: true,
    stream_options: { include_usage: false, chunk_size: 3 },
    user: 'u',
    store: true,
    metadata: null,
    parallel_tool_calls: false,
    n: 1,
  };
  const { events } = await readEvents(await testServer().post(CHAT, body));
  const { ignored } = (events.at(-1) as { plumbline: { ignored: string[] } }).plumbline;
  assert.deepEqual(ignored.sort(), [
    'messages[].cache_control',
    'parallel_tool_calls',
    'store',
    'stream_options.chunk_size',
  ]);
});

const census = { site: 'ar_step', phase: 'decode', step: 2, nanCount: 3, infCount: 1, vocabSize: 128 } as const;

test('an invalid row is a 500 with the census, or one frame after what was already sent; the next request is served', async () => {
  const server = testServer();
  const healthy = server.model.script;
  server.model.script = async function* () {
    yield { type: 'token', tokenId: 72, text: 'Hi' };
    throw new NonFiniteLogitsError(census);
  };
  const whole = await server.post(CHAT, base);
  const body = (await whole.json()) as { error: Record<string, unknown>; choices?: unknown };
  assert.equal(whole.status, 500);
  assert.equal(whole.headers.get('x-should-retry'), 'false');
  assert.equal(body.choices, undefined);
  const { events, done } = await readEvents(
    await server.post(CHAT, { ...base, stream: true, stream_options: { include_usage: true } }),
  );
  assert.equal(done, false, 'no terminator');
  const failure = events.at(-1) as { error: Record<string, unknown> };
  assert.deepEqual(Object.keys(failure), ['error'], 'no choices, no usage');
  assert.equal(
    (events as Chunk[])
      .slice(0, -1)
      .map((chunk) => chunk.choices[0]?.delta.content ?? '')
      .join(''),
    'Hi',
  );
  for (const { error } of [body, failure]) {
    assert.equal(error['code'], 'non_finite_logits');
    assert.equal(error['type'], 'server_error');
    assert.equal(error['param'], null);
    assert.match(
      error['message'] as string,
      /invalid logits row at ar_step .*3 NaN and 1 infinite of 128.*all cached state.*request req_/,
    );
    assert.ok(!(error['message'] as string).includes('Hi'));
    assert.deepEqual((error['plumbline'] as { census: object }).census, {
      site: 'ar_step',
      phase: 'decode',
      step: 2,
      nan: 3,
      inf: 1,
      vocab: 128,
    });
  }
  server.model.script = healthy;
  assert.ok((await readEvents(await server.post(CHAT, { ...base, stream: true }))).done);
  const health = (await (await server.get('/health')).json()) as {
    recent_failures: { code: string; emittedTokens: number }[];
  };
  assert.deepEqual(
    health.recent_failures.map(({ code, emittedTokens }) => [code, emittedTokens]),
    [
      ['non_finite_logits', 1],
      ['non_finite_logits', 1],
    ],
  );
  assert.match(
    await (await server.get('/metrics')).text(),
    /plumbline_non_finite_rows_total\{family="fake-family",site="ar_step",kind="nan"\} 2/,
  );
});

test('a fault of the program is told without its details', async () => {
  const server = testServer();
  server.model.script = async function* () {
    yield { type: 'token', tokenId: 72, text: 'Hi' };
    throw new TypeError('secret of /home/me');
  };
  const whole = await server.post(CHAT, base);
  assert.equal(whole.status, 500);
  assert.ok(!(await whole.text()).includes('secret'));
  const streamed = await (await server.post(CHAT, { ...base, stream: true })).text();
  assert.match(streamed, /"code":"internal_error"/);
  assert.ok(!streamed.includes('secret') && !streamed.includes('[DONE]'));
});

test('a generation that ends without a finish event is an error, never a short answer', async () => {
  const server = testServer();
  server.model.script = async function* () {
    yield { type: 'token', tokenId: 72, text: 'Hi' };
  };
  assert.equal((await server.post(CHAT, base)).status, 500);
  const { done, events } = await readEvents(await server.post(CHAT, { ...base, stream: true }));
  assert.equal(done, false);
  assert.ok('error' in (events.at(-1) as object));
});

test('a failed request that had reused state is worth repeating: the repeat is cold', async () => {
  const server = testServer();
  for (const reusedTokens of [0, 5]) {
    server.model.script = async function* () {
      yield { type: 'prefill', processed: 1, total: 1 };
      throw Object.assign(new NonFiniteLogitsError(census), { reusedTokens });
    };
    const response = await server.post(CHAT, base);
    const { error } = (await response.json()) as { error: { plumbline: { retryable: boolean } } };
    const worth = reusedTokens > 0;
    assert.deepEqual(
      [response.status, response.headers.get('x-should-retry'), error.plumbline.retryable],
      [500, String(worth), worth],
    );
  }
});

test('a refused admission keeps its HTTP status, streamed or not, with the advice to come back', async () => {
  const server = testServer();
  server.model.refusal = new PlumblineError('queue_full', '64 requests are waiting');
  for (const stream of [false, true]) {
    const response = await server.post(CHAT, { ...base, stream });
    assert.equal(response.status, 503);
    assert.equal(response.headers.get('retry-after'), '1');
    assert.equal(response.headers.get('x-should-retry'), 'true');
    assert.equal(((await response.json()) as { error: { type: string } }).error.type, 'overloaded_error');
  }
  assert.equal(server.active.size, 0);
});

test('an answer that ends inside a tool call is an error, whole and streamed; a completed call is a call', async () => {
  const dialect = chatDialect('argument-pairs')!;
  const chat = {
    prepare: () => ({
      promptTokens: [1],
      reader: new BlockAnswerReader(dialect, { start: 'answer', tools: [{}], newCallId: (index) => `call_${index}` }),
    }),
  };
  const server = testServer({}, fakeModel({ chat }));
  server.model.script = says(['Hm.', '<tool_call>f', '<arg_key>a</arg_key><arg_value>1'], 'length');
  const whole = await server.post(CHAT, base);
  const body = (await whole.json()) as { error: { code: string; message: string } };
  assert.deepEqual([whole.status, body.error.code], [500, 'tool_call_unterminated']);
  assert.match(body.error.message, /raise max_tokens/);
  const streamed = await readEvents(await server.post(CHAT, { ...base, stream: true }));
  assert.equal(streamed.done, false);
  assert.equal((streamed.events.at(-1) as typeof body).error.code, 'tool_call_unterminated');
  server.model.script = says(['Hm.', '<tool_call>f', '<arg_key>a</arg_key><arg_value>1</arg_value>'], 'stop');
  const called = (await (await server.post(CHAT, base)).json()) as {
    choices: { finish_reason: string; message: { tool_calls: { function: object }[] } }[];
  };
  assert.equal(called.choices[0]?.finish_reason, 'tool_calls');
  assert.deepEqual(called.choices[0]?.message.tool_calls[0]?.function, { name: 'f', arguments: '{"a": 1}' });
});
