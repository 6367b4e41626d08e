import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PlumblineError } from '../../../errors.js';
import {
  CountedDoubles,
  plainSampler,
  rowAfter,
  rowOfProbabilities,
  ScriptedDoubles,
  speculativeSampler,
  windowOf,
  type SamplerCase,
} from '../../../../test/support/verify-windows.js';
import type { SampledToken } from '../../sampler.js';
import type { AcceptanceLaw, DraftChoice, WindowOutcome } from '../../speculation.js';
import type { RowContext } from '../../validity.js';

const LAWS: readonly AcceptanceLaw[] = ['plain', 'block', 'coupled'];
const at = (site: string, step: number): RowContext => ({ site, phase: 'verify', step });

const idsOf = ({ accepted, next }: WindowOutcome): { accepted: number[]; next: number | undefined } => ({
  accepted: accepted.map(({ tokenId }) => Number(tokenId)),
  next: next && Number(next.token.tokenId),
});

// ---- draws: which double decides what ----

/** Drafts are uniform over four ids; an id 0 is accepted up to u = 0.5, a correction is 1 below u = 0.5 and 2 above. */
const DRAFT_ROW = rowOfProbabilities([0.25, 0.25, 0.25, 0.25]);
const TARGET_ROW = rowOfProbabilities([0.125, 0.3125, 0.3125, 0.25]);
const ROUNDS: readonly {
  readonly name: string;
  readonly drafts: readonly number[];
  readonly window: readonly number[];
  readonly room?: number;
  readonly accepted: readonly number[];
  readonly next?: number;
  readonly origin?: string;
}[] = [
  {
    name: 'all accepted, then the bonus',
    drafts: [0.1, 0.1, 0.1],
    window: [0.4, 0.4, 0.4, 0.9],
    accepted: [0, 0, 0],
    next: 3,
    origin: 'bonus',
  },
  {
    name: 'rejected at 1',
    drafts: [0.1, 0.1, 0.1],
    window: [0.6, 0.7],
    accepted: [],
    next: 2,
    origin: 'residual_correction',
  },
  {
    name: 'rejected at 2',
    drafts: [0.1, 0.1, 0.1],
    window: [0.4, 0.6, 0.2],
    accepted: [0],
    next: 1,
    origin: 'residual_correction',
  },
  {
    name: 'rejected at 3',
    drafts: [0.1, 0.1, 0.1],
    window: [0.4, 0.4, 0.6, 0.9],
    accepted: [0, 0],
    next: 2,
    origin: 'residual_correction',
  },
  { name: 'no room for a bonus', drafts: [0.1, 0.1, 0.1], window: [0.4, 0.4, 0.4], room: 3, accepted: [0, 0, 0] },
  { name: 'a stop first', drafts: [0.8, 0.1, 0.1], window: [0.9], accepted: [3] },
  { name: 'a stop among the drafts', drafts: [0.1, 0.8, 0.1], window: [0.4, 0.9], accepted: [0, 3] },
  { name: 'a stop last: no bonus behind it', drafts: [0.1, 0.1, 0.8], window: [0.4, 0.4, 0.9], accepted: [0, 0, 3] },
  {
    name: 'a rejection before a stop',
    drafts: [0.1, 0.8, 0.1],
    window: [0.6, 0.7],
    accepted: [],
    next: 2,
    origin: 'residual_correction',
  },
  { name: 'no drafts: the bonus alone', drafts: [], window: [0.9], accepted: [], next: 3, origin: 'bonus' },
];

for (const { name, drafts, window, accepted, next, origin, room = drafts.length + 1 } of ROUNDS) {
  test(`draws of a round: primary, drafts, coins, then one choice: ${name}`, () => {
    const random = new ScriptedDoubles([0.99, ...drafts, ...window]);
    const sampler = speculativeSampler({ vocabSize: 4 }, 'plain', random);
    assert.equal(Number(sampler.next(TARGET_ROW, at('primary', 0)).tokenId), 3);
    const choices = drafts.map((_, i) => sampler.draft(DRAFT_ROW, at('draft', 1 + i)));
    assert.equal(random.left, window.length);
    const outcome = sampler.accept(windowOf(choices, () => TARGET_ROW, { room, stopTokenIds: new Set([3]) }));
    assert.deepEqual(idsOf(outcome), { accepted, next });
    assert.equal(outcome.next?.origin, origin);
    assert.equal(outcome.frontierRow, accepted.length);
    assert.equal(random.left, 0);
  });
}

