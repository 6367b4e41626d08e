/**
 * Invalid rows of logits, planted where the engine hands a row to the validity check, through HTTP and the official
 * client: an error with the census, no token of the row, and a server that serves the next request as if nothing had
 * been. The plant is a seam of the composition that no flag, variable or public function reaches.
 */
import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';
import { APIError } from 'openai';
import type { TestSeams } from '../../src/http/open-model.js';
import { embeddedModelFolder } from '../../src/http/package-info.js';
import { readEvents } from '../support/http-app.js';
import { embeddedServer, MODEL, withEmbeddedServer, type EmbeddedServer } from '../support/embedded-server.js';
import { invalidRows, type InvalidRow } from '../support/invalid-rows.js';

const VOCABULARY = 4096;

const PLANTS = invalidRows(VOCABULARY);

/** What to put into which row of the next request; undefined: nothing. */
let planted:
  { readonly plant: Pick<InvalidRow, 'fill'>; readonly step: number; readonly requestId?: string } | undefined;
/** Steps of the rows that were handed to the check. */
const steps: number[] = [];
const rowHook: TestSeams['rowHook'] = (row, context, { requestId }) => {
  assert.equal(row.length, VOCABULARY);
  steps.push(context.step);
  if (planted?.step === context.step && requestId === (planted.requestId ?? requestId)) planted.plant.fill(row);
};

let server: EmbeddedServer;
before(async () => {
  server = await embeddedServer({}, { rowHook });
});
after(async () => server.close(0));

/** Every path of the sampler law sees each plant. */
const SETTINGS = [
  { temperature: 0 },
  { temperature: 0.6, top_p: 0.95, top_k: 20 },
  { temperature: 1, top_p: 1, top_k: 20 },
  { temperature: 1, top_p: 1, top_k: 0 },
] as const;

const ask = {
  model: MODEL,
  messages: [{ role: 'user' as const, content: 'Write a function that adds two numbers.' }],
  max_tokens: 12,
  seed: 11,
};

async function healthyText(settings: object): Promise<string> {
  planted = undefined;
  const response = await server.post('/v1/chat/completions', { ...ask, ...settings });
  assert.equal(response.status, 200);
  return ((await response.json()) as { choices: { message: { content: string } }[] }).choices[0]?.message.content ?? '';
}

for (const { name, fill, nan, inf } of PLANTS) {
  test(`${name}: 500 or one error frame with the census, no token of the row, and the next request is served`, async () => {
    for (const settings of SETTINGS) {
      const expected = await healthyText(settings);
      for (const step of [0, 1, 8]) {
        const site = step === 0 ? 'prefill_frontier' : 'ar_step';
        planted = { plant: { fill }, step };
        steps.length = 0;
        const whole = await server.post('/v1/chat/completions', { ...ask, ...settings });
        const body = (await whole.json()) as {
          error: { code: string; message: string; plumbline: { census: object } };
          choices?: unknown;
        };
        assert.deepEqual([whole.status, body.error.code, body.choices], [500, 'non_finite_logits', undefined]);
        assert.match(body.error.message, new RegExp(`at ${site} .*${nan} NaN and ${inf} infinite of ${VOCABULARY}`));
        const phase = step === 0 ? 'prefill' : 'decode';
        assert.deepEqual(body.error.plumbline.census, { site, phase, step, nan, inf, vocab: VOCABULARY });
        assert.equal(steps.at(-1), step, 'no forward and no draw after the failure');

        const streamed = await readEvents(
          await server.post('/v1/chat/completions', { ...ask, ...settings, stream: true }),
        );
        assert.equal(streamed.done, false);
        const chunks = streamed.events as {
          error?: { code: string };
          choices?: { delta: { content?: string }; finish_reason: string | null }[];
        }[];
        assert.equal(chunks.filter((chunk) => chunk.error !== undefined).length, 1);
        assert.equal(chunks.at(-1)?.error?.code, 'non_finite_logits');
        assert.ok(chunks.every((chunk) => (chunk.choices?.[0]?.finish_reason ?? null) === null));
        const text = chunks.map((chunk) => chunk.choices?.[0]?.delta.content ?? '').join('');
        assert.ok(expected.startsWith(text), 'what was sent before is what an undisturbed run sends');
        if (step === 0) assert.equal(text, '');

        const completion = await server.post('/v1/completions', {
          model: MODEL,
          prompt: 'const a = ',
          max_tokens: 12,
          ...settings,
        });
        assert.equal(completion.status, 500);
        await completion.body?.cancel();
      }
      assert.equal(await healthyText(settings), expected, 'the next request is as before');
    }
  });
}

const isNonFinite = (thrown: unknown): boolean => thrown instanceof APIError && thrown.code === 'non_finite_logits';

