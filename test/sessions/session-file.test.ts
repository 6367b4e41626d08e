/** A session carried from one folder to another, and what is refused on the way. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../support/repository.js';
import { contents, idsOf, MTP_STAMP, release, STAMP, StateHome } from '../support/session-states.js';
import { fencesOf, openStore, ROOMY, saved, type TestStore } from '../support/session-store.js';

async function exported(store: TestStore, session: string): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of store.exportSession(session)!) pieces.push(piece);
  return Buffer.concat(pieces);
}

async function* stream(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 1000) yield bytes.subarray(at, at + 1000);
}

async function restoredFrom(store: TestStore, tokens: readonly number[], stamp = STAMP) {
  const found = store.match([...tokens, 1], stamp);
  assert.ok(found.kind === 'candidate', JSON.stringify(found));
  const outcome = await store.restore(found.candidate);
  assert.ok(outcome.kind === 'restored', JSON.stringify(outcome));
  return outcome.capture;
}

const IDS = idsOf(60);

test('the newest checkpoint of a session goes to another folder with its pages, and nothing of anybody else', async (t) => {
  const root = temporaryFolder(t, 'carry');
  const home = new StateHome();
  const from = await openStore(t, join(root, 'from'), home);
  const one = home.capture(IDS.slice(0, 20), { lane: 'mtp' });
  const longer = home.capture([...IDS.slice(0, 20), ...idsOf(30, 8)], { lane: 'mtp', from: one });
  await saved(from, longer, { stamp: MTP_STAMP, session: 'other' }); // its segment has pages that only it needs
  await saved(from, one, { stamp: MTP_STAMP, session: 'first' });
  const two = home.capture(IDS.slice(0, 43), { lane: 'mtp', from: one });
  const note = Buffer.from('what was answered');
  await saved(from, two, { stamp: MTP_STAMP, session: 'first', note });
  const file = await exported(from, 'first');
  const [alien] = home.codecs.trunk.export(longer.trunk).pages.slice(-1);
  assert.ok(!file.includes(Buffer.from(alien!.bytes)), 'no page of another session goes along');

  const there = new StateHome();
  const to = await openStore(t, join(root, 'to'), there);
  const { session, bytes } = await to.importSession(stream(file));
  assert.equal(session, 'first');
  assert.ok(bytes > 0 && bytes < file.length);
  const [noted] = to.notes('first', [MTP_STAMP]).notes;
  assert.deepEqual([Buffer.from(noted!.note), [...noted!.tokens]], [note, IDS.slice(0, 43)]);
  assert.deepEqual(to.notes('first', [STAMP]).notes, [], 'not where its states could not be used');
  const back = await restoredFrom(to, IDS.slice(0, 43), MTP_STAMP);
  assert.deepEqual(contents(back), contents(two));
  assert.deepEqual((await exported(to, 'first')).length, file.length, 'and goes on from there as it came');
  release(back);
  for (const capture of [one, longer, two]) release(capture);
  assert.equal(from.exportSession('nobody'), undefined);
  await to.importSession(stream(file)); // twice is no harm
  assert.equal(to.entries('first').length, 2);
  assert.deepEqual(readdirSync(join(root, 'to', 'staging')), []);
});

test('a session without a full page is carried too', async (t) => {
  const root = temporaryFolder(t, 'carry');
  const home = new StateHome();
  const from = await openStore(t, join(root, 'from'), home);
  const capture = home.capture(IDS.slice(0, 5));
  await saved(from, capture);
  const to = await openStore(t, join(root, 'to'), home);
  await to.importSession(stream(await exported(from, 'one')));
  const back = await restoredFrom(to, IDS.slice(0, 5));
  assert.deepEqual(contents(back), contents(capture));
  release(back);
  release(capture);
});

test('a damaged, cut, fenced or too large file is refused, and nothing of it stays', async (t) => {
  const root = temporaryFolder(t, 'carry');
  const home = new StateHome();
  const from = await openStore(t, join(root, 'from'), home);
  const capture = home.capture(IDS.slice(0, 43), { lane: 'mtp' });
  await saved(from, capture, { stamp: MTP_STAMP });
  release(capture);
  const file = await exported(from, 'one');
  let fenced = false;
  const to = await openStore(t, join(root, 'to'), home, { fences: fencesOf(() => fenced) });
  const left = (): string[] =>
    ['checkpoints', 'segments', 'staging'].flatMap((place) => readdirSync(join(root, 'to', place)));
  for (let i = 0; i < 300; i++) {
    const at = Math.floor((i * file.length) / 300);
    const bad = i % 3 === 0 ? file.subarray(0, at) : Buffer.from(file);
    if (i % 3 !== 0) bad[at]! ^= 1 << (i % 8);
    await assert.rejects(to.importSession(stream(bad)), { code: 'session_file_invalid' }, `mutation ${i} at ${at}`);
    assert.deepEqual(left(), []);
  }
  await assert.rejects(to.importSession(stream(Buffer.concat([file, Buffer.alloc(1)]))), {
    code: 'session_file_invalid',
  });
  fenced = true;
  await assert.rejects(to.importSession(stream(file)), /session_fenced/);
  fenced = false;
  const small = await openStore(t, join(root, 'small'), home, { budget: { ...ROOMY, bytes: 1000 } });
  await assert.rejects(small.importSession(stream(file)), /over_budget/);
  await assert.rejects(
    to.importSession(
      (async function* () {
        yield file.subarray(0, 100);
        throw new Error('the client went away');
      })(),
    ),
    /went away/,
  );
  assert.deepEqual(left(), []);
  await to.importSession(stream(file));
});
