/** Damaged, cut, old and foreign files of a session folder: refused before any state is touched, and no harm to others. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { encodeFrame } from '../../src/sessions/checkpoints/frame.js';
import { zlibChecksum } from '../../src/sessions/checkpoints/checksum.js';
import { CHECKPOINT_MAGIC } from '../../src/sessions/checkpoints/checkpoint-format.js';
import type { StateStamp } from '../../src/sessions/types.js';
import { temporaryFolder } from '../support/repository.js';
import { contents, idsOf, MTP_STAMP, release, STAMP, StateHome } from '../support/session-states.js';
import { fencesOf, openStore, saved, type TestStore } from '../support/session-store.js';

const IDS = idsOf(60);

/** Files of a folder by path; writes them all, and nothing else, when asked. */
class FolderImage {
  readonly files = new Map<string, Buffer>();

  constructor(readonly path: string) {
    for (const folder of ['checkpoints', 'segments']) {
      for (const name of readdirSync(join(path, folder))) {
        this.files.set(join(folder, name), readFileSync(join(path, folder, name)));
      }
    }
  }

  write(changes: ReadonlyMap<string, Uint8Array | undefined> = new Map()): void {
    for (const folder of ['checkpoints', 'segments']) {
      rmSync(join(this.path, folder), { recursive: true, force: true });
      mkdirSync(join(this.path, folder));
    }
    for (const [name, bytes] of [...this.files, ...changes]) {
      if (bytes) writeFileSync(join(this.path, name), bytes);
      else rmSync(join(this.path, name));
    }
  }
}

/** Two turns of a session in the speculative lane, the second sharing pages of the first; and a bystander. */
async function threeCheckpoints(t: TestContext) {
  const path = join(temporaryFolder(t, 'damage'), 'store');
  const home = new StateHome();
  const store = await openStore(undefined, path, home);
  const one = home.capture(IDS.slice(0, 20), { lane: 'mtp' });
  await saved(store, one, { stamp: MTP_STAMP });
  const two = home.capture(IDS.slice(0, 43), { lane: 'mtp', from: one });
  await saved(store, two, { stamp: MTP_STAMP, note: Buffer.from('what was answered') });
  const other = home.capture(idsOf(25, 9), {});
  await saved(store, other, { session: 'bystander' });
  const said = new Map([one, two].map((capture) => [capture.tokens.length, contents(capture)]));
  const bystander = contents(other);
  for (const capture of [one, two, other]) release(capture);
  const ids = store.entries('one').map(({ id, segments }) => ({ id, segments: segments.map((segment) => segment.id) }));
  await store.close();
  return { path, home, image: new FolderImage(path), said, bystander, ids };
}

/** What the longest restore of the damaged session gives: the length, or why there is none. */
async function attempt(
  store: TestStore,
  home: StateHome,
  said: ReadonlyMap<number, object>,
  prompt = IDS,
): Promise<number | string> {
  const used = home.used;
  const found = store.match(prompt, MTP_STAMP);
  if (found.kind === 'no-match') return found.reason;
  const outcome = await store.restore(found.candidate);
  if (outcome.kind !== 'restored') {
    assert.equal(home.used, used, 'a rejected file leaves no memory taken');
    return outcome.reason;
  }
  assert.deepEqual(contents(outcome.capture), said.get(outcome.tokens), 'nothing damaged ever comes back');
  release(outcome.capture);
  assert.equal(home.used, used);
  return outcome.tokens;
}

async function assertBystander(store: TestStore, said: object): Promise<void> {
  const found = store.match(idsOf(26, 9), STAMP);
  assert.ok(found.kind === 'candidate');
  const outcome = await store.restore(found.candidate);
  assert.ok(outcome.kind === 'restored');
  assert.deepEqual(contents(outcome.capture), said);
  release(outcome.capture);
}