const settings = fc.record({
  temperature: fc.constantFrom(0.4, 1, 1.6),
  topK: fc.constantFrom(0, 3, 20),
  topP: fc.constantFrom(0.8, 1),
  seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
});

test('one draw a sampled draft, one a decided depth, one for what follows: the same under plain and block', () => {
  fc.assert(
    fc.property(settings, fc.nat(), fc.nat({ max: 4 }), fc.boolean(), (wishes, salt, depth, roomy) => {
      for (const law of ['plain', 'block'] as const) {
        const random = new CountedDoubles(wishes.seed);
        const sampler = speculativeSampler({ ...wishes, vocabSize: 9 }, law, random);
        const text: number[] = [];
        const drafts = Array.from({ length: depth }, (_, i) => {
          const choice = sampler.draft(rowAfter(text, 9, salt, 2), at('draft', i));
          text.push(choice.tokenId);
          return choice;
        });
        assert.equal(random.count, depth);
        const outcome = sampler.accept(
          windowOf(drafts, (i) => rowAfter(text.slice(0, i), 9, salt + 1, 2), { room: depth + (roomy ? 1 : 0) }),
        );
        const { accepted, next } = outcome;
        assert.equal(next === undefined, accepted.length === depth && !roomy);
        const coins = Math.min(accepted.length + 1, depth);
        assert.equal(random.count, depth + coins + (next ? 1 : 0));
      }
    }),
  );
});

test('a double of exactly 0 does not accept what the target excludes', () => {
  const drafts: DraftChoice[] = [{ tokenId: 0 }];
  const row = rowOfProbabilities([0, 0.5, 0.5, 0]);
  for (const law of ['plain', 'block'] as const) {
    const sampler = speculativeSampler({ vocabSize: 4 }, law, new ScriptedDoubles([0, 0]));
    assert.deepEqual(idsOf(sampler.accept(windowOf(drafts, () => row))), { accepted: [], next: 1 });
  }
});

// ---- copied tokens ----

test('copied tokens: the coin is against p, and a correction is any other token', () => {
  const drafts: DraftChoice[] = [{ tokenId: 1 }, { tokenId: 1 }];
  for (const law of ['plain', 'block'] as const) {
    const play = (script: readonly number[]) => {
      const sampler = speculativeSampler({ vocabSize: 4 }, law, new ScriptedDoubles(script));
      return idsOf(sampler.accept(windowOf(drafts, () => TARGET_ROW, { source: 'context_copy' })));
    };
    assert.deepEqual(play([0.31, 0.31, 0.05]), { accepted: [1, 1], next: 0 });
    // Without id 1 the others have 2, 5 and 4 elevenths.
    assert.deepEqual(play([0.32, 0.18]), { accepted: [], next: 0 });
    assert.deepEqual(play([0.31, 0.32, 0.19]), { accepted: [1], next: 2 });
    assert.deepEqual(play([0.32, 0.64]), { accepted: [], next: 3 });
  }
});

test('a copied id that this row can never give is rejected', () => {
  for (const law of LAWS) {
    for (const temperature of [0, 1]) {
      const sampler = speculativeSampler({ vocabSize: 4, tokenizerSize: 3, temperature }, law);
      for (const tokenId of [3, 4, 100]) {
        const outcome = sampler.accept(windowOf([{ tokenId }], () => TARGET_ROW, { source: 'context_copy' }));
        assert.equal(outcome.accepted.length, 0);
        assert.ok(outcome.next === undefined || outcome.next.token.tokenId < 3);
      }
    }
  }
});

// ---- greedy and coupled: the text of plain decoding ----

const textCase = fc.record({
  salt: fc.nat(),
  seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  temperature: fc.constantFrom(0.5, 1, 1.5),
  topK: fc.constantFrom(0, 2, 20),
  topP: fc.constantFrom(0.7, 1),
  presencePenalty: fc.constantFrom(0, 0, 1.5),
  frequencyPenalty: fc.constantFrom(0, 0, 0.7, -0.5),
  rowDtype: fc.constantFrom('f32' as const, 'bf16' as const),
  /** For each round: its depth, and for each draft whether it is right. */
  rounds: fc.array(fc.array(fc.boolean(), { maxLength: 4 }), { minLength: 1, maxLength: 8 }),
  source: fc.constantFrom('draft_head' as const, 'context_copy' as const),
});