test('the official client throws on it: whole answer, raw stream and stream helper', async () => {
  for (const { fill } of PLANTS) {
    for (const step of [0, 3]) {
      planted = { plant: { fill }, step };
      await assert.rejects(server.client.chat.completions.create(ask), isNonFinite);
      await assert.rejects(async () => {
        for await (const chunk of await server.client.chat.completions.create({ ...ask, stream: true }))
          assert.ok(chunk);
      }, isNonFinite);
      await assert.rejects(server.client.chat.completions.stream(ask).finalChatCompletion(), isNonFinite);
    }
  }
  assert.notEqual(await healthyText({}), '');
});

test('R5: a mask beside finite entries is no failure, and only its finite ids are drawn', async () => {
  const fill = (row: Float32Array): void => {
    row.fill(-Infinity);
    row[1] = 2;
    row[3] = 1;
  };
  planted = { plant: { fill }, step: 0 };
  const greedy = await server.client.chat.completions.create({
    ...ask,
    temperature: 0,
    max_tokens: 1,
    logprobs: true,
    top_logprobs: 2,
  });
  const [first] = greedy.choices[0]?.logprobs?.content ?? [];
  assert.equal(first?.top_logprobs.length, 2);
  assert.ok(Math.abs((first?.logprob ?? 0) + Math.log(1 + Math.exp(-1))) < 1e-6);
  const drawn = new Set<string>();
  for (let seed = 0; seed < 40; seed++) {
    const answer = await server.client.chat.completions.create({
      ...ask,
      temperature: 1,
      top_p: 1,
      max_tokens: 1,
      logprobs: true,
      seed,
    });
    drawn.add(answer.choices[0]?.logprobs?.content?.[0]?.token ?? '');
  }
  assert.equal(drawn.size, 2, 'ids 1 and 3');
  planted = undefined;
});

test('a failing request does not touch a neighbour that runs in the same batch', async () => {
  const settings = { temperature: 0.8, max_tokens: 40 };
  const expected = await healthyText(settings);
  planted = { plant: { fill: (row) => row.fill(NaN) }, step: 5, requestId: 'doomed' };
  const neighbours = [0, 1].map(async () => server.post('/v1/chat/completions', { ...ask, ...settings }));
  const doomed = server.post(
    '/v1/chat/completions',
    { ...ask, ...settings },
    { headers: { 'x-request-id': 'doomed' } },
  );
  assert.equal((await doomed).status, 500);
  for (const neighbour of await Promise.all(neighbours)) {
    const body = (await neighbour.json()) as { choices: { message: { content: string } }[] };
    assert.equal(body.choices[0]?.message.content, expected);
  }
});

/** A copy of the embedded checkpoint in which the first element of one bfloat16 tensor is NaN. */
async function checkpointWithNaN(t: TestContext, tensor: string): Promise<string> {
  const source = embeddedModelFolder();
  const folder = await mkdtemp(join(tmpdir(), 'plumbline-nan-'));
  t.after(async () => rm(folder, { recursive: true }));
  for (const file of await readdir(source)) {
    if (file !== 'model.safetensors') await symlink(join(source, file), join(folder, file));
  }
  const bytes = await readFile(join(source, 'model.safetensors'));
  const headerLength = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + headerLength)) as Record<
    string,
    { dtype: string; data_offsets: [number, number] }
  >;
  const entry = header[tensor];
  assert.equal(entry?.dtype, 'BF16');
  bytes.writeUInt16LE(0x7fc0, 8 + headerLength + entry.data_offsets[0]);
  await writeFile(join(folder, 'model.safetensors'), bytes);
  return folder;
}

test('a NaN in a weight is found by the same check, streamed or not; a healthy model beside it is untouched', async (t) => {
  const places = [
    'lm_head.weight',
    'model.language_model.hyper_connection_mixer.hc_norm.weight',
    'model.language_model.layers.3.mlp.gate.weight',
  ];
  for (const tensor of places) {
    const broken = await withEmbeddedServer(t, { model: await checkpointWithNaN(t, tensor), modelId: MODEL });
    for (const round of [1, 2]) {
      await assert.rejects(broken.client.chat.completions.create(ask), isNonFinite, `${tensor}, round ${round}`);
      const { events, done } = await readEvents(await broken.post('/v1/chat/completions', { ...ask, stream: true }));
      assert.equal(done, false);
      assert.equal(events.length, 2, 'the role, then the error');
      const { error } = events[1] as { error: { code: string; plumbline: { census: { nan: number } } } };
      assert.equal(error.code, 'non_finite_logits');
      assert.ok(
        tensor === 'lm_head.weight' ? error.plumbline.census.nan === 1 : error.plumbline.census.nan === VOCABULARY,
      );
    }
    assert.equal((await fetch(`${broken.url}/health`)).status, 200, 'the server stays usable');
  }
  assert.notEqual(await healthyText({}), '');
});