function mutations(bytes: Buffer, count: number): { readonly what: string; readonly bytes: Buffer }[] {
  const found: { what: string; bytes: Buffer }[] = [];
  for (let i = 0; i < count; i++) {
    const at = Math.floor((i * bytes.length) / count);
    const flipped = Buffer.from(bytes);
    flipped[at]! ^= 1 << (i % 8);
    found.push({ what: `bit ${i % 8} of byte ${at}`, bytes: flipped });
    if (i % 4 === 0) found.push({ what: `cut at ${at}`, bytes: bytes.subarray(0, at) });
    if (i % 16 === 0)
      found.push({ what: `${at + 1} bytes more`, bytes: Buffer.concat([bytes, bytes.subarray(0, at + 1)]) });
    if (i % 16 === 8) found.push({ what: `zeros from ${at}`, bytes: Buffer.from(bytes).fill(0, at) });
  }
  return found.filter((mutation) => !mutation.bytes.equals(bytes));
}

test('every region of every file flipped, cut, zeroed or lengthened: refused, and the next best is restored', async (t) => {
  const { path, home, image, said, bystander, ids } = await threeCheckpoints(t);
  const [first, second] = ids as [(typeof ids)[0], (typeof ids)[0]];
  assert.deepEqual(first.segments.length, 1);
  assert.deepEqual(second.segments.length, 2, 'the second turn shares the pages of the first');
  const cases: { file: string; left: readonly (number | string)[]; prompt?: number[] }[] = [
    { file: `checkpoints/${second.id}.state`, left: [20] },
    { file: `segments/${second.segments[1]!}.pages`, left: [20] },
    { file: `checkpoints/${first.id}.state`, left: ['no_entry'], prompt: IDS.slice(0, 30) },
    { file: `segments/${first.segments[0]!}.pages`, left: ['no_entry'] },
  ];
  let count = 0;
  for (const { file, left, prompt } of cases) {
    const bytes = image.files.get(file)!;
    for (const [number, mutation] of mutations(bytes, 430).entries()) {
      const what = `${file}: ${mutation.what}`;
      const whileOpen = number % 2 === 1;
      image.write(whileOpen ? undefined : new Map([[file, mutation.bytes]]));
      const store = await openStore(undefined, path, home);
      if (whileOpen) writeFileSync(join(path, file), mutation.bytes);
      let outcome = await attempt(store, home, said, prompt);
      // Found while it is read: the entry goes, and the next request meets what is left.
      for (let tries = 0; outcome === 'checkpoint_damaged' && tries < 3; tries++) {
        outcome = await attempt(store, home, said, prompt);
      }
      const allowed: readonly (number | string)[] = whileOpen ? [...left, 'no_entry'] : left;
      // What a restore does not read again (the table of a segment) may be damaged under an open store.
      const unread = whileOpen && (outcome === 43 || outcome === 20);
      assert.ok(allowed.includes(outcome) || unread, `${what}${whileOpen ? ' while open' : ''}: ${outcome}`);
      await assertBystander(store, bystander);
      await store.close();
      if (!whileOpen) assert.ok(!existsSync(join(path, file)), `${what}: the damaged file is gone`);
      count++;
    }
  }
  assert.ok(count >= 2000, `${count} mutations`);
});

test('two files that were exchanged, renamed, or left out are refused', async (t) => {
  const { path, home, image, said, bystander, ids } = await threeCheckpoints(t);
  const [first, second] = ids as [(typeof ids)[0], (typeof ids)[0]];
  const [a, b] = [`segments/${second.segments[0]!}.pages`, `segments/${second.segments[1]!}.pages`];
  const cases: [string, Map<string, Buffer | undefined>, number | string][] = [
    [
      'exchanged segments',
      new Map([
        [a, image.files.get(b)],
        [b, image.files.get(a)],
      ]),
      'no_entry',
    ],
    ['a missing segment', new Map([[b, undefined]]), 20],
    ['a missing first segment', new Map([[a, undefined]]), 'no_entry'],
    ['a missing checkpoint', new Map([[`checkpoints/${second.id}.state`, undefined]]), 20],
    ['a segment among the checkpoints', new Map([[`checkpoints/${first.id}.state`, image.files.get(a)]]), 43],
    ['a checkpoint among the segments', new Map([[b, image.files.get(`checkpoints/${first.id}.state`)]]), 20],
  ];
  for (const [what, changes, left] of cases) {
    image.write(changes);
    const store = await openStore(undefined, path, home);
    assert.equal(await attempt(store, home, said), left, what);
    await assertBystander(store, bystander);
    await store.close();
  }
});

