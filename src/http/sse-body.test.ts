import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { sseBody } from './sse-body.js';

const KIB64 = new Uint8Array(64 * 1024);

test('writes wait while the reader is behind, and go on when it reads', async () => {
  const { body, sink } = sseBody(() => undefined);
  let written = 0;
  const producer = (async () => {
    for (let piece = 0; piece < 4; piece++) {
      await sink.write(KIB64);
      written += 1;
    }
    sink.close();
  })();
  await turn();
  assert.equal(written, 0, 'the first piece fills the buffer');
  const reader = body.getReader();
  await reader.read();
  await turn();
  assert.equal(written, 1);
  for (let piece = 1; piece < 4; piece++) assert.equal((await reader.read()).value?.byteLength, KIB64.byteLength);
  assert.equal((await reader.read()).done, true);
  await producer;
});

test('a reader that cancels is reported once, and a waiting write settles', async () => {
  let cancels = 0;
  const { body, sink } = sseBody(() => (cancels += 1));
  const waiting = sink.write(KIB64);
  await body.cancel();
  await waiting;
  await sink.write(KIB64);
  sink.close();
  sink.destroy(new Error('late'));
  assert.equal(cancels, 1);
});

test('destroy errors the body when there is no connection, and breaks the connection when there is one', async () => {
  const plain = sseBody(() => undefined);
  plain.sink.destroy(new Error('gone'));
  await assert.rejects(plain.body.getReader().read(), /gone/);

  const broken: string[] = [];
  const wired = sseBody(
    () => undefined,
    (reason) => broken.push(reason.message),
  );
  const waiting = wired.sink.write(KIB64);
  wired.sink.destroy(new Error('gone'));
  await waiting;
  assert.deepEqual(broken, ['gone']);
});

test('a comment is dropped while bytes wait', async () => {
  const { body, sink } = sseBody(() => undefined);
  const reader = body.getReader();
  await sink.write(Uint8Array.of(1));
  sink.tryWrite(Uint8Array.of(2));
  assert.deepEqual((await reader.read()).value, Uint8Array.of(1));
  sink.tryWrite(Uint8Array.of(3));
  assert.deepEqual((await reader.read()).value, Uint8Array.of(3));
});