const VOCAB = 12;
const STOP = 11;

interface Text {
  readonly tokens: readonly SampledToken[];
  readonly draws: number;
}

function plainText(given: SamplerCase, salt: number, length: number): Text {
  const random = new CountedDoubles(given.seed!);
  const sampler = plainSampler(given, random);
  const tokens: SampledToken[] = [];
  while (tokens.length < length && tokens.at(-1)?.tokenId !== STOP) {
    const text = tokens.map(({ tokenId }) => Number(tokenId));
    tokens.push(sampler.next(rowAfter(text, VOCAB, salt), at('ar_step', tokens.length)));
  }
  return { tokens, draws: random.count };
}

/** Rounds as a loop runs them, over rows that are functions of the text; drafts are right or wrong as told. */
function speculativeText(
  given: SamplerCase,
  law: AcceptanceLaw,
  {
    rounds,
    salt,
    source,
  }: { rounds: readonly (readonly boolean[])[]; salt: number; source: 'draft_head' | 'context_copy' },
  right: readonly SampledToken[],
): Text {
  const random = new CountedDoubles(given.seed!);
  const sampler = speculativeSampler(given, law, random);
  const tokens: SampledToken[] = [];
  const text = (): number[] => tokens.map(({ tokenId }) => Number(tokenId));
  let pending = false;
  for (const round of rounds) {
    if (!pending) tokens.push(sampler.next(rowAfter(text(), VOCAB, salt), at('primary', tokens.length)));
    const before = text();
    if (before.at(-1) === STOP || before.length >= right.length) break;
    const room = right.length - before.length;
    const drafts = round.slice(0, room).map((isRight, i): DraftChoice => {
      const truth = Number(right[before.length + i]!.tokenId);
      const row = rowAfter([isRight ? truth : (truth + 1) % VOCAB], VOCAB, 0, 0.1);
      row[isRight ? truth : (truth + 1) % VOCAB] = 9;
      return source === 'draft_head' ? sampler.draft(row, at('draft', i)) : { tokenId: row.indexOf(9) };
    });
    const path = drafts.map(({ tokenId }) => Number(tokenId));
    const outcome = sampler.accept(
      windowOf(drafts, (i) => rowAfter([...before, ...path.slice(0, i)], VOCAB, salt), {
        room,
        stopTokenIds: new Set([STOP]),
        source,
        step: before.length,
      }),
    );
    tokens.push(...outcome.accepted);
    if (outcome.next) tokens.push(outcome.next.token);
    pending = outcome.next !== undefined;
    if (tokens.at(-1)?.tokenId === STOP) break;
  }
  return { tokens, draws: random.count };
}

for (const law of LAWS) {
  const greedy = law !== 'coupled';
  test(`${greedy ? `greedy, ${law}` : 'coupled at any temperature'}: tokens, log-probabilities and draws of plain decoding`, () => {
    fc.assert(
      fc.property(textCase, ({ rounds, salt, source, temperature, ...wishes }) => {
        const given = {
          ...wishes,
          temperature: greedy ? 0 : temperature,
          vocabSize: VOCAB,
          topLogprobs: 3,
          tokenizerSize: VOCAB,
        };
        const { tokens: right } = plainText(given, salt, 1 + rounds.flat().length + rounds.length);
        const { tokens, draws } = speculativeText(given, law, { rounds, salt, source }, right);
        assert.ok(tokens.length > 0 && tokens.length <= right.length);
        assert.deepEqual(tokens, right.slice(0, tokens.length));
        assert.equal(draws, greedy ? 0 : tokens.length);
      }),
      { numRuns: 200 },
    );
  });
}

