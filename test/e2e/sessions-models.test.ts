/** Sessions of several models in one process: each keeps its own, under the same names, and all are seen together. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { embeddedModelFolder } from '../../src/http/package-info.js';
import { cli } from '../support/cli.js';
import { embeddedServer, type EmbeddedServer } from '../support/embedded-server.js';
import { temporaryFolder } from '../support/repository.js';

const SESSIONS = '/v1/plumbline/sessions';
const MODELS = ['left', 'right one'];

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly cached: number;
  readonly reason: string | null;
}

class TwoModels {
  /** Spoils the next row of logits, once. */
  spoils = false;
  #server: EmbeddedServer | undefined;

  constructor(readonly folder: string) {}

  get server(): EmbeddedServer {
    assert.ok(this.#server);
    return this.#server;
  }

  async start(): Promise<void> {
    this.#server = await embeddedServer(
      {
        model: MODELS.map((name) => `${name}=${embeddedModelFolder()}`),
        sessionDir: this.folder,
        sessionRamMib: 64,
        sessionMinFreeMib: 0,
      },
      {
        rowHook: (row) => {
          if (this.spoils) row.fill(NaN);
          this.spoils = false;
        },
      },
    );
  }

  async stop(): Promise<void> {
    await this.#server?.close();
    this.#server = undefined;
  }

  /** @param before the answer that the conversation goes on behind; default: it begins */
  async ask(model: string, session: string, before?: Answer): Promise<Answer> {
    const question = { role: 'user', content: 'What does fs.readFile do?' };
    const messages = [question, ...(before ? [{ role: 'assistant', content: before.text }, question] : [])];
    const body = { model, messages, seed: 3, max_tokens: 4 };
    const response = await this.server.post('/v1/chat/completions', body, { headers: { 'x-session-id': session } });
    const json = (await response.json()) as {
      choices?: { message: { content: string } }[];
      usage?: { prompt_tokens_details: { cached_tokens: number } };
      plumbline?: { session: { reason: string | null } };
    };
    return {
      status: response.status,
      text: json.choices?.[0]?.message.content ?? '',
      cached: json.usage?.prompt_tokens_details.cached_tokens ?? 0,
      reason: json.plumbline?.session.reason ?? null,
    };
  }

  async flush(): Promise<void> {
    for (const { sessions } of this.server.models) await sessions.store?.flush(10_000);
  }

  async api(method: string, path: string, body?: Buffer): Promise<{ status: number; json: Json; bytes: Buffer }> {
    const headers = body === undefined ? {} : { 'content-type': 'application/vnd.plumbline.session' };
    const response = await fetch(this.server.url + path, { method, headers, ...(body !== undefined && { body }) });
    const bytes = Buffer.from(await response.arrayBuffer());
    const isJson = response.headers.get('content-type')?.startsWith('application/json') === true;
    return { status: response.status, json: isJson ? (JSON.parse(bytes.toString()) as Json) : {}, bytes };
  }

  /** Which models keep which sessions. */
  async kept(): Promise<string[]> {
    const { json } = await this.api('GET', SESSIONS);
    return (json.data ?? []).map(({ id, model }) => `${model} ${id}`).sort();
  }
}

interface Json {
  readonly data?: readonly { readonly id: string; readonly model: string }[];
  readonly error?: { readonly code: string; readonly message: string; readonly param: string | null };
  readonly id?: string;
  readonly model?: string;
  readonly errors?: readonly string[];
}

async function served(t: TestContext): Promise<TwoModels> {
  const two = new TwoModels(join(temporaryFolder(t, 'models'), 'sessions'));
  t.after(() => two.stop());
  await two.start();
  return two;
}

