/** Two processes at one folder, a process that died, a clock that goes backwards, many small entries, and no room. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { test } from 'node:test';
import { setTimeout as elapsed } from 'node:timers/promises';
import { diskFiles, type FileLayer } from '../../src/sessions/checkpoints/file-layer.js';
import { isAlive, readLockOwner, type LockOwner } from '../../src/sessions/checkpoints/lock.js';
import { SessionFolder } from '../../src/sessions/checkpoints/session-folder.js';
import type { CaptureKind } from '../../src/sessions/types.js';
import { temporaryFolder } from '../support/repository.js';
import { contents, idsOf, release, STAMP, StateHome } from '../support/session-states.js';
import { openStore, ROOMY, saved, type TestStore } from '../support/session-store.js';

const locked = { code: 'session_store_locked' };

// ---- the lock ----

test('a second opener is told who has the folder, and gets it when the first has closed', async (t) => {
  const path = join(temporaryFolder(t, 'lock'), 'store');
  const first = await SessionFolder.open(path);
  await assert.rejects(SessionFolder.open(path), (error: Error & { code?: string }) => {
    assert.equal(error.code, 'session_store_locked');
    assert.match(error.message, new RegExp(`process ${process.pid} on `));
    return true;
  });
  await first.lock.tellAddress('http://127.0.0.1:1234');
  assert.equal(readLockOwner(diskFiles, path)?.address, 'http://127.0.0.1:1234');
  await assert.rejects(SessionFolder.open(path), /127\.0\.0\.1:1234/);
  assert.ok(first.lock.held);
  first.close();
  const second = await SessionFolder.open(path);
  second.close();
  assert.deepEqual(
    readdirSync(path).filter((name) => name.startsWith('lock')),
    [],
  );
});

test('of many that open at once exactly one gets the folder, also when a dead lock lies there', async (t) => {
  for (const stale of [false, true]) {
    const path = join(temporaryFolder(t, 'lock'), 'store');
    const maker = await SessionFolder.open(path);
    const owner = readLockOwner(diskFiles, path)!;
    maker.close();
    if (stale) writeFileSync(join(path, 'lock'), JSON.stringify({ ...owner, started: '1' }));
    const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => SessionFolder.open(path)));
    const got = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
    assert.equal(got.length, 1, `stale: ${stale}`);
    assert.ok(got[0]!.lock.held);
    for (const outcome of outcomes) if (outcome.status === 'rejected') assert.equal(outcome.reason.code, locked.code);
    got[0]!.close();
  }
});

test('a process that has ended and that nobody asked for yet has no lock any more', async (t) => {
  const path = join(temporaryFolder(t, 'lock'), 'store');
  const maker = await SessionFolder.open(path);
  const owner = readLockOwner(diskFiles, path)!;
  maker.close();
  // What the shell has become by then never asks for its child.
  const parent = spawn('sh', ['-c', 'sleep 1 & echo $!; exec sleep 60'], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => parent.kill('SIGKILL'));
  const [line] = (await once(parent.stdout, 'data')) as [Buffer];
  const ended: LockOwner = { ...owner, pid: Number(line.toString()), started: '' };
  while (!/\) Z /.test(readFileSync(`/proc/${ended.pid}/stat`, 'latin1'))) await elapsed(5);
  assert.ok(!isAlive(ended));
  writeFileSync(join(path, 'lock'), JSON.stringify(ended));
  (await SessionFolder.open(path)).close();
});

test('the lock of a process that was killed is taken over; one that lives, or of another host, is not', async (t) => {
  const path = join(temporaryFolder(t, 'lock'), 'store');
  const module = new URL('../../src/sessions/checkpoints/session-folder.js', import.meta.url).href;
  const child = spawn(
    process.execPath,
    [
      '--input-type=module',
      '-e',
      `const { SessionFolder } = await import(${JSON.stringify(module)});
       await SessionFolder.open(${JSON.stringify(path)});
       console.log('open'); setInterval(() => undefined, 1000);`,
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  t.after(() => child.kill('SIGKILL'));
  await new Promise((resolve) => child.stdout.once('data', resolve));
  await assert.rejects(SessionFolder.open(path), locked);
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await ended;
  const folder = await SessionFolder.open(path);
  const owner = readLockOwner(diskFiles, path)!;
  folder.close();

  const cases: [string, Partial<LockOwner> | string, boolean][] = [
    ['a process of that id that began at another time', { started: '1' }, true],
    ['a process from before the machine was started', { boot: 'another' }, true],
    ['an id that no process has', { pid: 2 ** 22 - 3 }, true],
    ['another host', { host: 'elsewhere', pid: 1 }, false],
    ['a file that says nothing', 'what?', true],
    ['an empty file', '', true],
  ];
  for (const [what, change, free] of cases) {
    const text = typeof change === 'string' ? change : JSON.stringify({ ...owner, ...change });
    writeFileSync(join(path, 'lock'), text);
    if (!free) {
      await assert.rejects(SessionFolder.open(path), /elsewhere.*remove its file "lock"/, what);
      assert.equal(readFileSync(join(path, 'lock'), 'utf8'), text, what);
    } else (await SessionFolder.open(path)).close();
    rmSync(join(path, 'lock'), { force: true });
  }
});

test('a writer whose lock was taken away publishes nothing', async (t) => {
  const path = join(temporaryFolder(t, 'lock'), 'store');
  const home = new StateHome();
  const store = await openStore(t, path, home);
  rmSync(join(path, 'lock'));
  const usurper = await SessionFolder.open(path);
  const capture = home.capture(idsOf(20));
  assert.deepEqual(await saved(store, capture), { kind: 'not-stored', reason: 'lock_lost' });
  release(capture);
  assert.equal(store.health().failing?.reason, 'lock_lost');
  await store.close();
  assert.ok(usurper.lock.held, 'and leaves the lock of the other alone');
  usurper.close();
});

// ---- time, room, numbers ----

/** The disk without waiting for it. */
const unsynced: FileLayer = {
  ...diskFiles,
  syncFolder: async () => undefined,
  open: (path, mode) => {
    const file = diskFiles.open(path, mode);
    return {
      byteLength: file.byteLength,
      read: (into, at) => file.read(into, at),
      readAll: async (into, at) => file.readAll(into, at),
      readSummed: async (into, at, checksum, before) => file.readSummed(into, at, checksum, before),
      writeAll: async (from, at) => file.writeAll(from, at),
      sync: async () => undefined,
      close: () => file.close(),
    };
  },
};