test('greedy and coupled rounds accept every right draft, and correct the first wrong one or leave its row', () => {
  const row = rowOfProbabilities([0.1, 0.2, 0.6, 0.1]);
  const drafts = [2, 2, 1, 2].map((tokenId): DraftChoice => ({ tokenId }));
  const greedy = speculativeSampler({ vocabSize: 4, temperature: 0 }, 'plain', new ScriptedDoubles([]));
  assert.equal(greedy.greedy, true);
  const left = greedy.accept(windowOf(drafts, () => row));
  assert.deepEqual(idsOf(left), { accepted: [2, 2], next: undefined });
  assert.equal(left.frontierRow, 2);
  const coupled = speculativeSampler({ vocabSize: 4 }, 'coupled', new ScriptedDoubles([0.5, 0.5, 0.05]));
  const corrected = coupled.accept(windowOf(drafts, () => row));
  assert.deepEqual(idsOf(corrected), { accepted: [2, 2], next: 0 });
  assert.equal(corrected.next?.origin, 'residual_correction');
});

test('greedy targets and the coupled law draft greedily and draw nothing', () => {
  const nothing = new ScriptedDoubles([]);
  for (const law of LAWS) {
    for (const temperature of law === 'coupled' ? [0, 1] : [0]) {
      const sampler = speculativeSampler(
        { vocabSize: 4, temperature, draftFilters: { temperature: 1, topP: 1, topK: 0 } },
        law,
        nothing,
      );
      assert.deepEqual(sampler.draft(TARGET_ROW, at('draft', 1)), { tokenId: 1 });
    }
  }
  const operator = speculativeSampler(
    { vocabSize: 4, draftFilters: { temperature: 0, topP: 1, topK: 0 } },
    'plain',
    nothing,
  );
  assert.deepEqual(operator.draft(TARGET_ROW, at('draft', 1)), { tokenId: 1 });
});

// ---- penalties, log-probabilities, room ----

test('row i of a window is penalised for the tokens and drafts before it; draft rows are not', () => {
  const row = rowOfProbabilities([0.4, 0.3, 0.2, 0.1]);
  const given = { vocabSize: 4, temperature: 0, presencePenalty: 2 };
  for (const law of LAWS) {
    const sampler = speculativeSampler(given, law);
    assert.equal(sampler.penalised, true);
    assert.equal(Number(sampler.next(row, at('primary', 0)).tokenId), 0);
    assert.equal(Number(sampler.draft(row, at('draft', 1)).tokenId), 0);
    const drafts = [1, 2, 2].map((tokenId): DraftChoice => ({ tokenId }));
    assert.deepEqual(idsOf(sampler.accept(windowOf(drafts, () => row))), { accepted: [1, 2], next: undefined });
    // Accepted tokens count, the rejected draft does not: 3 is the only id without a penalty, as with one more row.
    assert.equal(Number(sampler.next(row, at('primary', 3)).tokenId), 3);
  }
  assert.equal(speculativeSampler({ vocabSize: 4 }, 'plain').penalised, false);
});

test('log-probabilities of accepted, corrected and bonus tokens are those of their processed rows', () => {
  const given = { vocabSize: 4, topLogprobs: 4, frequencyPenalty: 1, seed: 3n };
  for (const law of LAWS) {
    for (const wrong of [false, true]) {
      const sampler = speculativeSampler(given, law);
      const rows = [0, 1, 2].map((i) => rowAfter([i], 4, 5));
      const certain = rowOfProbabilities([0, 1, 0, 0]);
      const drafts: DraftChoice[] = [{ tokenId: 1 }, { tokenId: wrong ? 2 : 1 }];
      const { accepted, next } = sampler.accept(windowOf(drafts, (i) => [certain, certain, rows[2]!][i]!));
      const emitted = [...accepted, next!.token];
      assert.equal(emitted.length, wrong ? 2 : 3);
      const plain = plainSampler(given);
      emitted.forEach(({ tokenId, logprob, topLogprobs }, i) => {
        const { topLogprobs: expected } = plain.next(i < 2 ? certain : rows[2]!, at('ar_step', i));
        assert.deepEqual(topLogprobs, expected);
        assert.deepEqual(
          logprob,
          expected!.find((entry) => entry.tokenId === tokenId),
        );
        if (i === 2) return;
        assert.equal(Number(tokenId), 1);
      });
    }
  }
});

test('a window without room for its drafts is a fault of the caller', () => {
  assert.throws(
    () =>
      speculativeSampler({ vocabSize: 4 }, 'plain').accept(windowOf([{ tokenId: 1 }], () => TARGET_ROW, { room: 0 })),
    (thrown) => thrown instanceof PlumblineError && thrown.code === 'internal_error',
  );
});
