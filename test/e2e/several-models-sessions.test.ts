/** Sessions of several models in one process: the same name on both, and what is one model's alone. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { SessionBlock } from '../../src/api/session-block.js';
import { main } from '../../src/cli/program.js';
import type { GivenOptions } from '../../src/config.js';
import { RowSpoiler } from '../support/contained-server.js';
import { embeddedServer, type EmbeddedServer } from '../support/embedded-server.js';
import { EMBEDDED_MODEL, temporaryFolder } from '../support/repository.js';

/** The second is no name of a folder as it is. */
const MODELS = ['one', '.two b'] as const;
const [ONE, TWO] = MODELS;
const SESSIONS = '/v1/plumbline/sessions';
const FILE = 'application/vnd.plumbline.session';

interface Listed {
  readonly id: string;
  readonly model: string;
  readonly state: string;
  readonly stored: { readonly checkpoints: number } | null;
}

interface Served {
  readonly server: EmbeddedServer;
  readonly spoiler: RowSpoiler;
  close(): Promise<void>;
}

async function open(t: TestContext, folder: string, options: GivenOptions = {}): Promise<Served> {
  const spoiler = new RowSpoiler();
  const model = MODELS.map((name) => `${name}=${EMBEDDED_MODEL}`);
  const server = await embeddedServer(
    { model, sessionDir: folder, sessionMinFreeMib: 0, sessionRamMib: 64, context: 512, threads: 1, ...options },
    { rowHook: spoiler.hook },
  );
  let closed: Promise<void> | undefined;
  const close = async (): Promise<void> => (closed ??= server.close(0));
  t.after(close);
  return { server, spoiler, close };
}

interface Said {
  readonly status: number;
  readonly text: string;
  readonly cached: number;
  readonly session: SessionBlock | undefined;
}

async function ask({ server }: Served, model: string, session: string, more: object = {}): Promise<Said> {
  const messages = [{ role: 'user', content: `${session}. What does fs.readFile do?` }];
  const body = { model, messages, temperature: 0, max_tokens: 6, ...more };
  const response = await server.post('/v1/chat/completions', body, { headers: { 'x-session-id': session } });
  const json = (await response.json()) as {
    choices?: { message: { content: string } }[];
    usage?: { prompt_tokens_details: { cached_tokens: number } };
    plumbline?: { session: SessionBlock };
  };
  return {
    status: response.status,
    text: json.choices?.[0]?.message.content ?? '',
    cached: json.usage?.prompt_tokens_details.cached_tokens ?? 0,
    session: json.plumbline?.session,
  };
}

async function flush({ server }: Served): Promise<void> {
  for (const { sessions } of server.models) await sessions.store!.flush(10_000);
}

/** The same name on both models, and one that the first alone has. */
async function talked(t: TestContext): Promise<{ readonly served: Served; readonly folder: string }> {
  const folder = temporaryFolder(t, 'several');
  const served = await open(t, folder);
  for (const model of MODELS) await ask(served, model, 'both');
  await ask(served, ONE, 'lone');
  await flush(served);
  return { served, folder };
}

async function wire(
  { server }: Served,
  method: string,
  path: string,
  init: RequestInit = {},
): Promise<[number, Record<string, unknown>]> {
  const response = await fetch(server.url + path, { method, ...init });
  return [response.status, (await response.json()) as Record<string, unknown>];
}

const of = (model: string): string => `?model=${encodeURIComponent(model)}`;
const errorOf = ([status, { error }]: [number, Record<string, unknown>]) => {
  const { code, message, param } = error as { code: string; message: string; param: string | null };
  return { status, code, message, param };
};

async function listed(served: Served, query = ''): Promise<readonly string[]> {
  const [status, { data }] = await wire(served, 'GET', SESSIONS + query);
  assert.equal(status, 200);
  return (data as Listed[]).map(({ model, id, state }) => `${model} ${id} ${state}`);
}

async function command(...args: readonly string[]) {
  let [out, err] = ['', ''];
  const code = await main(['sessions', ...args], {
    out: (text) => (out += text),
    err: (text) => (err += text),
    errIsTerminal: false,
    inIsTerminal: true,
    readInput: async () => '',
    environment: {},
    onInterrupt: () => () => undefined,
  });
  return { code, out, err };
}

