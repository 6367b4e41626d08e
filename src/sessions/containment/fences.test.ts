import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { FaultyFiles } from '../../../test/support/faulty-files.js';
import { diskFiles, type FileLayer } from '../checkpoints/file-layer.js';
import { FenceFolder, sessionHash } from './fence-records.js';
import { Fences } from './fences.js';

function temporaryFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'plumbline-fences-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const open = (folder: string, files: FileLayer = diskFiles, now?: () => number): Fences =>
  new Fences(new FenceFolder(files, join(folder, 'fences'), join(folder, 'staging')), now);

const recordFile = (folder: string, session: string): string => join(folder, 'fences', `${sessionHash(session)}.json`);

test('a pair below its fence fences the whole lineage; other sessions and the new epoch stay', () => {
  const fences = new Fences();
  const old = [{ session: 'a', epoch: fences.epochOf('a') }];
  const fork = [{ session: 'b', epoch: 0 }, ...old];
  assert.deepEqual([fences.isFenced(old), fences.isFenced(fork)], [false, false]);
  assert.deepEqual(fences.raise('a', { requestId: 'r' }), { from: 0, to: 1 });
  assert.deepEqual([fences.isFenced(old), fences.isFenced(fork)], [true, true]);
  assert.deepEqual([fences.mayPublish(old), fences.mayPublish([{ session: 'a', epoch: 1 }])], [false, true]);
  assert.equal(fences.isFenced([{ session: 'b', epoch: 0 }]), false);
  assert.equal(fences.counts.savesRefused, 1);
});

test('a session restores nothing until a turn of the living epoch was banked', () => {
  const fences = new Fences();
  const healthy = [{ session: 'other', epoch: 0 }];
  assert.equal(fences.mayRestore('a', healthy), true);
  fences.raise('a', { requestId: 'r' });
  assert.deepEqual([fences.stateOf('a'), fences.mayRestore('a', healthy)], ['failing', false]);
  fences.settle('a');
  assert.deepEqual([fences.stateOf('a'), fences.mayRestore('a', healthy)], ['cold', false]);
  assert.equal(fences.mayRestore('other', healthy), true);
  fences.banked({ session: 'a', epoch: 0 });
  assert.equal(fences.stateOf('a'), 'cold', 'a turn that began before the failure ends nothing');
  fences.banked({ session: 'a', epoch: 1 });
  assert.deepEqual([fences.stateOf('a'), fences.mayRestore('a', healthy)], ['ready', true]);
  assert.equal(fences.counts.restoresRefused, 2);
});

test('two failures of one session at once raise the epoch twice, and the last one settles it', async () => {
  const fences = new Fences();
  assert.equal(fences.settled('a'), undefined);
  assert.deepEqual(fences.raise('a', { requestId: '1' }), { from: 0, to: 1 });
  assert.deepEqual(fences.raise('a', { requestId: '2' }), { from: 1, to: 2 });
  let settled = false;
  const done = fences.settled('a')?.then(() => (settled = true));
  fences.settle('a');
  await Promise.resolve();
  assert.deepEqual([fences.stateOf('a'), settled], ['failing', false]);
  fences.settle('a');
  await done;
  assert.deepEqual([fences.stateOf('a'), fences.settled('a')], ['cold', undefined]);
});

test('fences come back with the process, with their aliases; a turn that was banked is remembered too', async (t) => {
  const folder = temporaryFolder(t);
  const fences = open(folder);
  const prompt = Int32Array.of(5, 6, 7);
  fences.raise('a', { requestId: 'r', prompts: [prompt] });
  assert.deepEqual(await fences.commit('a'), { durable: true });
  const again = open(folder);
  assert.deepEqual([again.epochOf('a'), again.stateOf('a')], [1, 'cold']);
  assert.equal(again.isFenced([{ session: 'a', epoch: 0 }]), true);
  assert.equal(again.sessionOfPrompt([5, 6, 7, 8]), 'a');
  assert.equal(again.sessionOfPrompt([5, 6]), undefined);
  assert.equal(again.sessionOfPrompt([5, 6, 8, 8]), undefined);
  again.banked({ session: 'a', epoch: 1 });
  await again.commit('a');
  const third = open(folder);
  assert.deepEqual([third.epochOf('a'), third.stateOf('a')], [1, 'ready']);
  assert.equal(third.sessionOfPrompt([5, 6, 7]), undefined);
  assert.deepEqual(readdirSync(join(folder, 'staging')), []);
});

test('the longest failed prompt names the session', () => {
  const fences = new Fences();
  fences.raise('short', { requestId: 'r', prompts: [[1, 2]] });
  fences.raise('long', { requestId: 'r', prompts: [[1, 2, 3, 4]] });
  fences.raise('other', { requestId: 'r', prompts: [[1, 9, 9]] });
  assert.equal(fences.sessionOfPrompt([1, 2, 3, 4, 5]), 'long');
  assert.equal(fences.sessionOfPrompt([1, 2, 3]), 'short');
  assert.equal(fences.sessionOfPrompt([1, 9, 9]), 'other');
});

