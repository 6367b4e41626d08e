/** The routes for kept sessions, over an admin with small parts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PlumblineError } from '../../src/errors.js';
import { SessionAdmin, type StoreAdmin } from '../../src/sessions/admin.js';
import { Containment, type Place } from '../../src/sessions/containment/contain.js';
import { Fences } from '../../src/sessions/containment/fences.js';
import { testServer } from '../support/http-app.js';

const SESSIONS = '/v1/plumbline/sessions';
const FILE = { 'content-type': 'application/vnd.plumbline.session' };

function server({ withStore = true, fail = false } = {}) {
  const fences = new Fences();
  const dropped: string[] = [];
  const bank: Place = {
    name: 'bank',
    step: 'F5',
    drop: () => ({}),
    remove(session) {
      if (fail) throw Object.assign(new Error('no'), { code: 'EROFS' });
      dropped.push(session);
      return { resident: 2 };
    },
  };
  const containment = new Containment({ fences, places: [bank], retryAfterMs: 100_000 });
  const imported: string[] = [];
  const store: StoreAdmin = {
    sessions: () => [{ session: 'a/b', checkpoints: 2, tokens: 40, bytes: 900, lanes: ['ar'], writtenAt: 1000 }],
    checkpoints: () => [{ id: '01', kind: 'turn', lane: 'ar', tokens: 40, bytes: 450, writtenAt: 1000 }],
    collect: async () => 3,
    exportSession: async () =>
      (async function* () {
        yield Uint8Array.of(1, 2);
        yield Uint8Array.of(3);
      })(),
    async importSession(file) {
      for await (const piece of file) imported.push(Buffer.from(piece).toString());
      if (imported.join('') === 'bad') throw new PlumblineError('session_file_invalid', 'a checksum does not hold');
      return { session: 'new', bytes: imported.join('').length };
    },
  };
  const admin = new SessionAdmin({
    containment,
    resident: () => [{ session: 'a/b', entries: 1, tokens: 30, bytes: 700 }],
    store: withStore ? store : undefined,
  });
  const http = testServer({}, undefined, admin);
  const ask = async (method: string, path: string, init: object = {}) => {
    const response = await http.app.request(path, { method, ...init });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  return { http, ask, fences, containment, dropped };
}

const session = {
  id: 'a/b',
  object: 'plumbline.session',
  state: 'ready',
  epoch: 0,
  resident: { entries: 1, tokens: 30, bytes: 700 },
  stored: { checkpoints: 2, tokens: 40, bytes: 900, lanes: ['ar'], written_at: '1970-01-01T00:00:01.000Z' },
};
const codeOf = (body: Record<string, unknown>): string => (body['error'] as { code: string }).code;

test('sessions are listed and shown, those that must start cold among them', async () => {
  const { ask, fences } = server();
  assert.deepEqual(await ask('GET', SESSIONS), { status: 200, body: { object: 'list', data: [session] } });
  const { body } = await ask('GET', `${SESSIONS}/a%2Fb`);
  const checkpoint = { id: '01', kind: 'turn', lane: 'ar', tokens: 40, bytes: 450 };
  assert.deepEqual(body, { ...session, checkpoints: [{ ...checkpoint, written_at: '1970-01-01T00:00:01.000Z' }] });
  fences.raise('cold one', { requestId: 'r' });
  fences.settle('cold one');
  const cold = { id: 'cold one', object: 'plumbline.session', state: 'cold', epoch: 1, resident: null, stored: null };
  assert.deepEqual((await ask('GET', SESSIONS)).body['data'], [session, cold]);
  assert.equal((await ask('GET', `${SESSIONS}/cold%20one`)).body['state'], 'cold');
});

test('a session is deleted by its id, by nobody else, and says what could not go yet', async () => {
  const { ask, dropped, fences } = server();
  const { status, body } = await ask('DELETE', `${SESSIONS}/a%2Fb`);
  assert.deepEqual([status, body['id'], body['deleted'], body['errors']], [200, 'a/b', true, []]);
  assert.equal((body['dropped'] as { resident: number }).resident, 2);
  assert.deepEqual([dropped, fences.epochOf('a/b'), fences.stateOf('a/b')], [['a/b'], 0, 'ready']);
  const unknown = await ask('DELETE', `${SESSIONS}/other`);
  assert.deepEqual([unknown.status, codeOf(unknown.body), fences.epochOf('other')], [404, 'session_not_found', 0]);
  const all = await ask('DELETE', SESSIONS);
  assert.deepEqual(
    (all.body['data'] as { id: string }[]).map(({ id }) => id),
    ['a/b'],
  );
  assert.deepEqual(dropped, ['a/b', 'a/b']);
  const failing = server({ fail: true });
  assert.deepEqual((await failing.ask('DELETE', `${SESSIONS}/a%2Fb`)).body['errors'], ['F5 bank: EROFS']);
  failing.containment.close();
});

test('a session leaves as a file and comes as one', async () => {
  const { http, ask } = server();
  const file = await http.get('/v1/plumbline/session-files/a%2Fb');
  assert.equal(file.headers.get('content-type'), FILE['content-type']);
  assert.deepEqual(new Uint8Array(await file.arrayBuffer()), Uint8Array.of(1, 2, 3));
  const taken = await ask('POST', SESSIONS, { headers: FILE, body: 'file' });
  assert.deepEqual(taken.body, { id: 'new', object: 'plumbline.session.imported', bytes: 4 });
  const bad = await server().ask('POST', SESSIONS, { headers: FILE, body: 'bad' });
  assert.deepEqual([bad.status, codeOf(bad.body)], [400, 'session_file_invalid']);
  const typed = await ask('POST', SESSIONS, { headers: { 'content-type': 'application/json' }, body: '{}' });
  assert.deepEqual([typed.status, codeOf(typed.body)], [415, 'unsupported_media_type']);
  assert.equal((await ask('GET', '/v1/plumbline/session-files/other')).status, 404);
});

test('a sweep says what went and what is still owed', async () => {
  const { ask } = server();
  const { body } = await ask('POST', `${SESSIONS}:collect`);
  assert.deepEqual(body, { object: 'plumbline.sessions.collected', files: 3, owed: 0 });
});

test('without sessions, or without a folder, the routes say which flag turns them on', async () => {
  for (const [method, path] of [
    ['GET', SESSIONS],
    ['DELETE', `${SESSIONS}/a`],
    ['POST', `${SESSIONS}:collect`],
  ] as const) {
    const response = await testServer().app.request(path, { method });
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    assert.deepEqual([response.status, error.code], [404, 'sessions_off']);
    assert.match(error.message, /--sessions on/);
  }
  const { ask } = server({ withStore: false });
  const { body } = await ask('GET', '/v1/plumbline/session-files/a%2Fb');
  assert.equal(codeOf(body), 'sessions_off');
  assert.match((body['error'] as { message: string }).message, /--session-dir/);
  assert.equal((await ask('PUT', SESSIONS)).status, 405);
});