test('the same id on two models is two sessions: listed, shown and removed by model, or both at once', async (t) => {
  const { served } = await talked(t);
  assert.deepEqual(await listed(served), ['one both ready', 'one lone ready', '.two b both ready']);
  assert.deepEqual(await listed(served, of(TWO)), ['.two b both ready']);
  const ambiguous = errorOf(await wire(served, 'GET', `${SESSIONS}/both`));
  assert.deepEqual([ambiguous.status, ambiguous.code, ambiguous.param], [400, 'invalid_request', 'model']);
  for (const model of MODELS) assert.ok(ambiguous.message.includes(`'${model}'`), ambiguous.message);
  for (const model of MODELS) {
    const [status, shown] = await wire(served, 'GET', `${SESSIONS}/both${of(model)}`);
    assert.deepEqual([status, shown['model'], shown['id']], [200, model, 'both']);
  }
  const [, lone] = await wire(served, 'GET', `${SESSIONS}/lone`);
  assert.equal(lone['model'], ONE, 'nothing to be asked where one model alone has it');
  assert.equal(errorOf(await wire(served, 'GET', `${SESSIONS}/lone${of(TWO)}`)).code, 'session_not_found');
  assert.equal(errorOf(await wire(served, 'GET', `${SESSIONS}/both?model=three`)).code, 'invalid_request');

  assert.equal((await wire(served, 'DELETE', `${SESSIONS}/both${of(ONE)}`))[0], 200);
  assert.deepEqual(await listed(served), ['one lone ready', '.two b both ready']);
  assert.equal((await ask(served, TWO, 'both')).session?.restore, 'restored');
  assert.equal((await ask(served, ONE, 'both')).session?.reason, 'no_entry');
  await flush(served);
  let stored = 0;
  for (const model of MODELS) {
    const [, shown] = await wire(served, 'GET', `${SESSIONS}/both${of(model)}`);
    const { length } = shown['checkpoints'] as readonly unknown[];
    assert.ok(length > 0);
    stored += length;
  }
  const [, removed] = await wire(served, 'DELETE', `${SESSIONS}/both`);
  assert.equal((removed['dropped'] as Record<string, number>)['checkpoints'], stored, 'on both');
  assert.deepEqual(await listed(served), ['one lone ready']);
  await ask(served, TWO, 'both');
  assert.equal((await wire(served, 'DELETE', SESSIONS + of(ONE)))[0], 200);
  assert.deepEqual(await listed(served), ['.two b both ready']);
  assert.equal((await wire(served, 'POST', `${SESSIONS}:collect${of(TWO)}`))[0], 200);
  assert.equal((await wire(served, 'POST', `${SESSIONS}:collect`))[0], 200);
});

test('a session goes from one model to its namesake elsewhere only where it is said', async (t) => {
  const { served } = await talked(t);
  const files = '/v1/plumbline/session-files';
  assert.equal(errorOf(await wire(served, 'GET', `${files}/both`)).code, 'invalid_request');
  const file = await (await fetch(`${served.server.url}${files}/lone`)).arrayBuffer();
  const named = await (await fetch(`${served.server.url}${files}/lone${of(ONE)}`)).arrayBuffer();
  assert.deepEqual(Buffer.from(named), Buffer.from(file));
  const init = { headers: { 'content-type': FILE }, body: file };
  const nowhere = errorOf(await wire(served, 'POST', SESSIONS, init));
  assert.deepEqual([nowhere.status, nowhere.code, nowhere.param], [400, 'invalid_request', 'model']);
  assert.equal((await wire(served, 'POST', SESSIONS + of(TWO), init))[0], 200);
  assert.deepEqual(await listed(served, of(TWO)), ['.two b both ready', '.two b lone ready']);
  assert.equal((await ask(served, TWO, 'lone')).session?.from ?? 'nothing', 'nothing', 'a turn alone is longer');
});