async function put(store: TestStore, home: StateHome, ids: readonly number[], session: string, kind?: CaptureKind) {
  const capture = home.capture(ids, kind ? { kind } : {});
  const outcome = await saved(store, capture, { session });
  release(capture);
  return outcome;
}

const lengthFor = (store: TestStore, ids: readonly number[]): number => {
  const found = store.match([...ids, 1], STAMP);
  return found.kind === 'candidate' ? found.candidate.length : 0;
};

test('a clock that goes backwards changes nothing but what people read', async (t) => {
  const path = join(temporaryFolder(t, 'clock'), 'store');
  const home = new StateHome();
  let time = 1e12;
  const now = (): number => (time -= 1e10);
  const first = await openStore(undefined, path, home, { now });
  const ids = idsOf(20);
  await put(first, home, ids, 'older');
  await put(first, home, ids, 'newer');
  await first.close();
  time = -1e15;
  const second = await openStore(t, path, home, { now });
  const found = second.match([...ids, 1], STAMP);
  assert.ok(found.kind === 'candidate');
  assert.equal(found.candidate.session, 'newer', 'the order of writing decides');
  await put(second, home, ids, 'newest');
  const again = second.match([...ids, 1], STAMP);
  assert.equal(again.kind === 'candidate' && again.candidate.session, 'newest');
});

