/** Who may call: API key, browser origins, host names. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testServer } from '../support/http-app.js';

const ask = { model: 'fake', messages: [{ role: 'user', content: 'hi' }] };
const CHAT = '/v1/chat/completions';

const codeOf = async (response: Response): Promise<unknown> =>
  ((await response.json()) as { error: { code: string } }).error.code;

test('with a key, every route but a short /health needs it, in either header', async () => {
  const server = testServer({ apiKey: 'sesame' });
  for (const path of ['/', '/v1/models', '/metrics', '/nowhere']) {
    const response = await server.get(path);
    assert.deepEqual([path, response.status, await codeOf(response)], [path, 401, 'unauthorized']);
    assert.equal(response.headers.get('www-authenticate'), 'Bearer');
  }
  for (const headers of [
    {},
    { authorization: 'Bearer wrong' },
    { authorization: 'Bearer ' },
    { authorization: 'Basic c2VzYW1l' },
    { 'x-api-key': 'sesam' },
  ]) {
    assert.equal((await server.post(CHAT, ask, headers as Record<string, string>)).status, 401);
  }
  assert.equal(server.model.submitted.length, 0);
  assert.equal((await server.post(CHAT, ask, { authorization: 'Bearer sesame' })).status, 200);
  assert.equal((await server.post(CHAT, ask, { 'x-api-key': 'sesame' })).status, 200);
  assert.deepEqual(await (await server.get('/health')).json(), { status: 'ok' });
  const full = (await (await server.get('/health', { authorization: 'Bearer sesame' })).json()) as object;
  assert.ok('version' in full);
});

test('a wrong key is refused before the body is read', async () => {
  const server = testServer({ apiKey: 'sesame' });
  assert.equal(await codeOf(await server.post(CHAT, '{broken')), 'unauthorized');
});

test('no page may call by default; a client without an origin may', async () => {
  const server = testServer();
  const response = await server.post(CHAT, ask, { origin: 'https://evil.example' });
  assert.deepEqual([response.status, await codeOf(response)], [403, 'forbidden_origin']);
  assert.equal(response.headers.get('access-control-allow-origin'), null);
  assert.equal((await server.post(CHAT, ask, { origin: 'null' })).status, 403);
  assert.equal((await server.post(CHAT, ask)).status, 200);
});

test('an allowed origin gets its headers, on answers, errors and preflights; another does not', async () => {
  const server = testServer({ corsOrigins: ['https://app.example'], apiKey: 'sesame' });
  const origin = 'https://app.example';
  const preflight = await server.app.request(CHAT, {
    method: 'OPTIONS',
    headers: {
      origin,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization, x-stainless-os',
    },
  });
  assert.equal(preflight.status, 204, 'a preflight carries no key');
  assert.equal(preflight.headers.get('access-control-allow-origin'), origin);
  assert.equal(preflight.headers.get('access-control-allow-headers'), 'authorization, x-stainless-os');
  const good = await server.post(CHAT, ask, { origin, authorization: 'Bearer sesame' });
  assert.deepEqual(
    [good.status, good.headers.get('access-control-allow-origin'), good.headers.get('vary')],
    [200, origin, 'Origin'],
  );
  const bad = await server.post(CHAT, '{', { origin, authorization: 'Bearer sesame' });
  assert.deepEqual([bad.status, bad.headers.get('access-control-allow-origin')], [400, origin]);
  assert.equal(
    (await server.post(CHAT, ask, { origin: 'https://app.example.evil', authorization: 'Bearer sesame' })).status,
    403,
  );
  assert.equal(
    (await testServer({ corsOrigins: ['*'] }).post(CHAT, ask, { origin })).headers.get('access-control-allow-origin'),
    '*',
  );
});

test('on loopback only local names are taken, so that no page can rebind its own name to this machine', async () => {
  const server = testServer({ allowedHosts: ['box.lan'] });
  for (const host of [
    'localhost',
    'localhost:8080',
    '127.0.0.1:8080',
    '[::1]:8080',
    'LOCALHOST',
    'localhost.',
    'box.lan',
    'box.lan:80',
  ]) {
    assert.equal((await server.get('/health', { host })).status, 200, host);
  }
  for (const host of [
    'evil.example',
    'evil.example:8080',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'user@localhost',
    '',
    'box.lan.evil',
    '[::2]',
  ]) {
    const response = await server.get('/health', { host });
    assert.deepEqual([host, response.status, await codeOf(response)], [host, 403, 'forbidden_host']);
  }
  assert.equal((await testServer({ listenHost: '0.0.0.0' }).get('/health', { host: 'any.example' })).status, 200);
  assert.equal(
    (await testServer({ listenHost: '0.0.0.0', allowedHosts: ['a.example'] }).get('/health', { host: 'b.example' }))
      .status,
    403,
  );
});

test('a plain id of the client is used for the request, anything else is replaced', async () => {
  const server = testServer();
  assert.equal(
    (await server.get('/health', { 'x-request-id': 'trace-1:a.b_c' })).headers.get('x-request-id'),
    'trace-1:a.b_c',
  );
  for (const id of ['a b', 'x'.repeat(129), '<script>']) {
    assert.match(
      (await server.get('/health', { 'x-request-id': id })).headers.get('x-request-id') ?? '',
      /^req_[0-9a-f]{32}$/,
    );
  }
});

test('a route that is not there, or not for this method, says what is', async () => {
  const server = testServer();
  const missing = await server.get('/v1/chat');
  const { error } = (await missing.json()) as { error: { code: string; message: string } };
  assert.deepEqual([missing.status, error.code], [404, 'route_not_found']);
  assert.ok(error.message.includes('POST /v1/chat/completions') && error.message.includes('GET /v1/models/:id'));
  for (const [path, method, allow] of [
    ['/v1/chat/completions', 'GET', 'POST'],
    ['/v1/models', 'POST', 'GET, HEAD'],
    ['/v1/models/fake', 'DELETE', 'GET, HEAD'],
    ['/health', 'PUT', 'GET, HEAD'],
  ] as const) {
    const response = await server.app.request(path, { method });
    assert.deepEqual(
      [response.status, response.headers.get('allow'), await codeOf(response)],
      [405, allow, 'method_not_allowed'],
    );
  }
});
