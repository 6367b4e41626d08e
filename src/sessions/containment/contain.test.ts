import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as elapsed } from 'node:timers/promises';
import { FaultyFiles } from '../../../test/support/faulty-files.js';
import { diskFiles } from '../checkpoints/file-layer.js';
import { Containment, type ContainmentOptions, type Place } from './contain.js';
import { FenceFolder } from './fence-records.js';
import { Fences } from './fences.js';
import type { ContainmentReceipt, FailedRequest } from './receipts.js';

const census = { site: 'verify', phase: 'verify', step: 3, nanCount: 2, infCount: 1, vocabSize: 64 };

const failed = (more: Partial<FailedRequest> = {}): FailedRequest => ({
  requestId: 'request-1',
  session: 'a',
  family: 'some-family',
  lane: 'mtp',
  depth: 3,
  census,
  restoredTokens: 5,
  emittedTokens: 4,
  prompts: [],
  ...more,
});

/** Containment over three fake places that note when they are dropped and can be told to fail. */
function harness(t: TestContext, more: Partial<ContainmentOptions> = {}, files = new FaultyFiles(diskFiles)) {
  const folder = mkdtempSync(join(tmpdir(), 'plumbline-contain-'));
  const fences = new Fences(new FenceFolder(files, join(folder, 'fences'), join(folder, 'staging')));
  const events: string[] = [];
  const failing = new Set<string>();
  const place = (name: string, step: Place['step'], dropped: object): Place => ({
    name,
    step,
    async drop(session) {
      events.push(`${step} ${name} ${session} ${fences.stateOf(session)}`);
      if (failing.has(name)) throw Object.assign(new Error('/a/path of the disk'), { code: 'EROFS' });
      return dropped;
    },
    remove(session) {
      events.push(`remove ${name} ${session}`);
      return dropped;
    },
  });
  const receipts: ContainmentReceipt[] = [];
  const containment = new Containment({
    fences,
    places: [
      place('files', 'F6', { checkpoints: 2, indexRows: 2, staging: 1 }),
      place('bank', 'F5', { resident: 3, prefix: 1 }),
      place('queue', 'F3', { pendingSaves: 1 }),
    ],
    onReceipt: (receipt) => {
      events.push('F8');
      receipts.push(receipt);
    },
    atPoint: (point) => void events.push(point),
    retryAfterMs: 100_000,
    ...more,
  });
  t.after(() => {
    containment.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return { containment, fences, events, failing, receipts, files, folder };
}

test('the steps come in their order, the epoch is raised at once, and the receipt says what was dropped', async (t) => {
  const { containment, fences, events, receipts, files } = harness(t);
  const contained = containment.contain(failed());
  assert.deepEqual([fences.epochOf('a'), fences.stateOf('a')], [1, 'failing'], 'in the block of the caller');
  const receipt = await contained;
  assert.deepEqual(events, [
    'before-F2',
    'before-F3',
    'F3 queue a failing',
    'before-F4',
    'before-F5',
    'F5 bank a failing',
    'before-F6',
    'F6 files a failing',
    'before-F7',
    'before-F9',
    'F8',
  ]);
  assert.equal(files.steps.at(-1), 'sync-folder fences');
  assert.equal(fences.stateOf('a'), 'cold');
  const { ts, milliseconds, ...rest } = receipt;
  assert.ok(milliseconds >= 0 && !Number.isNaN(Date.parse(ts)));
  assert.deepEqual(rest, {
    action: 'non_finite_logits',
    requestId: 'request-1',
    sessionId: 'a',
    family: 'some-family',
    lane: 'mtp',
    depth: 3,
    phase: 'verify',
    site: 'verify',
    step: 3,
    census: { nan: 2, inf: 1, vocab: 64 },
    restoredTokens: 5,
    emittedTokens: 4,
    fence: { from: 0, to: 1, durable: true },
    dropped: {
      live: 1,
      prefix: 1,
      execution: 0,
      resident: 3,
      leases: 0,
      aliases: 0,
      checkpoints: 2,
      blobsKeptShared: 0,
      indexRows: 2,
      staging: 1,
      pendingSaves: 1,
    },
    errors: [],
  });
  assert.deepEqual(receipts, [receipt]);
  assert.deepEqual(containment.receipts.all, [receipt]);
  assert.equal(containment.counts.containments, 1);
});

test('the fence is durable before memory is dropped', async (t) => {
  const files = new FaultyFiles(diskFiles);
  let stepsAtF5: readonly string[] = [];
  const { containment } = harness(
    t,
    { atPoint: (point) => (point === 'before-F5' ? void (stepsAtF5 = [...files.steps]) : undefined) },
    files,
  );
  await containment.contain(failed());
  assert.equal(stepsAtF5.at(-1), 'sync-folder fences');
});

test('a place that fails keeps no later step from happening, is told by its code, and is tried again', async (t) => {
  for (const [name, step] of [
    ['queue', 'F3'],
    ['bank', 'F5'],
    ['files', 'F6'],
  ] as const) {
    const told: string[] = [];
    const h = harness(t, { onError: (place) => void told.push(place) });
    h.failing.add(name);
    const receipt = await h.containment.contain(failed());
    assert.deepEqual(receipt.errors, [`${step} ${name}: EROFS`]);
    assert.deepEqual([receipt.fence.durable, h.containment.diskUsable, h.containment.owed], [true, true, 1]);
    assert.equal(h.events.filter((event) => /^F[356] /.test(event)).length, 3);
    assert.equal(h.fences.stateOf('a'), 'cold');
    assert.equal(await h.containment.sweep(), 1);
    assert.deepEqual(told, [name]);
    h.failing.clear();
    assert.equal(await h.containment.sweep(), 0);
    assert.equal(h.containment.owed, 0);
  }
});

test('what failed is tried again without being asked', async (t) => {
  const h = harness(t, { retryAfterMs: 1 });
  h.failing.add('bank');
  await h.containment.contain(failed());
  h.failing.clear();
  for (let waited = 0; h.containment.owed > 0 && waited < 1000; waited++) await elapsed(2);
  assert.equal(h.containment.owed, 0);
});

test('a fence that cannot be written: the files still go; when they cannot go either, nothing is restored from the disk', async (t) => {
  const full = {
    at: (step: string) => step.startsWith('write'),
    fault: { kind: 'error', code: 'ENOSPC' },
    always: true,
  };
  for (const filesFail of [false, true]) {
    const h = harness(t);
    h.files.plan = full as NonNullable<typeof h.files.plan>;
    if (filesFail) h.failing.add('files');
    const receipt = await h.containment.contain(failed());
    assert.equal(receipt.fence.durable, false);
    assert.deepEqual(receipt.errors, ['F4 fence: ENOSPC', ...(filesFail ? ['F6 files: EROFS'] : [])]);
    assert.equal(h.containment.counts.writeFailures, 1);
    assert.equal(h.fences.durable, false);
    assert.equal(h.containment.diskUsable, !filesFail);
    await h.containment.sweep();
    assert.equal(h.containment.diskUsable, !filesFail);
    h.failing.clear();
    await h.containment.sweep();
    assert.equal(h.containment.diskUsable, true, 'the files are gone');
    h.files.plan = undefined;
    await h.containment.sweep();
    assert.deepEqual([h.fences.durable, h.fences.mayPersist([{ session: 'a', epoch: 1 }])], [true, false]);
  }
});

test('without a session folder there is nothing to make durable', async (t) => {
  const { containment } = harness(t, { fences: new Fences() });
  assert.equal((await containment.contain(failed())).fence.durable, null);
});

test('two sessions that fail at once end apart; one that fails twice is two epochs on', async (t) => {
  const { containment, fences } = harness(t);
  const [a, b] = await Promise.all([
    containment.contain(failed()),
    containment.contain(failed({ session: 'b', requestId: 'request-2' })),
  ]);
  assert.deepEqual([a.sessionId, a.fence.to, b.sessionId, b.fence.to], ['a', 1, 'b', 1]);
  const again = await Promise.all([containment.contain(failed()), containment.contain(failed())]);
  assert.deepEqual(
    again.map(({ fence }) => fence),
    [
      { from: 1, to: 2, durable: true },
      { from: 2, to: 3, durable: true },
    ],
  );
  assert.deepEqual([fences.stateOf('a'), fences.stateOf('b'), fences.epochOf('a')], ['cold', 'cold', 3]);
});

test('a removal asks every place for the session alone, and fences nothing', async (t) => {
  const { containment, fences, events, receipts, files } = harness(t);
  const { dropped, errors } = await containment.remove('a');
  assert.deepEqual([dropped.resident, dropped.checkpoints, errors, receipts.length], [3, 2, [], 0]);
  assert.deepEqual(events, ['remove queue a', 'remove bank a', 'remove files a']);
  assert.deepEqual([fences.stateOf('a'), fences.epochOf('a')], ['ready', 0]);
  assert.ok(!files.steps.includes('rename fence'));
});

test('the ring keeps the latest sixteen receipts, newest first', async (t) => {
  const { containment } = harness(t);
  for (let i = 0; i < 20; i++) await containment.contain(failed({ requestId: `request-${i}` }));
  const kept = containment.receipts.all.map(({ requestId }) => requestId);
  assert.deepEqual(
    kept,
    Array.from({ length: 16 }, (_, i) => `request-${19 - i}`),
  );
});
