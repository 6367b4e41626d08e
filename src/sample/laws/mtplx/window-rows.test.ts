/**
 * Invalid rows of a round: whichever row is reached first raises, before anything is drawn from it, and nothing was
 * emitted or counted; rows that are not reached never raise, and are not even looked at.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NonFiniteLogitsError } from '../../../errors.js';
import {
  CountedDoubles,
  plainSampler,
  rowAfter,
  rowOnly,
  speculativeSampler,
  windowOf,
} from '../../../../test/support/verify-windows.js';
import type { AcceptanceLaw, DraftChoice, Window } from '../../speculation.js';
import type { RowContext } from '../../validity.js';

const VOCAB = 8;
const RIGHT = 3;
const WRONG = 5;
const STEP = 40;

const filled = (fill: number, entries: Readonly<Record<number, number>> = {}): Float32Array =>
  Object.entries(entries).reduce((row, [id, value]) => row.with(Number(id), value), new Float32Array(VOCAB).fill(fill));

const BAD = [
  { name: 'all NaN', row: filled(Number.NaN), nanCount: 8, infCount: 0 },
  { name: 'one NaN behind the maximum', row: filled(0, { 2: 9, 7: Number.NaN }), nanCount: 1, infCount: 0 },
  { name: 'a NaN first', row: filled(0, { 0: Number.NaN }), nanCount: 1, infCount: 0 },
  { name: '+inf', row: filled(0, { [RIGHT]: Infinity }), nanCount: 0, infCount: 1 },
  { name: 'all -inf', row: filled(-Infinity), nanCount: 0, infCount: 8 },
];

interface Setting {
  readonly name: string;
  readonly law: AcceptanceLaw;
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
}

const SETTINGS: readonly Setting[] = (['plain', 'block', 'coupled'] as const).flatMap((law) =>
  [
    { temperature: 0, topK: 0, topP: 1 },
    { temperature: 0.6, topK: 3, topP: 0.95 },
    { temperature: 1, topK: 3, topP: 1 },
    { temperature: 1, topK: 0, topP: 1 },
  ].map((filters) => ({
    ...filters,
    law,
    name: `${law}, T ${filters.temperature}, top_k ${filters.topK}, top_p ${filters.topP}`,
  })),
);

const raises = (run: () => unknown, census: object, message: string): void => {
  assert.throws(run, (thrown) => {
    assert.ok(thrown instanceof NonFiniteLogitsError, message);
    assert.deepEqual(thrown.census, census, message);
    return true;
  });
};

/** Draws of a window before row `reached` is looked at, when the drafts before it were accepted. */
function drawsBefore({ law, temperature }: Setting, reached: number, depth: number): number {
  if (temperature === 0) return 0;
  return law === 'block' && reached < depth ? 0 : reached;
}

/** A sampler behind its first token, with penalties on, so that counts show; and what it would say of a row. */
function started({ law, ...filters }: Setting, penalised = true) {
  const random = new CountedDoubles(11n);
  const penalties = penalised ? { presencePenalty: 0.5, frequencyPenalty: 0.25 } : {};
  const given = { ...filters, ...penalties, vocabSize: VOCAB, topLogprobs: VOCAB };
  const sampler = speculativeSampler(given, law, random);
  sampler.next(rowOnly(1, VOCAB), { site: 'primary', phase: 'verify', step: STEP - 1 });
  random.count = 0;
  return { random, sampler, given };
}

/** The log-probabilities that the next row gets: they tell what was counted. */
function counted({ sampler, given }: ReturnType<typeof started>, message: string): void {
  const row = rowAfter([1], VOCAB, 9);
  const twin = plainSampler(given);
  const context: RowContext = { site: 'primary', phase: 'verify', step: STEP };
  twin.next(rowOnly(1, VOCAB), context);
  assert.deepEqual(sampler.next(row, context).topLogprobs, twin.next(row, context).topLogprobs, message);
}

/** `depth` point-mass drafts, right but for the one at index `wrongAt`; rows are certain but for the bad one. */
function windowCase(
  depth: number,
  bad: { at: number; row: Float32Array } | undefined,
  wrongAt = depth,
): { window: Window; seen: number[] } {
  const drafts = Array.from({ length: depth }, (_, i): DraftChoice => ({ tokenId: i === wrongAt ? WRONG : RIGHT }));
  const seen: number[] = [];
  const row = (index: number): Float32Array => {
    seen.push(index);
    return index === bad?.at ? bad.row : rowOnly(RIGHT, VOCAB);
  };
  return { window: windowOf(drafts, row, { step: STEP }), seen };
}

