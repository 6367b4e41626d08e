import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Bank, type BankMatch } from './bank.js';
import { NO_FENCES } from './fence-view.js';
import type { Capture, CaptureKind, Holding, Lane, StateValue } from './types.js';

/** A value that counts its holders and keeps given pieces of memory alive. */
class Value implements StateValue {
  holders = 1;

  constructor(
    readonly length: number,
    readonly pieces: readonly Holding[],
  ) {}

  retain(): this {
    assert.ok(this.holders > 0);
    this.holders++;
    return this;
  }

  release(): void {
    assert.ok(this.holders > 0, 'released once too often');
    this.holders--;
  }

  holdings(): readonly Holding[] {
    assert.ok(this.holders > 0, 'asked after the last release');
    return this.pieces;
  }
}

const KIB = 1024;
const piece = (): Holding => ({ key: {}, bytes: KIB });

function capture(length: number, pieces: readonly Holding[] = [piece()], kind: CaptureKind = 'turn'): Capture<Value> {
  return { kind, tokens: Int32Array.from({ length }, (_, i) => i), trunk: new Value(length, pieces) };
}

const owner = (session: string, lane: Lane = 'ar') => ({ session, lane, lineage: [{ session, epoch: 0 }] });
const prompt = (length: number): number[] => Array.from({ length }, (_, i) => i);
const lengthOf = (match: BankMatch<Value>): number | string =>
  match.kind === 'found' ? match.entry.capture.tokens.length : match.reason;

test('the longest beginning is found, one token of the prompt is left over, and lanes stay apart', () => {
  const bank = new Bank<Value>(100 * KIB, NO_FENCES);
  for (const length of [3, 5, 8]) assert.equal(bank.put(capture(length), owner('a')), 'stored');
  assert.deepEqual(
    [3, 4, 5, 6, 8, 9, 20].map((length) => lengthOf(bank.match(prompt(length), 'ar', 'b'))),
    ['no_entry', 3, 3, 5, 5, 8, 8],
  );
  assert.equal(lengthOf(bank.match([9, 1, 2, 3], 'ar', 'a')), 'no_entry');
  assert.equal(lengthOf(bank.match(prompt(9), 'mtp', 'a')), 'lane_mismatch');
});

test('of equal entries the own one is found, then the newest; the same session replaces its own', () => {
  const bank = new Bank<Value>(100 * KIB, NO_FENCES);
  const first = capture(4);
  bank.put(first, owner('a'));
  bank.put(capture(4), owner('b'));
  const sessionOf = (asking: string): string | undefined => {
    const match = bank.match(prompt(6), 'ar', asking);
    return match.kind === 'found' ? match.entry.session : undefined;
  };
  assert.deepEqual(['a', 'b', 'c'].map(sessionOf), ['a', 'b', 'b']);
  bank.put(capture(4), owner('a'));
  assert.equal(bank.stats().entries, 2);
  assert.equal(first.trunk.holders, 1, 'the replaced one was given back');
});

test('memory that entries share is counted once, and given back with the last of them', () => {
  const bank = new Bank<Value>(100 * KIB, NO_FENCES);
  const shared = piece();
  bank.put(capture(4, [shared, piece()]), owner('a'));
  const one = bank.stats().usedBytes;
  bank.put(capture(8, [shared, piece()]), owner('a'));
  assert.equal(bank.stats().usedBytes - one, KIB + 8 * 4, 'one piece and the ids');
  bank.dropSession('a');
  assert.equal(bank.stats().usedBytes, 0);
});

test('eviction: superseded ones first, then chunks, prompts, turns, each the longest unused first; pinned ones stay', () => {
  const bank = new Bank<Value>(5 * KIB, NO_FENCES);
  const put = (length: number, session: string, kind: CaptureKind): void => {
    assert.equal(bank.put(capture(length, [{ key: {}, bytes: 900 }], kind), owner(session)), 'stored');
  };
  const left = (): string[] =>
    bank.entries().map(({ session, capture: { kind, tokens } }) => `${session} ${kind} ${tokens.length}`);
  put(4, 'old', 'turn');
  put(5, 'talk', 'turn');
  put(9, 'talk', 'turn'); // makes the one before it superfluous
  put(6, 'other', 'chunk');
  put(7, 'third', 'prompt');
  put(8, 'new', 'turn');
  assert.ok(!left().includes('talk turn 5'), 'superseded');
  put(8, 'newer', 'turn');
  assert.ok(!left().includes('other chunk 6'), 'then a chunk');
  put(8, 'newest', 'turn');
  assert.ok(!left().includes('third prompt 7'), 'then a prompt');
  const oldest = bank.entries().find(({ session }) => session === 'old')!;
  const unpin = bank.pin(oldest);
  put(8, 'last', 'turn');
  assert.deepEqual(left().sort(), ['last turn 8', 'new turn 8', 'newer turn 8', 'newest turn 8', 'old turn 4']);
  unpin();
  put(8, 'final', 'turn');
  assert.ok(!left().includes('old turn 4'), 'no longer waited for');
  assert.ok(bank.stats().usedBytes <= 5 * KIB);
});

test('what alone is more than the budget is not stored, nor what finds everything pinned; both leave nothing behind', () => {
  const bank = new Bank<Value>(2 * KIB, NO_FENCES);
  const large = capture(3, [{ key: {}, bytes: 4 * KIB }]);
  assert.equal(bank.put(large, owner('a')), 'no_room');
  assert.equal(large.trunk.holders, 1);
  bank.put(capture(3, [{ key: {}, bytes: 1500 }]), owner('a'));
  bank.pin(bank.entries()[0]!);
  assert.equal(bank.put(capture(3, [{ key: {}, bytes: 1500 }]), owner('b')), 'no_room');
  assert.deepEqual(
    bank.entries().map(({ session }) => session),
    ['a'],
  );
});

test('a fence refuses what is put and hides what is there; a drop takes everything that grew from the session', () => {
  let epoch = 0;
  const isFenced = (lineage: readonly { session: string; epoch: number }[]): boolean =>
    lineage.some((pair) => pair.session === 'a' && pair.epoch < epoch);
  const bank = new Bank<Value>(100 * KIB, {
    ...NO_FENCES,
    mayPublish: (lineage) => !isFenced(lineage),
    mayRestore: (_, lineage) => !isFenced(lineage),
  });
  const lineage = [
    { session: 'a', epoch: 0 },
    { session: 'fork', epoch: 0 },
  ];
  bank.put(capture(3, undefined, 'prompt'), owner('a'));
  bank.put(capture(5), { session: 'fork', lane: 'ar', lineage });
  bank.put(capture(2), owner('healthy'));
  epoch = 1;
  assert.equal(bank.put(capture(4), owner('a')), 'fenced');
  assert.equal(lengthOf(bank.match(prompt(9), 'ar', 'fork')), 2, 'the healthy one alone');
  assert.deepEqual(bank.dropSession('a'), { prefix: 1, resident: 1, leases: 0 });
  assert.deepEqual(
    bank.entries().map(({ session }) => session),
    ['healthy'],
  );
  const cold = new Bank<Value>(KIB, { ...NO_FENCES, stateOf: () => 'cold' });
  assert.equal(lengthOf(cold.match(prompt(9), 'ar', 'a')), 'session_fenced');
});
