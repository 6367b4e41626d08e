/** Several models of different families in one process: routing, independence, and what each law takes of a request. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { PlumblineError } from '../../src/errors.js';
import {
  ALL_MODELS,
  DS4_MODELS,
  threeFamilies,
  type ThreeFamilies,
  type TinyModel,
} from '../support/three-families.js';

let server: ThreeFamilies;
before(async () => {
  server = await threeFamilies();
});
after(async () => server.end());

interface Answer {
  readonly model: string;
  readonly choices: readonly unknown[];
  readonly plumbline: { readonly seed: string; readonly ignored: readonly string[] };
}
interface Failure {
  readonly error: { readonly code: string; readonly message: string; readonly param: string };
}

const ask = (model: string, more: object = {}): object => ({
  ...{ model, messages: [{ role: 'user', content: 'Tell me.' }], max_tokens: 24, temperature: 0.9, seed: 77 },
  ...more,
});

async function answer(body: object): Promise<Answer> {
  const response = await server.post('/v1/chat/completions', body);
  assert.equal(response.status, 200);
  return (await response.json()) as Answer;
}

async function refusal(body: object): Promise<[number, string, string]> {
  const response = await server.post('/v1/chat/completions', body);
  const { error } = (await response.json()) as Failure;
  return [response.status, error.code, error.param];
}

test('an alias is the model that reasons first, or does not, unless the request says otherwise', async () => {
  const say = async (model: string, more: object = {}): Promise<unknown> => {
    const response = await server.post('/v1/chat/completions', ask(model, { seed: 7, logprobs: true, ...more }));
    const { choices, model: served } = (await response.json()) as { choices: unknown; model: string };
    assert.deepEqual([response.status, served], [200, 'deepseek']);
    return choices;
  };
  const [off, on] = [await say('deepseek', { think: false }), await say('deepseek', { think: true })];
  assert.notDeepEqual(off, on);
  assert.deepEqual(await say('deepseek-chat'), off);
  assert.deepEqual(await say('deepseek-reasoner'), on);
  assert.deepEqual(await say('deepseek-chat', { reasoning_effort: 'high' }), on);
  assert.deepEqual(await say('deepseek-reasoner', { thinking: { type: 'disabled' } }), off);
  assert.deepEqual(await say('deepseek-reasoner', { chat_template_kwargs: { enable_thinking: false } }), off);
  const one = (await (await fetch(`${server.url}/v1/models/deepseek-chat`)).json()) as { plumbline: object };
  assert.deepEqual({ ...one.plumbline, backend: '' }, { context_length: 512, backend: '', activation_law: 'f32', alias_of: 'deepseek', thinking: 'off' }); // prettier-ignore
});

test('all are listed, in /v1/models and /health, and an unknown one is refused by name', async () => {
  const list = (await (await fetch(`${server.url}/v1/models`)).json()) as { data: { id: string }[] };
  assert.deepEqual(
    list.data.map(({ id }) => id),
    [...ALL_MODELS, 'deepseek-chat', 'deepseek-reasoner'],
  );
  const health = (await (await fetch(`${server.url}/health`)).json()) as {
    status: string;
    models: { id: string; family: string; declined: { path: string }[] }[];
  };
  assert.equal(health.status, 'ok');
  assert.deepEqual(
    health.models.map(({ id, family }) => [id, family]),
    [
      ['qwen', 'qwen4_exp'],
      ['deepseek', 'deepseek_v4'],
      ['glm', 'glm5_next'],
    ],
  );
  assert.ok(health.models[1]?.declined.some(({ path }) => path === 'chat template'));
  const response = await server.post('/v1/chat/completions', ask('other'));
  const { error } = (await response.json()) as Failure;
  assert.deepEqual([response.status, error.code], [404, 'model_not_found']);
  for (const id of ALL_MODELS) assert.match(error.message, new RegExp(`'${id}'`));
});

test('requests on all of them at once, interleaved, are each what they are alone', async () => {
  const jobs = [0, 1, 2].flatMap((seed) => ALL_MODELS.map((model) => ask(model, { seed: 100 + seed })));
  const alone: Answer[] = [];
  for (const job of jobs) alone.push(await answer(job));
  const together = await Promise.all(jobs.map(answer));
  together.forEach((one, index) => {
    assert.equal(one.model, alone[index]?.model);
    assert.deepEqual(one.choices, alone[index]?.choices);
  });
  assert.equal(new Set(alone.map(({ choices }) => JSON.stringify(choices))).size, jobs.length);
});

test('the sampling fields are those of each law', async () => {
  for (const model of DS4_MODELS) {
    await answer(ask(model, { min_p: 0.2, top_k: 2.7, presence_penalty: 0 }));
    await answer(ask(model, { top_k: -1 }));
    assert.deepEqual(await refusal(ask(model, { presence_penalty: 1 })), [
      400,
      'unsupported_parameter',
      'presence_penalty',
    ]);
    assert.deepEqual(await refusal(ask(model, { reasoning_effort: 'huge' })), [
      400,
      'invalid_request',
      'reasoning_effort',
    ]);
  }
  await answer(ask('qwen', { min_p: 0, presence_penalty: 1 }));
  assert.deepEqual(await refusal(ask('qwen', { min_p: 0.2 })), [400, 'unsupported_parameter', 'min_p']);
  assert.deepEqual(await refusal(ask('qwen', { top_k: 2.7 })), [400, 'invalid_request', 'top_k']);
  const { plumbline } = await answer(ask('qwen', { reasoning_effort: 'huge' }));
  assert.deepEqual(plumbline.ignored, ['reasoning_effort']);
});

test('an unset seed, 0 among them, is told, and gives the answer again', async () => {
  for (const model of DS4_MODELS) {
    for (const seed of [undefined, null, 0]) {
      const first = await answer(ask(model, { seed }));
      assert.notEqual(first.plumbline.seed, '0');
      const again = await answer(ask(model, { seed: first.plumbline.seed }));
      assert.deepEqual(again.choices, first.choices);
    }
  }
  assert.equal((await answer(ask('qwen', { seed: 0 }))).plumbline.seed, '0');
});

test('server flags stand in for what a request does not say, but not while a ds4 model reasons first', async (t) => {
  const own = await threeFamilies(['deepseek'], {}, { temperature: 0 });
  t.after(async () => own.end());
  const differ = async (think: boolean): Promise<boolean> => {
    const texts = [1, 2, 3].map(async (seed) => {
      const response = await own.post('/v1/chat/completions', ask('deepseek', { temperature: null, think, seed }));
      return JSON.stringify(((await response.json()) as Answer).choices);
    });
    return new Set(await Promise.all(texts)).size > 1;
  };
  assert.equal(await differ(false), false, 'greedy, by the flag');
  assert.equal(await differ(true), true, 'drawn, by the law');
});

test('a model that fails does not disturb the others', async (t) => {
  const own = await threeFamilies(['qwen', 'glm']);
  t.after(async () => own.end());
  const post = async (model: TinyModel): Promise<[number, unknown]> => {
    const response = await own.post('/v1/chat/completions', ask(model));
    const { choices } = (await response.json()) as Answer;
    return [response.status, choices];
  };
  const [, before] = await post('qwen');
  const glm = own.models[1]!.loaded.model;
  glm.forward = async () => {
    throw new PlumblineError('backend_failed', 'broken for a test');
  };
  assert.equal((await post('glm'))[0], 500);
  assert.equal((await post('glm'))[0], 500, 'it stays broken');
  assert.deepEqual(await post('qwen'), [200, before]);
  const health = await fetch(`${own.url}/health`);
  const report = (await health.json()) as { status: string; models: { queue: { mode: string } }[] };
  assert.deepEqual([health.status, report.status], [200, 'degraded']);
  assert.deepEqual(
    report.models.map(({ queue }) => queue.mode),
    ['accepting', 'broken'],
  );
});
