/**
 * The process ends, or the disk fails, at every step of saving, evicting and dropping: what was whole stays whole, what was
 * dropped stays dropped, half a thing never counts, and no memory is kept.
 */
import assert from 'node:assert/strict';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { diskFiles } from '../../src/sessions/checkpoints/file-layer.js';
import { STAMP, contents, idsOf, release, StateHome } from '../support/session-states.js';
import { openStore, saved, type TestStore } from '../support/session-store.js';
import { FaultyFiles, type Fault } from '../support/faulty-files.js';
import { temporaryFolder } from '../support/repository.js';

const IDS = idsOf(64);
const LENGTHS = [13, 29, 45] as const;

/**
 * A life of a folder: three turns, each growing from the one before, a session that is dropped, and a bystander from
 * before. Says what it was promised: sessions stored for certain, and those dropped for certain.
 */
async function live(store: TestStore, home: StateHome, promised: Promised, files?: FaultyFiles): Promise<void> {
  let before: ReturnType<StateHome['capture']> | undefined;
  try {
    for (const length of LENGTHS) {
      const capture = home.capture(IDS.slice(0, length), { from: before });
      if (before) release(before);
      before = capture;
      const outcome = await saved(store, capture, { session: 'turns' });
      if (outcome.kind === 'stored') promised.stored.add(length);
    }
    const other = home.capture(idsOf(20, 5));
    const outcome = await saved(store, other, { session: 'gone' });
    release(other);
    promised.goneStored = outcome.kind === 'stored';
    await store.dropSession('gone');
    promised.dropped = files?.dead !== true; // the dead promise nothing
  } finally {
    if (before) release(before);
  }
}

interface Promised {
  readonly stored: Set<number>;
  goneStored: boolean;
  dropped: boolean;
}

const promises = (): Promised => ({ stored: new Set(), goneStored: false, dropped: false });
const BYSTANDER = idsOf(30, 77);

/** A folder with one stored conversation that no failure may touch. */
async function withBystander(path: string, home: StateHome): Promise<void> {
  const store = await openStore(undefined, path, home);
  const capture = home.capture(BYSTANDER);
  await saved(store, capture, { session: 'bystander' });
  release(capture);
  await store.close();
}

/** What the next process finds. The lock of the dead one is taken away as its death would have let it be. */
async function assertSound(path: string, home: StateHome, promised: Promised, what: string): Promise<void> {
  rmSync(join(path, 'lock'), { force: true });
  const used = home.used;
  const store = await openStore(undefined, path, home);
  try {
    assert.deepEqual(readdirSync(join(path, 'staging')), [], what);
    for (const [tokens, length] of [
      [BYSTANDER, BYSTANDER.length],
      ...LENGTHS.map((length) => [IDS.slice(0, length), length] as const),
    ] as const) {
      const found = store.match([...tokens, 1], STAMP);
      const exact = found.kind === 'candidate' && found.candidate.length === length;
      const must = length === BYSTANDER.length || promised.stored.has(length);
      assert.ok(exact || !must, `${what}: ${length} tokens were stored and are gone`);
      if (!exact) continue;
      const outcome = await store.restore(found.candidate);
      assert.ok(outcome.kind === 'restored', `${what}: ${length} ${JSON.stringify(outcome)}`);
      const expected = home.capture([...tokens]);
      assert.deepEqual(contents(outcome.capture), contents(expected), what);
      release(expected);
      release(outcome.capture);
    }
    if (promised.dropped) {
      assert.equal(store.match(idsOf(21, 5), STAMP).kind, 'no-match', `${what}: what was dropped came back`);
    }
    // Every file that is left is one that something needs.
    const needed = new Set(store.entries().flatMap(({ segments }) => segments.map(({ id }) => `${id}.pages`)));
    assert.deepEqual(new Set(readdirSync(join(path, 'segments'))), needed, what);
    assert.equal(readdirSync(join(path, 'checkpoints')).length, store.entries().length, what);
    // And the folder can be written again.
    const next = home.capture(idsOf(18, 31));
    assert.equal((await saved(store, next, { session: 'next' })).kind, 'stored', what);
    release(next);
  } finally {
    await store.close();
  }
  assert.equal(home.used, used, what);
}

/** The steps of a life without faults. */
async function stepsOf(path: string, home: StateHome): Promise<string[]> {
  const files = new FaultyFiles(diskFiles);
  const store = await openStore(undefined, path, home, { files });
  const from = files.steps.length;
  await live(store, home, promises());
  const steps = files.steps.slice(from);
  await store.close();
  return steps;
}

const FAULTS: readonly Fault[] = [
  { kind: 'kill' },
  { kind: 'kill-after' },
  { kind: 'error', code: 'ENOSPC' },
  { kind: 'error', code: 'EIO' },
];