for (const setting of SETTINGS) {
  test(`a bad draft row raises at its depth: ${setting.name}`, () => {
    for (const { name, row, ...census } of BAD) {
      for (let depth = 1; depth <= 3; depth++) {
        const start = started(setting);
        const { sampler, random } = start;
        const context = (i: number): RowContext => ({ site: 'draft', phase: 'draft', step: STEP + i });
        for (let i = 0; i + 1 < depth; i++) sampler.draft(rowAfter([i], VOCAB), context(i));
        const before = random.count;
        const message = `${name}, depth ${depth}`;
        raises(
          () => sampler.draft(row, context(depth - 1)),
          { ...context(depth - 1), ...census, vocabSize: VOCAB },
          message,
        );
        assert.equal(random.count, before, message);
        assert.equal(before, setting.temperature === 0 || setting.law === 'coupled' ? 0 : depth - 1);
        counted(start, message);
      }
    }
  });

  test(`a bad target or bonus row raises when it is reached, with the draws before it spent: ${setting.name}`, () => {
    for (const { name, row, ...census } of BAD) {
      for (const source of ['draft_head', 'context_copy'] as const) {
        for (let depth = 0; depth <= 3; depth++) {
          for (let at = 0; at <= depth; at++) {
            const start = started(setting);
            const { window, seen } = windowCase(depth, { at, row });
            const message = `${name}, ${source}, depth ${depth}, row ${at}`;
            const site = at < depth ? 'verify' : 'bonus';
            const want = { site, phase: 'verify', step: STEP + at, ...census, vocabSize: VOCAB };
            raises(() => start.sampler.accept({ ...window, source }), want, message);
            assert.deepEqual(
              seen,
              Array.from({ length: at + 1 }, (_, i) => i),
              message,
            );
            const law = source === 'context_copy' && setting.law === 'block' ? 'plain' : setting.law;
            assert.equal(start.random.count, drawsBefore({ ...setting, law }, at, depth), message);
            counted(start, message);
          }
        }
      }
    }
  });

  test(`a bad row behind a rejection, a stop or the room is not reached: ${setting.name}`, () => {
    for (const { name, row } of BAD) {
      for (let depth = 1; depth <= 3; depth++) {
        for (let at = 0; at <= depth; at++) {
          for (let wrongAt = 0; wrongAt < depth; wrongAt++) {
            const { window, seen } = windowCase(depth, { at, row }, wrongAt);
            const message = `${name}, depth ${depth}, row ${at}, rejection at ${wrongAt}`;
            const { sampler, random } = started(setting);
            // The block law looks at every row that decides a draft before the first coin.
            const armed = setting.law === 'block' && setting.temperature > 0;
            if (at <= wrongAt || (armed && at < depth)) {
              assert.throws(() => sampler.accept(window), NonFiniteLogitsError, message);
              continue;
            }
            const { accepted, next } = sampler.accept(window);
            assert.equal(accepted.length, wrongAt, message);
            assert.equal(next === undefined, setting.temperature === 0, message);
            if (next) assert.equal(Number(next.token.tokenId), RIGHT);
            assert.deepEqual(new Set(seen), new Set(Array.from({ length: armed ? depth : wrongAt + 1 }, (_, i) => i)));
            if (setting.temperature > 0) assert.equal(random.count, wrongAt + (setting.law === 'coupled' ? 1 : 2));
          }
        }
        const bonus = { at: depth, row };
        const roomless = windowCase(depth, bonus);
        const full = started(setting).sampler.accept({ ...roomless.window, room: depth });
        assert.equal(full.accepted.length, depth);
        assert.equal(full.next, undefined);
        const stopped = windowCase(depth, bonus);
        const { accepted, next } = started(setting).sampler.accept({
          ...stopped.window,
          stopTokenIds: new Set([RIGHT]),
        });
        assert.deepEqual([accepted.length, next], [1, undefined], name);
      }
    }
  });

  test(`a row that masking or the division by T empties raises like an invalid one: ${setting.name}`, () => {
    const { name, law, ...filters } = setting;
    const sampler = speculativeSampler({ ...filters, vocabSize: VOCAB, tokenizerSize: 6 }, law, new CountedDoubles(1n));
    const beyond = rowOnly(7, VOCAB);
    const census = { nanCount: 0, infCount: 8, vocabSize: VOCAB };
    const draft: RowContext = { site: 'draft', phase: 'draft', step: STEP };
    raises(() => sampler.draft(beyond, draft), { ...draft, ...census }, name);
    const { window } = windowCase(2, { at: 1, row: beyond });
    raises(() => sampler.accept(window), { site: 'verify', phase: 'verify', step: STEP + 1, ...census }, name);

    if (filters.temperature === 0) return;
    const cold = speculativeSampler({ ...filters, temperature: 1e-310, vocabSize: VOCAB }, law, new CountedDoubles(1n));
    const steep = windowCase(2, { at: 1, row: filled(1) });
    // Certain rows overflow too: the first is the one that raises.
    const first = { site: 'verify', phase: 'verify', step: STEP, nanCount: 0, infCount: 7, vocabSize: VOCAB };
    raises(() => cold.accept(steep.window), first, name);
  });
}

test('valid rows of the same windows raise nothing', () => {
  for (const setting of SETTINGS) {
    for (let depth = 0; depth <= 3; depth++) {
      const { accepted, next } = started(setting, false).sampler.accept(windowCase(depth, undefined).window);
      assert.equal(accepted.length, depth);
      assert.equal(Number(next?.token.tokenId), RIGHT);
    }
  }
});

test('a window is asked for each row once, in order, whatever the law', () => {
  for (const setting of SETTINGS) {
    const { window, seen } = windowCase(3, undefined);
    started(setting).sampler.accept(window);
    assert.deepEqual(seen, [0, 1, 2, 3], setting.name);
  }
});