test('files that are none of plumbline are never touched, and a folder full of them is refused', async (t) => {
  const { path, home, image } = await threeCheckpoints(t);
  image.write();
  const foreign = join(path, 'checkpoints', 'model.state');
  writeFileSync(foreign, 'precious');
  const store = await openStore(undefined, path, home);
  assert.equal(store.health().opened.foreign, 1);
  assert.equal(readFileSync(foreign, 'utf8'), 'precious');
  await store.close();
  const home2 = temporaryFolder(t, 'foreign');
  writeFileSync(join(home2, 'thesis.txt'), 'precious');
  await assert.rejects(openStore(t, home2, home), { code: 'session_store_unusable' });
  assert.deepEqual(readdirSync(home2), ['thesis.txt']);
});

test('a page whose copy on the disk proved bad is written again by the next save', async (t) => {
  const path = join(temporaryFolder(t, 'again'), 'store');
  const home = new StateHome();
  const store = await openStore(t, path, home);
  const one = home.capture(IDS.slice(0, 20));
  await saved(store, one, { session: 'first' });
  const [name] = readdirSync(join(path, 'segments'));
  const bytes = readFileSync(join(path, 'segments', name!));
  bytes[bytes.length - 1]! ^= 1;
  writeFileSync(join(path, 'segments', name!), bytes);
  // Two refer to the segment, so that it stays known when the first of them is found out.
  const keeper = home.capture(IDS.slice(0, 21), { from: one });
  await saved(store, keeper, { session: 'keeper' });
  const longest = store.match(IDS, STAMP);
  assert.ok(longest.kind === 'candidate');
  assert.deepEqual(await store.restore(longest.candidate), { kind: 'rejected', reason: 'checkpoint_damaged' });
  const two = home.capture(IDS.slice(0, 43), { from: one });
  await saved(store, two, { session: 'second' });
  const again = store.match(IDS, STAMP);
  assert.ok(again.kind === 'candidate' && again.candidate.length === 43);
  const outcome = await store.restore(again.candidate);
  assert.ok(outcome.kind === 'restored', JSON.stringify(outcome));
  assert.deepEqual(contents(outcome.capture), contents(two));
  release(outcome.capture);
  for (const capture of [one, keeper, two]) release(capture);
});

// ---- older and newer formats ----

interface OldHeader {
  stamp: { -readonly [Key in keyof StateStamp]?: StateStamp[Key] };
  lineage?: unknown;
  [key: string]: unknown;
}

/** Rewrites the header of the only checkpoint of a lane, with a checksum that holds. */
async function withHeader(t: TestContext, lane: 'ar' | 'mtp', act: (header: OldHeader) => void, version?: number) {
  const path = join(temporaryFolder(t, 'formats'), 'store');
  const home = new StateHome();
  const store = await openStore(undefined, path, home);
  const capture = home.capture(IDS.slice(0, 20), { lane });
  await saved(store, capture, { stamp: lane === 'mtp' ? MTP_STAMP : STAMP });
  const said = contents(capture);
  release(capture);
  await store.close();
  const image = new FolderImage(path);
  const [name, bytes] = [...image.files].find(([file]) => file.startsWith('checkpoints'))!;
  const length = bytes.readUInt32LE(12);
  const header = JSON.parse(bytes.subarray(20, 20 + length).toString()) as OldHeader;
  act(header);
  const head = encodeFrame(CHECKPOINT_MAGIC, header, zlibChecksum, version);
  image.write(new Map([[name, Buffer.concat([head, bytes.subarray(20 + length)])]]));
  return { path, home, said, file: join(path, name) };
}