test('without room the least harm is done: superfluous ones first, then chunks, prompts, turns; the used ones stay', async (t) => {
  const home = new StateHome();
  const path = join(temporaryFolder(t, 'room'), 'store');
  const probe = await openStore(undefined, join(temporaryFolder(t, 'room'), 'probe'), home, { files: unsynced });
  await put(probe, home, idsOf(30, 1), 'probe');
  const each = probe.bytes;
  await probe.close();
  const budget = { ...ROOMY, bytes: Math.floor(5.5 * each) };
  const store = await openStore(t, path, home, { files: unsynced, budget });
  await put(store, home, idsOf(30, 1), 'a', 'turn');
  await put(store, home, idsOf(30, 2), 'b', 'prompt');
  await put(store, home, idsOf(30, 3), 'c', 'chunk');
  await put(store, home, idsOf(30, 4), 'd', 'turn');
  await put(store, home, idsOf(38, 4), 'd', 'turn'); // the first of d is superfluous now
  assert.equal(store.entries().length, 5);
  const kept = (): string =>
    store
      .entries()
      .map(({ session, length }) => `${session}${length}`)
      .sort()
      .join(' ');
  await put(store, home, idsOf(30, 5), 'e', 'turn');
  assert.equal(kept(), 'a30 b30 c30 d38 e30');
  await put(store, home, idsOf(30, 6), 'f', 'turn');
  assert.equal(kept(), 'a30 b30 d38 e30 f30');
  await put(store, home, idsOf(30, 7), 'g', 'turn');
  assert.equal(kept(), 'a30 d38 e30 f30 g30');
  const found = store.match([...idsOf(30, 1), 1], STAMP);
  assert.ok(found.kind === 'candidate');
  const letGo = store.hold(found.candidate); // somebody waits to restore it
  await put(store, home, idsOf(30, 8), 'h', 'turn');
  assert.equal(kept(), 'a30 e30 f30 g30 h30');
  letGo();
  await put(store, home, idsOf(30, 9), 'i', 'turn');
  assert.equal(kept(), 'e30 f30 g30 h30 i30');
  assert.ok(store.bytes <= budget.bytes);
  const onDisk = ['checkpoints', 'segments'].flatMap((place) => readdirSync(join(path, place)));
  assert.equal(onDisk.length, 10);
  const outcome = await put(store, home, idsOf(400, 10), 'large');
  assert.ok(outcome.kind === 'not-stored' && outcome.reason === 'over_budget');
  assert.equal(kept(), 'e30 f30 g30 h30 i30', 'what can never fit drives nothing out');
});

test('a disk that would be left too full: first the own old ones go, then it is not stored', async (t) => {
  const home = new StateHome();
  let free = 1e6;
  const files: FileLayer = {
    ...unsynced,
    freeBytes: () => free,
    remove: async (path) => {
      await unsynced.remove(path);
      if (!path.includes('staging')) free += 500;
    },
  };
  const store = await openStore(t, join(temporaryFolder(t, 'free'), 'store'), home, {
    files,
    budget: { ...ROOMY, leastFreeBytes: 500_000 },
  });
  assert.equal((await put(store, home, idsOf(20, 1), 'a')).kind, 'stored');
  assert.equal((await put(store, home, idsOf(20, 2), 'b')).kind, 'stored');
  free = 500_000 + Math.floor(store.bytes / 2) - 100; // too little for one more, enough when another goes
  assert.equal((await put(store, home, idsOf(20, 3), 'c')).kind, 'stored');
  assert.equal(lengthFor(store, idsOf(20, 1)), 0);
  free = 0;
  const outcome = await put(store, home, idsOf(20, 4), 'd');
  assert.ok(outcome.kind === 'not-stored' && outcome.reason === 'disk_low', JSON.stringify(outcome));
  assert.equal(store.health().failing?.reason, 'disk_low');
});