test('a failure on one model leaves the namesake on the other, in memory, on disk and over a restart', async (t) => {
  const { served, folder } = await talked(t);
  const bytesOf = (model: string): string[] => {
    const { store } = served.server.models.find(({ served: { id } }) => id === model)!.sessions;
    return store!.entries('both').map(({ id }) => readFileSync(store!.folder.checkpointPath(id)).toString('base64'));
  };
  const before = bytesOf(TWO);
  assert.equal(before.length, 1);
  served.spoiler.aim('both', { site: 'ar_step', nth: 0 }, { fill: (row) => row.fill(NaN) });
  assert.equal((await ask(served, ONE, 'both')).status, 500);
  served.spoiler.rest();
  assert.deepEqual(await listed(served), ['one both cold', 'one lone ready', '.two b both ready']);
  assert.deepEqual([bytesOf(ONE), bytesOf(TWO)], [[], before]);
  const warm = await ask(served, TWO, 'both');
  assert.deepEqual([warm.session?.restore, warm.session?.from], ['restored', 'ram']);
  const contained = served.server.models.map(({ sessions }) => sessions.containment!.counts.containments);
  assert.deepEqual(contained, [1, 0]);
  await served.close();
  const again = await open(t, folder);
  assert.deepEqual(await listed(again), ['one both cold', 'one lone ready', '.two b both ready']);
  const cold = await ask(again, ONE, 'both');
  assert.deepEqual([cold.cached, cold.session?.reason, cold.text], [0, 'session_fenced', warm.text]);
});

test('the commands ask the server of a folder of several models, and after it has stopped the folder of one', async (t) => {
  const { served, folder } = await talked(t);
  const at = ['--session-dir', folder];
  const running = await command('ls', ...at);
  assert.match(running.out, /^MODEL +SESSION/);
  assert.match(running.out, /^"\.two b" +both +ready/m);
  assert.doesNotMatch((await command('ls', ...at, '--of', ONE)).out, /two b|MODEL/);
  assert.match((await command('show', 'both', ...at)).err, /say which model is meant.*--of/);
  assert.match((await command('show', 'both', ...at, '--of', TWO)).out, /both +ready/);
  assert.match((await command('ls', ...at, '--of', 'three')).err, /no model 'three' keeps sessions here/);
  await served.close();

  assert.deepEqual(readdirSync(folder).sort(), ['%2Etwo%20b', 'one']);
  const silent = await command('ls', ...at);
  assert.deepEqual([silent.code, silent.out], [2, '']);
  assert.match(silent.err, /say whose are meant with --of: \.two b, one/);
  assert.match((await command('ls', ...at, '--of', 'three')).err, /--of: \.two b, one/);
  assert.match((await command('ls', ...at, '--of', ONE)).out, /both.*\nlone/);
  const file = join(temporaryFolder(t, 'several'), 'file');
  assert.equal((await command('export', 'lone', file, ...at, '--of', ONE)).code, 0);
  assert.equal((await command('import', file, ...at, '--of', TWO)).code, 0);
  assert.match((await command('rm', '--all', ...at, '--of', ONE)).out, /both: .*\nlone: /);
  assert.match((await command('ls', ...at, '--of', TWO)).out, /both.*\nlone/);
  const again = await open(t, folder);
  assert.match((await command('rm', '--all', ...at)).out, /^both: dropped 0 in memory, 1 on disk\nlone: /);
  await ask(again, ONE, 'both');
  await ask(again, TWO, 'both');
  const all = await command('rm', '--all', ...at);
  assert.deepEqual([all.code, all.out.trim().split('\n').length], [0, 1], all.err);
  assert.deepEqual(await listed(again), []);
});

test('a folder of one model is not one of several, nor the other way round', async (t) => {
  const folder = temporaryFolder(t, 'several');
  const single = await embeddedServer({ sessionDir: folder, threads: 1, context: 256 });
  await single.close(0);
  await assert.rejects(open(t, folder), { code: 'session_store_unusable', message: /is that of one model/ });
  const several = temporaryFolder(t, 'several');
  await (await open(t, several, { context: 256 })).close();
  const refused = embeddedServer({ sessionDir: several, threads: 1, context: 256 });
  await assert.rejects(refused, { code: 'session_store_unusable', message: /folders of several models/ });
});
