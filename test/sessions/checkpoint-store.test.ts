/** What is stored comes back as the same bytes, to whom it may, and costs the disk no more than what is new. */
import assert from 'node:assert/strict';
import { readdirSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { StateStamp } from '../../src/sessions/types.js';
import type { Candidate } from '../../src/sessions/checkpoints/store.js';
import { temporaryFolder } from '../support/repository.js';
import {
  contents,
  idsOf,
  MTP_STAMP,
  PAGE_TOKENS,
  release,
  STAMP,
  StateHome,
  type CaptureOptions,
} from '../support/session-states.js';
import { fencesOf, openStore, ROOMY, saved, type SaveSpec, type TestStore } from '../support/session-store.js';

function matched(store: TestStore, tokens: readonly number[], stamp = STAMP): Candidate {
  const found = store.match(tokens, stamp);
  assert.equal(found.kind, 'candidate', JSON.stringify(found));
  return (found as { candidate: Candidate }).candidate;
}

async function restored(store: TestStore, tokens: readonly number[], stamp?: StateStamp) {
  const outcome = await store.restore(matched(store, tokens, stamp));
  assert.equal(outcome.kind, 'restored', JSON.stringify(outcome));
  return outcome.capture;
}

/** Saves a capture, releases it, and gives what it said. */
async function keep(
  store: TestStore,
  home: StateHome,
  tokens: readonly number[],
  options: CaptureOptions & SaveSpec = {},
) {
  const capture = home.capture(tokens, options);
  const said = contents(capture);
  const outcome = await saved(store, capture, { stamp: options.lane === 'mtp' ? MTP_STAMP : STAMP, ...options });
  release(capture);
  assert.equal(outcome.kind, 'stored', JSON.stringify(outcome));
  return said;
}

test('every length around page and block boundaries comes back as it was, in both lanes, also after a restart', async (t) => {
  const path = join(temporaryFolder(t, 'sessions'), 'store');
  const home = new StateHome();
  const before = home.used;
  const said = new Map<string, ReturnType<typeof contents>>();
  const first = await openStore(undefined, path, home);
  const lengths = [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 100];
  for (const lane of ['ar', 'mtp'] as const) {
    for (const length of lengths) {
      said.set(`${lane}${length}`, await keep(first, home, idsOf(length, 7), { lane, session: `${lane}${length}` }));
    }
  }
  await first.close();
  assert.equal(home.used, before, 'saving keeps nothing');
  const second = await openStore(t, path, home);
  for (const lane of ['ar', 'mtp'] as const) {
    for (const length of lengths) {
      // One more token than stored: exactly this one matches.
      const capture = await restored(second, idsOf(length + 1, 7), lane === 'mtp' ? MTP_STAMP : STAMP);
      assert.deepEqual(contents(capture), said.get(`${lane}${length}`), `${lane} ${length}`);
      release(capture);
    }
  }
  assert.equal(home.used, before, 'restoring keeps nothing');
});

test('the longest proper prefix wins, another history never matches, and the newest of equal ones is taken', async (t) => {
  const home = new StateHome();
  const store = await openStore(t, join(temporaryFolder(t, 'sessions'), 'store'), home);
  const ids = idsOf(40);
  for (const length of [10, 20, 30]) await keep(store, home, ids.slice(0, length), { session: `s${length}` });
  assert.equal(matched(store, ids).length, 30);
  assert.equal(matched(store, ids.slice(0, 30)).length, 20, 'one token must be left to compute');
  assert.equal(matched(store, ids.slice(0, 11)).length, 10);
  assert.deepEqual(store.match(ids.slice(0, 10), STAMP), { kind: 'no-match', reason: 'no_entry' });
  const edited = [...ids];
  edited[15] = 1;
  assert.equal(matched(store, edited).length, 10, 'an edited history goes back before the edit');
  edited[3] = 1;
  assert.equal(store.match(edited, STAMP).kind, 'no-match');
  await keep(store, home, ids.slice(0, 30), { session: 'newer' });
  assert.equal(matched(store, ids).session, 'newer');
});

test('a later turn writes its new pages once, and shares the others, also after a restart', async (t) => {
  const path = join(temporaryFolder(t, 'sessions'), 'store');
  const home = new StateHome();
  const first = await openStore(undefined, path, home);
  const ids = idsOf(60);
  const one = home.capture(ids.slice(0, 20));
  await saved(first, one);
  const two = home.capture(ids.slice(0, 43), { from: one });
  const outcome = await saved(first, two);
  assert.equal(outcome.kind, 'stored');
  const { trunk } = home.codecs;
  const bytes = (outcome as { bytes: { pages: number; fixed: number } }).bytes;
  assert.equal(bytes.pages, 3 * trunk.pageBytes, 'pages 2, 3 and 4; 0 and 1 are there');
  assert.equal(bytes.fixed, trunk.fixedBytes);
  const said = contents(two);
  release(one);
  release(two);
  await first.close();

  const second = await openStore(t, path, home);
  const back = await restored(second, ids);
  assert.deepEqual(contents(back), said);
  const three = home.capture(ids.slice(0, 50), { from: back });
  const third = await saved(second, three);
  assert.equal(third.kind === 'stored' && third.bytes.pages, trunk.pageBytes, 'restored pages keep their place');
  release(back);
  release(three);
  await second.dropSession('one');
  assert.deepEqual(readdirSync(join(path, 'segments')), [], 'segments go with the last checkpoint that needs them');
});

test('a page that is written over after it was stored is stored again', async (t) => {
  const home = new StateHome();
  const store = await openStore(t, join(temporaryFolder(t, 'sessions'), 'store'), home);
  const ids = idsOf(PAGE_TOKENS - 1);
  const base = home.capture(ids);
  const left = home.capture([...ids, 1, 2], { from: base });
  await saved(store, left, { session: 'left' });
  release(left); // nobody holds the eighth token any more: the next one takes its place in the same page
  const right = home.capture([...ids, 3, 4], { from: base });
  await saved(store, right, { session: 'right' });
  const said = contents(right);
  release(right);
  release(base);
  const back = await restored(store, [...ids, 3, 4, 5]);
  assert.deepEqual(contents(back), said);
  release(back);
});

test('what is stored again takes the place of what says the same, and of nothing else', async (t) => {
  const path = join(temporaryFolder(t, 'sessions'), 'store');
  const home = new StateHome();
  const store = await openStore(t, path, home);
  const ids = idsOf(21);
  const files = (): number => readdirSync(store.folder.checkpoints).length;
  await keep(store, home, ids.slice(0, 20));
  const letGo = store.hold(matched(store, ids));
  const said = await keep(store, home, ids.slice(0, 20));
  assert.equal(store.entries().length, 2, 'somebody waits for the older one');
  letGo();
  await keep(store, home, ids.slice(0, 20));
  await store.sweep();
  assert.deepEqual([store.entries().length, files()], [1, 1]);
  await keep(store, home, ids.slice(0, 20), { session: 'other' });
  await keep(store, home, ids.slice(0, 20), { lane: 'mtp' });
  await keep(store, home, ids.slice(0, 20), { kind: 'prompt' });
  await keep(store, home, ids.slice(0, 19));
  const grown = [{ session: 'grown from', epoch: 0 }, ...store.entries('one')[0]!.lineage];
  await keep(store, home, ids.slice(0, 20), { lineage: grown });
  await store.sweep();
  assert.deepEqual([store.entries().length, files()], [6, 6]);
  const back = await restored(store, ids);
  assert.deepEqual(contents(back), said);
  release(back);
});

test('a stamp that differs never matches, and the reason is told', async (t) => {
  const home = new StateHome();
  const store = await openStore(t, join(temporaryFolder(t, 'sessions'), 'store'), home);
  const ids = idsOf(21);
  await keep(store, home, ids.slice(0, 20), { session: 'ar' });
  for (const key of ['family', 'modelHash', 'activationLaw', 'floatLaw', 'engineLaw', 'layoutHash'] as const) {
    assert.deepEqual(
      store.match(ids, { ...STAMP, [key]: 'other' }),
      { kind: 'no-match', reason: 'stamp_mismatch' },
      key,
    );
  }
  assert.deepEqual(store.match(ids, MTP_STAMP), { kind: 'no-match', reason: 'lane_mismatch' });
  matched(store, ids, { ...STAMP, gatePolicy: 'gate-1:uniform' });
  matched(store, ids, { ...STAMP, gatePolicy: undefined });

  await keep(store, home, ids.slice(0, 19), { lane: 'mtp', session: 'mtp' });
  assert.equal(matched(store, ids, MTP_STAMP).length, 19);
  for (const gatePolicy of ['gate-1:uniform', 'gate-2:strict', undefined]) {
    const found = store.match(ids, { ...MTP_STAMP, gatePolicy });
    assert.deepEqual(found, { kind: 'no-match', reason: 'gate_policy_mismatch' }, 'nearer than the other lane');
  }
  await store.dropSession('ar');
  assert.deepEqual(store.match(ids, { ...MTP_STAMP, draftHead: false }), {
    kind: 'no-match',
    reason: 'stamp_mismatch',
  });
});

test('an autoregressive checkpoint of a policy that nobody knows is refused', async (t) => {
  const home = new StateHome();
  const store = await openStore(t, join(temporaryFolder(t, 'sessions'), 'store'), home);
  const ids = idsOf(21);
  await keep(store, home, ids.slice(0, 20), { stamp: { ...STAMP, gatePolicy: 'gate-9:strange' } });
  assert.deepEqual(store.match(ids, STAMP), { kind: 'no-match', reason: 'gate_policy_mismatch' });
});

test('without memory a restore is rejected with nothing taken, and works when there is some', async (t) => {
  const path = join(temporaryFolder(t, 'sessions'), 'store');
  const home = new StateHome({ fixedSlabs: 3, pages: 8 });
  const store = await openStore(t, path, home);
  const ids = idsOf(40);
  await keep(store, home, ids.slice(0, 39), { lane: 'mtp' });
  const hog = home.state(idsOf(40, 3));
  const used = home.used;
  const outcome = await store.restore(matched(store, ids, MTP_STAMP));
  assert.deepEqual(outcome, { kind: 'rejected', reason: 'no_memory' });
  assert.equal(home.used, used);
  hog.release();
  release(await restored(store, ids, MTP_STAMP));
});

test('a fence that rises while a checkpoint is read, or written, is seen', async (t) => {
  const home = new StateHome();
  let fenced = '';
  const fences = fencesOf((lineage) => lineage.some((pair) => pair.session === fenced));
  const store = await openStore(t, join(temporaryFolder(t, 'sessions'), 'store'), home, { fences });
  const ids = idsOf(40);
  await keep(store, home, ids.slice(0, 20), { session: 'a' });
  await keep(store, home, ids.slice(0, 30), {
    session: 'b',
    lineage: [
      { session: 'a', epoch: 0 },
      { session: 'b', epoch: 0 },
    ],
  });
  const candidate = matched(store, ids);
  const pending = store.restore(candidate);
  fenced = 'a';
  assert.deepEqual(await pending, { kind: 'rejected', reason: 'session_fenced' });
  assert.deepEqual(store.match(ids, STAMP), { kind: 'no-match', reason: 'session_fenced' });
  fenced = '';
  matched(store, ids);

  const capture = home.capture(ids.slice(0, 35));
  const save = saved(store, capture, { session: 'a' });
  fenced = 'a';
  assert.deepEqual(await save, { kind: 'not-stored', reason: 'session_fenced' });
  release(capture);
  const dropped = await store.dropFenced();
  assert.deepEqual(dropped, { checkpoints: 2, indexRows: 2, blobsKeptShared: 0, pendingSaves: 0 });
  for (const folder of ['checkpoints', 'segments', 'staging']) {
    assert.deepEqual(readdirSync(join(store.folder.path, folder)), [], folder);
  }
});

test('of a session only the newest waits, a dropped one is not written, and every value is given back', async (t) => {
  const home = new StateHome();
  const before = home.used;
  const store = await openStore(t, join(temporaryFolder(t, 'sessions'), 'store'), home, { mostWaiting: 3 });
  const outcomes = new Map<string, Promise<{ kind: string; reason?: string }>>();
  const put = (session: string, length: number): void => {
    const capture = home.capture(idsOf(length, session === 'a' ? 1 : length));
    outcomes.set(`${session}${length}`, saved(store, capture, { session }));
    release(capture);
  };
  put('a', 10); // is written at once
  put('a', 11);
  put('a', 12);
  put('b', 13);
  put('c', 14);
  put('d', 15); // one too many: the oldest that waits gives way
  assert.equal(store.cancelSaves('b'), 1);
  assert.equal(store.cancelSaves('b'), 0);
  const told = await Promise.all(
    [...outcomes].map(async ([name, outcome]) => {
      const { kind, reason } = await outcome;
      return [name, reason ?? kind];
    }),
  );
  assert.deepEqual(Object.fromEntries(told), {
    a10: 'stored',
    a11: 'superseded',
    a12: 'queue_full',
    b13: 'dropped',
    c14: 'stored',
    d15: 'stored',
  });
  put('e', 16);
  assert.equal(store.cancelSaves('e'), 1, 'also while it is written');
  assert.deepEqual((await outcomes.get('e16')!).reason, 'dropped');
  assert.equal(store.match(idsOf(17, 16), STAMP).kind, 'no-match');
  assert.equal(home.used, before);
});

test('a state goes on in another home as it would have in its own', async (t) => {
  const path = join(temporaryFolder(t, 'sessions'), 'store');
  const here = new StateHome();
  const there = new StateHome();
  const store = await openStore(undefined, path, here);
  const said = await keep(store, here, idsOf(50), { lane: 'mtp' });
  await store.close();
  const other = await openStore(t, path, there);
  const back = await restored(other, idsOf(51), MTP_STAMP);
  assert.deepEqual(contents(back), said);
  const grown = there.capture(idsOf(70), { from: back, lane: 'mtp' });
  assert.deepEqual(contents(grown), contents(here.capture(idsOf(70), { lane: 'mtp' })));
  release(grown);
  release(back);
});

test('what goes first after a restart is what was unused longest before it, whatever the clock says', async (t) => {
  const path = join(temporaryFolder(t, 'sessions'), 'store');
  const home = new StateHome();
  const open = (options: object = {}) => openStore(undefined, path, home, options);
  const first = await open();
  const captures = [1, 2, 3, 4].map((seed) => home.capture(idsOf(20, seed)));
  for (const [i, capture] of captures.entries()) await saved(first, capture, { session: `s${i}` });
  const use = async (store: TestStore, seed: number): Promise<void> => release(await restored(store, idsOf(21, seed)));
  await use(first, 1);
  await use(first, 2);
  await first.close();
  for (const name of readdirSync(join(path, 'checkpoints'))) utimesSync(join(path, 'checkpoints', name), 5, 5);

  const second = await open();
  const { bytes } = second;
  const late = home.capture(idsOf(20, 5));
  await saved(second, late, { session: 's4' }); // stored after the order was written, and not used
  await second.close();

  const third = await open({ budget: { ...ROOMY, bytes: bytes + 10 } });
  const order: string[] = [];
  for (const seed of [6, 7, 8, 9]) {
    const before = new Set(third.entries().map(({ session }) => session));
    const newcomer = home.capture(idsOf(20, seed));
    await saved(third, newcomer, { session: `new${seed}` });
    release(newcomer);
    const after = new Set(third.entries().map(({ session }) => session));
    order.push(...[...before].filter((session) => !after.has(session)).sort());
  }
  for (const capture of [...captures, late]) release(capture);
  await third.close();
  assert.deepEqual(order.slice(0, 5), ['s2', 's3', 's0', 's1', 's4']);
});