test('no more is written a second than allowed, but a flush does not wait for it', async (t) => {
  const home = new StateHome();
  const budget = { ...ROOMY, bytesPerSecond: 4000 };
  const store = await openStore(t, join(temporaryFolder(t, 'pace'), 'store'), home, { budget, files: unsynced });
  for (let i = 0; i < 4; i++) {
    const capture = home.capture(idsOf(40, i));
    store.save({ capture, stamp: STAMP, lineage: [{ session: `${i}`, epoch: 0 }], session: `${i}` });
    release(capture);
  }
  assert.equal(await store.flush(0), false, 'a flush keeps to its bound');
  await new Promise((resolve) => setTimeout(resolve, 150));
  const { written, waiting, writing } = store.health();
  assert.ok(written.bytes < 4000 * 2 + 4000, `${written.bytes} bytes within a moment`);
  assert.ok(waiting > 0 && writing);
  const start = performance.now();
  assert.equal(await store.flush(10_000), true);
  assert.ok(performance.now() - start < 5000);
  assert.equal(store.entries().length, 4);
});

test('closing in the middle of a save stores it not, and gives everything back', async (t) => {
  const home = new StateHome();
  const path = join(temporaryFolder(t, 'close'), 'store');
  const store = await openStore(undefined, path, home, { budget: { ...ROOMY, bytesPerSecond: 1 }, files: unsynced });
  const outcomes = [1, 2, 3].map((seed) => {
    const capture = home.capture(idsOf(200, seed));
    const outcome = saved(store, capture, { session: `${seed}` });
    release(capture);
    return outcome;
  });
  await store.close();
  for (const outcome of await Promise.all(outcomes)) {
    assert.ok(outcome.kind === 'not-stored' && outcome.reason === 'stopped', JSON.stringify(outcome));
  }
  assert.equal(home.used, 0);
  assert.deepEqual(readdirSync(join(path, 'staging')), []);
  const late = home.capture(idsOf(5));
  assert.deepEqual(await saved(store, late), { kind: 'not-stored', reason: 'stopped' });
  release(late);
});

test('ten thousand small entries: read at the start, matched, restored, evicted and dropped without a long wait', async (t) => {
  const COUNT = 10_000;
  const home = new StateHome();
  const path = join(temporaryFolder(t, 'many'), 'store');
  const first = await openStore(undefined, path, home, { files: unsynced });
  for (let i = 0; i < COUNT; i++) {
    const capture = home.capture(idsOf(3 + (i % 6), i)); // fewer than a page: one file each
    const outcome = await saved(first, capture, { session: `s${i % 5000}` });
    release(capture);
    assert.equal(outcome.kind, 'stored');
  }
  const bytes = first.bytes;
  await first.close();
  const start = performance.now();
  const store = await openStore(t, path, home, { files: unsynced, budget: { ...ROOMY, bytes } });
  const opened = performance.now() - start;
  assert.equal(store.entries().length, COUNT);
  assert.ok(opened < 30_000, `opened in ${opened} ms`);
  const before = performance.now();
  for (let i = 0; i < 200; i++) assert.equal(lengthFor(store, idsOf(3 + (i % 6), i)), 3 + (i % 6));
  const matched = (performance.now() - before) / 200;
  assert.ok(matched < 50, `a match takes ${matched} ms`);
  assert.equal((await put(store, home, idsOf(8, COUNT), 'one more')).kind, 'stored', 'with one evicted');
  assert.ok(store.entries().length <= COUNT && store.bytes <= bytes);
  assert.equal(store.sessions().length <= 5001, true);
  const { checkpoints } = await store.dropWhere(({ session }) => session.endsWith('7'));
  assert.ok(checkpoints > 900);
  const capture = home.capture(idsOf(8, 5));
  const found = store.match([...idsOf(8, 5), 1], STAMP);
  assert.ok(found.kind === 'candidate');
  const outcome = await store.restore(found.candidate);
  assert.ok(outcome.kind === 'restored');
  assert.deepEqual(contents(outcome.capture), contents(capture));
  release(outcome.capture);
  release(capture);
  t.diagnostic(`opened in ${opened.toFixed(0)} ms, a match takes ${matched.toFixed(2)} ms`);
});