test('a stored speculative checkpoint without a gate policy is refused, an autoregressive one restores', async (t) => {
  const drop = (header: OldHeader): void => void delete header.stamp.gatePolicy;
  const mtp = await withHeader(t, 'mtp', drop);
  const refusing = await openStore(t, mtp.path, mtp.home);
  assert.deepEqual(refusing.match(IDS, MTP_STAMP), { kind: 'no-match', reason: 'gate_policy_mismatch' });
  assert.ok(existsSync(mtp.file), 'the file is left to ordinary eviction');
  const ar = await withHeader(t, 'ar', drop);
  const store = await openStore(t, ar.path, ar.home);
  const found = store.match(IDS, STAMP);
  assert.ok(found.kind === 'candidate');
  const outcome = await store.restore(found.candidate);
  assert.ok(outcome.kind === 'restored');
  assert.deepEqual(contents(outcome.capture), ar.said);
});

test('a header without a lane counts as speculative, one without a lineage as its own session at epoch 0', async (t) => {
  const lane = await withHeader(t, 'ar', (header) => void delete header.stamp.lane);
  const store = await openStore(t, lane.path, lane.home);
  assert.deepEqual(store.match(IDS, STAMP), { kind: 'no-match', reason: 'lane_mismatch' });
  const lineage = await withHeader(t, 'ar', (header) => void delete header.lineage);
  const fences = fencesOf(([pair]) => pair!.session === 'one' && pair!.epoch < 1);
  const fenced = await openStore(t, lineage.path, lineage.home, { fences });
  assert.deepEqual(fenced.match(IDS, STAMP), { kind: 'no-match', reason: 'no_entry' });
  assert.equal(fenced.health().opened.fenced, 1);
  assert.ok(!existsSync(lineage.file), 'a fenced file is swept');
});

test('a lineage that cannot be read is damage; a file of another version is left alone until room is needed', async (t) => {
  for (const bad of [
    'x',
    [],
    [{ session: 'one' }],
    [{ session: 'one', epoch: -1 }],
    [{ session: 'two', epoch: 0 }],
    null,
  ]) {
    const { path, home, file } = await withHeader(t, 'ar', (header) => void (header.lineage = bad));
    const store = await openStore(t, path, home);
    assert.equal(store.match(IDS, STAMP).kind, 'no-match');
    assert.ok(!existsSync(file), JSON.stringify(bad));
  }
  const { path, home, file } = await withHeader(t, 'ar', () => undefined, 2);
  const store = await openStore(t, path, home);
  assert.equal(store.health().opened.other_versions, 1);
  assert.ok(existsSync(file));
  assert.equal(store.match(IDS, STAMP).kind, 'no-match');
});

test('headers that contradict themselves are refused, though their checksums hold', async (t) => {
  const part = (header: OldHeader, index: number) => (header.parts as Record<string, unknown>[])[index]!;
  const acts: ((header: OldHeader) => void)[] = [
    (header) => void (header.tokens = 21),
    (header) => void (part(header, 0).tokens = 21),
    (header) => void (part(header, 1).tokens = 20),
    (header) => void (part(header, 0).pageTokens = 4),
    (header) => void (part(header, 0).pageBytes = 1),
    (header) => void (part(header, 0).fixedBytes = 1),
    (header) => void (part(header, 0).tailBytes = 2 ** 52),
    (header) => void (part(header, 0).name = 'head'),
    (header) => void (header.hiddenBytes = 3),
    (header) => void (header.segments = []),
    (header) => void (header.sections = []),
    (header) => void (header.session = ''),
    (header) => void (header.extra = 1),
    (header) => void (header.tokens = '20'),
    (header) => void (header.segments = [{ id: '../../../etc/passwd', tableChecksum: 1 }]),
    (header) => void delete header.stamp.modelHash,
  ];
  for (const [number, act] of acts.entries()) {
    const { path, home, file } = await withHeader(t, 'mtp', act);
    const used = home.used;
    const store = await openStore(t, path, home);
    assert.equal(store.match(IDS, MTP_STAMP).kind, 'no-match', `act ${number}`);
    assert.ok(!existsSync(file), `act ${number}`);
    assert.equal(home.used, used);
  }
});