test('an end at any step of writing leaves the older record or the newer one', async (t) => {
  const steps = await (async () => {
    const files = new FaultyFiles(diskFiles);
    const fences = open(temporaryFolder(t), files);
    fences.raise('a', { requestId: 'r' });
    await fences.commit('a');
    return files.steps;
  })();
  const made = steps.findIndex((step) => step.startsWith('create'));
  assert.deepEqual(
    steps.slice(made),
    ['create staged fence', 'write staged fence', 'sync staged fence', 'rename fence', 'sync-folder fences'].map(
      (step) => step.replace('staged fence', steps[made]?.slice('create '.length) ?? ''),
    ),
  );
  for (const kind of ['kill', 'kill-after'] as const) {
    for (let index = made; index < steps.length; index++) {
      const folder = temporaryFolder(t);
      const before = open(folder);
      before.raise('a', { requestId: 'first' });
      await before.commit('a');
      const files = new FaultyFiles(diskFiles, { at: (_, at) => at === index, fault: { kind } });
      const fences = open(folder, files);
      fences.raise('a', { requestId: 'second' });
      const { durable } = await fences.commit('a');
      files.loseUnsynced();
      const after = open(folder);
      const renamed =
        index > steps.indexOf('rename fence') || (kind === 'kill-after' && steps[index] === 'rename fence');
      assert.equal(after.epochOf('a'), renamed ? 2 : 1, `${kind} ${steps[index]}`);
      assert.equal(after.stateOf('a'), 'cold');
      assert.equal(durable, false, 'a process that ended made nothing durable');
    }
  }
});

test('a fence that cannot be written is told, and its session is not persisted by this process any more', async (t) => {
  for (const step of ['create', 'write', 'sync', 'rename', 'sync-folder fences']) {
    const fault = { kind: 'error', code: 'ENOSPC' } as const;
    const files = new FaultyFiles(diskFiles, { at: (name) => name.startsWith(step) && !name.includes('make'), fault });
    const folder = temporaryFolder(t);
    const fences = open(folder, files);
    fences.raise('a', { requestId: 'r' });
    const { durable, failure } = await fences.commit('a');
    assert.deepEqual([durable, (failure as { code: string }).code], [false, 'ENOSPC'], step);
    assert.deepEqual([fences.durable, fences.undurable, fences.counts.writeFailures], [false, ['a'], 1]);
    assert.deepEqual(await fences.commit('a'), { durable: true }, 'the disk has room again');
    assert.deepEqual([fences.durable, fences.undurable], [true, []]);
    assert.equal(fences.mayPersist([{ session: 'a', epoch: 1 }]), false);
    assert.equal(fences.mayPersist([{ session: 'b', epoch: 0 }]), true);
    assert.equal(open(folder).epochOf('a'), 1);
  }
});

test('a record that is damaged anywhere fences everything of its session, and the next epoch is above all that was seen', async (t) => {
  const folder = temporaryFolder(t);
  const fences = open(folder);
  fences.raise('a', { requestId: 'r', prompts: [[1]] });
  await fences.commit('a');
  const path = recordFile(folder, 'a');
  const whole = readFileSync(path);
  const damaged = [Buffer.alloc(0), whole.subarray(0, 40), Buffer.from('null'), Buffer.from('{"crc32":0,"body":""}')];
  for (let at = 0; at < whole.length - 1; at++) {
    const flipped = Buffer.from(whole);
    flipped[at]! ^= 1;
    damaged.push(flipped);
  }
  for (const [index, bytes] of damaged.entries()) {
    writeFileSync(path, bytes);
    const again = open(folder);
    const lineage = [{ session: 'a', epoch: 7 }];
    assert.equal(again.isFenced(lineage), true, `damage ${index}`);
    assert.equal(again.isFenced([{ session: 'b', epoch: 0 }]), false);
    assert.equal(again.epochOf('a'), 8);
    assert.deepEqual([again.stateOf('a'), again.isFenced(lineage)], ['cold', true]);
  }
  writeFileSync(path, whole);
  writeFileSync(recordFile(folder, 'b'), whole);
  assert.equal(open(folder).isFenced([{ session: 'b', epoch: 3 }]), true, 'a record under the name of another session');
});

test('a fence is forgotten only when it is old, its session ready, and no stored entry names it', async (t) => {
  const folder = temporaryFolder(t);
  const fences = open(folder);
  for (const session of ['cold', 'named', 'free']) {
    fences.raise(session, { requestId: 'r' });
    fences.settle(session);
    if (session !== 'cold') fences.banked({ session, epoch: 1 });
    await fences.commit(session);
  }
  assert.equal(await fences.forget(new Set(['named'])), 0, 'an exported file may still come back');
  const nextMonth = Date.now() + 31 * 24 * 3600 * 1000;
  assert.equal(await open(folder, diskFiles, () => nextMonth).forget(new Set(['named'])), 1);
  const again = open(folder);
  assert.deepEqual(
    ['cold', 'named', 'free'].map((session) => again.epochOf(session)),
    [1, 1, 0],
  );
});
