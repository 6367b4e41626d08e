import assert from 'node:assert/strict';
import { copyFileSync, openSync, closeSync, statSync, utimesSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as elapsed } from 'node:timers/promises';
import { temporaryFolder } from '../../test/support/repository.js';
import type { Checkpoint } from './checkpoint.js';
import { contentHash, weightFiles } from './content-hash.js';

const files = (...paths: string[]) => weightFiles({ files: paths.map((path) => ({ path })) } as unknown as Checkpoint);

function weights(t: TestContext): { readonly a: string; readonly b: string; readonly folder: string } {
  const folder = temporaryFolder(t, 'hash');
  const [a, b] = [join(folder, 'a'), join(folder, 'b')];
  writeFileSync(a, Buffer.alloc(3 << 20, 7));
  writeFileSync(b, Buffer.alloc(100, 9));
  return { a, b, folder };
}

function flip(path: string, at: number): void {
  const { atime, mtime } = statSync(path);
  const fd = openSync(path, 'r+');
  writeSync(fd, Buffer.of(8), 0, 1, at);
  closeSync(fd);
  utimesSync(path, atime, mtime); // as if nothing had been written
}

test('the same bytes have the same name under other names and in another order, and every byte counts', async (t) => {
  const { a, b, folder } = weights(t);
  const { hash, bytesRead } = await contentHash(files(a, b), new Map());
  assert.equal(bytesRead, (3 << 20) + 100);
  const copy = join(folder, 'copy');
  copyFileSync(a, copy);
  assert.equal((await contentHash(files(b, copy), new Map())).hash, hash);
  flip(copy, (3 << 19) + 12345);
  assert.notEqual((await contentHash(files(b, copy), new Map())).hash, hash);
});

test('a file is read once; a write in place, with its times put back, is read again; one just written is not relied on', async (t) => {
  const { a } = weights(t);
  assert.equal((await contentHash(files(a), new Map())).known.size, 0, 'written a moment ago');
  await elapsed(3100);
  const first = await contentHash(files(a), new Map());
  assert.equal(first.known.size, 1);
  const again = await contentHash(files(a), first.known);
  assert.deepEqual([again.hash, again.bytesRead], [first.hash, 0]);
  flip(a, 2 << 20);
  const edited = await contentHash(files(a), first.known);
  assert.equal(edited.bytesRead, 3 << 20);
  assert.notEqual(edited.hash, first.hash);
});

test('a file that changed since it was loaded, or is cut or gone, gives no name; reading can be stopped', async (t) => {
  const { a, b } = weights(t);
  const loaded = files(a, b);
  flip(a, 5);
  await assert.rejects(contentHash(loaded, new Map()), { code: 'checkpoint_unreadable', message: /a has changed/ });
  await assert.rejects(contentHash(files(b), new Map(), AbortSignal.abort()), { code: 'request_cancelled' });
  assert.throws(() => files(join(a, 'missing')), { code: 'checkpoint_unreadable' });
});