test('one name is a session of each model; one is chosen by ?model=, and all are dropped without it', async (t) => {
  const two = await served(t);
  const cold = await two.ask('left', 'same');
  assert.deepEqual([(await two.ask('right one', 'same')).cached, cold.cached], [0, 0], 'nothing is shared');
  assert.ok((await two.ask('left', 'same')).cached > 0);
  await two.ask('right one', 'own');
  await two.flush();
  assert.deepEqual(await two.kept(), ['left same', 'right one own', 'right one same']);
  assert.deepEqual(readdirSync(two.folder).sort(), ['left', 'right%20one'], 'a folder for each');

  const unclear = await two.api('GET', `${SESSIONS}/same`);
  assert.deepEqual(
    [unclear.status, unclear.json.error?.code, unclear.json.error?.param],
    [400, 'invalid_request', 'model'],
  );
  assert.match(unclear.json.error!.message, /'left', 'right one'/);
  assert.equal((await two.api('GET', `${SESSIONS}/own`)).json.model, 'right one', 'only one has it');
  assert.equal((await two.api('GET', `${SESSIONS}/same?model=left`)).json.model, 'left');
  const unknown = await two.api('GET', `${SESSIONS}/same?model=none`);
  assert.deepEqual([unknown.status, unknown.json.error?.code], [400, 'invalid_request']);
  assert.equal((await two.api('GET', `${SESSIONS}/own?model=left`)).status, 404);

  assert.equal((await two.api('GET', '/v1/plumbline/session-files/same')).status, 400);
  const { bytes } = await two.api('GET', '/v1/plumbline/session-files/same?model=left');
  assert.deepEqual((await two.api('DELETE', `${SESSIONS}/same?model=left`)).json.errors, []);
  assert.deepEqual(await two.kept(), ['right one own', 'right one same']);
  assert.equal((await two.api('POST', SESSIONS, bytes)).status, 400, 'whose it shall be is not said');
  assert.equal((await two.api('POST', `${SESSIONS}?model=left`, bytes)).json.id, 'same');
  assert.ok((await two.ask('left', 'same', cold)).cached > 0);
  assert.equal((await two.api('DELETE', `${SESSIONS}/same`)).status, 200);
  assert.deepEqual(await two.kept(), ['right one own']);
});

test('a failure drops the session of its model alone', async (t) => {
  const two = await served(t);
  for (const model of MODELS) await two.ask(model, 'same');
  await two.flush();
  two.spoils = true;
  assert.equal((await two.ask('left', 'same')).status, 500);
  const other = await two.ask('right one', 'same');
  assert.ok(other.cached > 0);
  const retry = await two.ask('left', 'same');
  assert.deepEqual([retry.cached, retry.reason, retry.text], [0, 'session_fenced', other.text]);
  const metrics = (await two.api('GET', '/metrics')).bytes.toString();
  assert.match(metrics, /^plumbline_containments_total 1$/m);
});

test('commands find the models of a folder, of a running server and of a stopped one, by --of', async (t) => {
  const two = await served(t);
  for (const model of MODELS) await two.ask(model, 'same');
  await two.flush();
  const at = ['--session-dir', two.folder];
  const running = await cli(['sessions', 'show', 'same', ...at, '--of', 'right one', '--json']);
  assert.equal((JSON.parse(running.out) as Json).model, 'right one', running.err);
  const before = await two.ask('left', 'same');
  const next = await two.ask('left', 'uninterrupted', before);
  await two.flush();
  await two.stop();

  const unclear = await cli(['sessions', 'ls', ...at]);
  assert.equal(unclear.code, 2);
  assert.match(unclear.err, /--of: left, right one/);
  assert.match((await cli(['sessions', 'ls', ...at, '--of', 'left'])).out, /^same +ready/m);
  assert.equal((await cli(['sessions', 'rm', 'same', ...at, '--of', 'right one'])).code, 0);
  assert.match((await cli(['sessions', 'ls', '--session-dir', join(two.folder, 'right%20one')])).out, /no sessions/);
  assert.ok(!existsSync(join(two.folder, 'lock')), 'nothing is written beside the folders of the models');

  await two.start();
  const after = [await two.ask('left', 'same', before), await two.ask('right one', 'same', before)];
  assert.deepEqual(
    after.map(({ cached, text }) => [cached > 0, text]),
    [
      [true, next.text],
      [false, next.text],
    ],
  );
});