test('an end or an error at every step of a life leaves a folder that is sound', async (t) => {
  const root = temporaryFolder(t, 'crash');
  const home = new StateHome();
  await withBystander(join(root, 'dry'), home);
  const steps = await stepsOf(join(root, 'dry'), home);
  for (const step of ['create staged segment', 'write staged segment', 'sync staged segment', 'rename segment']) {
    assert.ok(steps.includes(step), `${step} is not among ${[...new Set(steps)].join(', ')}`);
  }
  for (const step of ['rename checkpoint', 'sync-folder segments', 'sync-folder checkpoints', 'remove checkpoint']) {
    assert.ok(steps.includes(step), `${step} is not among ${[...new Set(steps)].join(', ')}`);
  }
  const before = home.used;
  for (let index = 0; index < steps.length; index++) {
    for (const [number, fault] of FAULTS.entries()) {
      const what = `${fault.kind} at step ${index}, ${steps[index]}`;
      const path = join(root, `${index}-${number}`);
      await withBystander(path, home);
      const files = new FaultyFiles(diskFiles);
      const store = await openStore(undefined, path, home, { files });
      const from = files.steps.length;
      files.plan = { at: (_, at) => at === from + index, fault };
      const promised = promises();
      await live(store, home, promised, files).catch((error: unknown) => {
        // Only a drop tells its failure by throwing; nothing was promised then.
        assert.match(String(error), /at remove|process (has )?ended/, what);
      });
      const died = files.dead;
      assert.equal(died, fault.kind.startsWith('kill'), what);
      await store.close();
      if (died && index % 2 === 0) files.loseUnsynced();
      assert.equal(home.used, before, `${what}: memory is kept`);
      await assertSound(path, home, promised, what);
      rmSync(path, { recursive: true });
    }
  }
});

test('a disk that is full or read-only: not stored, with the reason, for as long as it lasts', async (t) => {
  for (const [code, reason] of [
    ['ENOSPC', 'disk_full'],
    ['EDQUOT', 'disk_full'],
    ['EROFS', 'read_only'],
    ['EACCES', 'read_only'],
    ['EIO', 'write_failed'],
  ] as const) {
    const home = new StateHome();
    const path = join(temporaryFolder(t, 'full'), 'store');
    const files = new FaultyFiles(diskFiles);
    const store = await openStore(t, path, home, { files });
    const first = home.capture(IDS.slice(0, 13));
    await saved(store, first);
    files.plan = { at: (step) => /^(create|write)/.test(step), fault: { kind: 'error', code }, always: true };
    const second = home.capture(IDS.slice(0, 29), { from: first });
    for (let attempt = 0; attempt < 3; attempt++) {
      const outcome = await saved(store, second);
      assert.ok(outcome.kind === 'not-stored' && outcome.reason === reason, `${code}: ${JSON.stringify(outcome)}`);
    }
    const { failing, not_stored: notStored, checkpoints } = store.health();
    assert.equal(failing?.reason, reason);
    assert.deepEqual(notStored, { [reason]: 3 });
    assert.equal(checkpoints, 1);
    const found = store.match(IDS, STAMP);
    assert.ok(found.kind === 'candidate');
    const outcome = await store.restore(found.candidate);
    assert.equal(outcome.kind, 'restored', 'what is there can still be read');
    if (outcome.kind === 'restored') release(outcome.capture);
    files.plan = undefined;
    assert.equal((await saved(store, second)).kind, 'stored', 'and when the disk is well again, all is');
    assert.equal(store.health().failing, undefined);
    release(first);
    release(second);
    await store.close();
    assert.equal(home.used, 0);
  }
});

test('a folder that cannot be written from the start is refused with the reason', async (t) => {
  const home = new StateHome();
  for (const step of ['make-folder store', 'create lock.*', 'link lock', 'make-folder staging']) {
    const files = new FaultyFiles(diskFiles, {
      at: (name) => name === step,
      fault: { kind: 'error', code: 'EROFS' },
    });
    const path = join(temporaryFolder(t, 'read-only'), 'store');
    await assert.rejects(openStore(t, path, home, { files }), (error: Error & { code?: string }) => {
      assert.equal(error.code, 'session_store_unusable', step);
      assert.match(error.message, /EROFS/);
      return true;
    });
  }
});

test('a file that cannot be removed is told, and goes with a sweep', async (t) => {
  const home = new StateHome();
  const path = join(temporaryFolder(t, 'sweep'), 'store');
  const files = new FaultyFiles(diskFiles);
  const store = await openStore(t, path, home, { files });
  const capture = home.capture(IDS.slice(0, 13));
  await saved(store, capture);
  release(capture);
  files.plan = { at: (step) => step === 'remove checkpoint', fault: { kind: 'error', code: 'EPERM' } };
  await assert.rejects(store.dropSession('one'), { code: 'EPERM' });
  assert.equal(store.match(IDS, STAMP).kind, 'no-match', 'out of the tables all the same');
  assert.equal(readdirSync(join(path, 'checkpoints')).length, 1);
  assert.equal(store.health().failed_removals, 1);
  assert.equal(await store.sweep(), 0);
  assert.equal(readdirSync(join(path, 'checkpoints')).length, 0);
});
