import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { ResolvedSampling } from '../../resolve-sampling.js';
import { createSampler, createSpeculativeSampler, samplingRules, type SamplingGuide } from '../../sampler.js';
import type { RowContext } from '../../validity.js';
import { chooseId } from './choose.js';
import { DS4 } from './constants.js';
import { settleKnobs } from './knobs.js';
import { logprobOf, logSumExp } from './logprobs.js';
import { DescendingIds, greedyWithout } from './scans.js';
import { Xorshift64Star } from '../../rng/xorshift64star.js';

const { NaN: nan } = Number;
const inf = Infinity;
const CONTEXT: RowContext = { site: 'ar_step', phase: 'decode', step: 0 };
const settings = (more: Partial<ResolvedSampling> = {}): ResolvedSampling => ({
  ...samplingRules('ds4').defaults,
  seed: 1n,
  ...more,
});

/** The token, and whether a number was drawn. */
function choose(row: readonly number[], more: Partial<ResolvedSampling>): [token: number, draws: number] {
  const random = new Xorshift64Star(1n, DS4.random);
  const token = chooseId(Float32Array.from(row), settleKnobs(settings(more), row.length, DS4), random, DS4);
  return [token, random.state === 1n ? 0 : 1];
}

const COLUMNS = [{ temperature: 0 }, {}, { topP: 0.9 }, { topK: 2 }] as const;

/** Row, then the token of each column; a negative number -1 - t is t without a draw. */
const BAD_ROWS: readonly (readonly [row: readonly number[], tokens: readonly number[]])[] = [
  [
    [nan, nan, nan],
    [-1, -1, -1, -1],
  ],
  [
    [-inf, -inf, -inf],
    [-1, -1, -1, -1],
  ],
  [
    [inf, inf, inf],
    [-1, -1, -1, -1],
  ],
  [
    [nan, -inf, 5, 1],
    [-3, 2, 2, 2],
  ],
  [
    [1, inf, 5, inf],
    [-2, 2, 2, 2],
  ],
  [
    [nan, 2, nan, 2],
    [-2, 1, 1, 1],
  ],
  [
    [-2e30, -1.5e30, -inf, nan, -3e30],
    [-1, -1, -1, 1],
  ],
  [
    [-2e30, -2e30, -2e30],
    [-1, -1, -1, 0],
  ],
  [
    [nan, -inf, -2e30, inf, inf, 1, nan, 0, 2],
    [-4, 7, 8, 8],
  ],
];

test('rows that are no numbers give the tokens of the law, and draw where it says', () => {
  for (const [row, tokens] of BAD_ROWS) {
    const expected = tokens.map((token) => (token < 0 ? [-1 - token, 0] : [token, 1]));
    assert.deepEqual(
      COLUMNS.map((column) => choose(row, column)),
      expected,
      row.join(),
    );
  }
});

test('the golden tokens of one row from twelve fresh seeds', () => {
  const golden: readonly (readonly [string, readonly (readonly [number, number, number, number])[]])[] = [
    [
      '1 2 3 1 1 3 3 2 3 2 3 3',
      [
        [1, 0, 1, 0.05],
        [1, 0, 1, 0],
        [2, 0, 1, 0],
      ],
    ],
    [
      '1 3 3 1 1 3 3 3 3 3 3 3',
      [
        [1, 0, 0.9, 0],
        [0.6, 0, 0.95, 0],
        [1, 3, 1, 0],
        [1, 0, 0.5, 0],
        [1, 0, 1, 0.5],
        [1, 5, 0.7, 0.2],
      ],
    ],
    [
      '1 1 1 1 1 1 1 1 1 1 1 1',
      [
        [0, 0, 1, 0.05],
        [1, 1, 1, 0],
      ],
    ],
  ];
  const row = Float32Array.of(1, 3, 2, 3, -1, 0.5);
  for (const [tokens, knobs] of golden) {
    for (const [temperature, topK, topP, minP] of knobs) {
      const drawn = Array.from({ length: 12 }, (_, i) =>
        createSampler('ds4', settings({ temperature, topK, topP, minP, seed: BigInt(i + 1) }), { vocabSize: 6 }),
      ).map((sampler) => sampler.next(row, CONTEXT).tokenId);
      assert.equal(drawn.join(' '), tokens, `T ${temperature}, top_k ${topK}, top_p ${topP}, min_p ${minP}`);
    }
  }
});

test('a row that another law refuses is counted and told once, and draws what it would draw unobserved', () => {
  const sampler = createSampler('ds4', settings(), { vocabSize: 3 });
  sampler.next(Float32Array.of(1, 2, -inf), { ...CONTEXT, step: 0 });
  assert.equal(sampler.warning, undefined, 'a mask beside finite entries is legal');
  assert.equal(sampler.next(Float32Array.of(nan, inf, -inf), { ...CONTEXT, step: 1 }).tokenId, 1);
  sampler.check(Float32Array.of(nan, nan, nan), { ...CONTEXT, step: 2 });
  assert.deepEqual(sampler.warning, {
    rows: 2,
    first: { ...CONTEXT, step: 1, nanCount: 1, infCount: 2, vocabSize: 3 },
  });
});

test('a guide forces single tokens to be greedy, which draw nothing', () => {
  const row = Float32Array.of(0, 0.5, 0);
  const seen: number[] = [];
  const guide: SamplingGuide = {
    get forcesGreedy() {
      return seen.length % 2 === 1;
    },
    push: (tokenId) => seen.push(tokenId),
  };
  const guided = createSampler('ds4', settings({ minP: 0 }), { vocabSize: 3, guide });
  const plain = createSampler('ds4', settings({ minP: 0 }), { vocabSize: 3 });
  const tokens = Array.from({ length: 24 }, () => Number(guided.next(row, CONTEXT).tokenId));
  assert.deepEqual(seen, tokens);
  assert.deepEqual(
    tokens.filter((_, i) => i % 2 === 0),
    Array.from({ length: 12 }, () => Number(plain.next(row, CONTEXT).tokenId)),
  );
  assert.ok(tokens.every((token, i) => i % 2 === 0 || token === 1));
});

test('speculation chooses every token as plain decoding does, whatever is drafted', () => {
  const rowAt = (step: number): Float32Array => Float32Array.from({ length: 8 }, (_, i) => Math.sin(i * 3 + step));
  const steps = fc.array(fc.array(fc.nat(7), { maxLength: 3 }), { minLength: 1, maxLength: 6 });
  fc.assert(
    fc.property(steps, fc.constantFrom(0, 0.7, 1), fc.bigInt(1n, 2n ** 64n - 1n), (windows, temperature, seed) => {
      const plain = createSampler('ds4', settings({ temperature, seed }), { vocabSize: 8 });
      const subject = createSpeculativeSampler('ds4', settings({ temperature, seed }), {
        vocabSize: 8,
        acceptance: 'block',
      });
      assert.deepEqual([subject.acceptance, subject.greedy], ['coupled', temperature === 0]);
      let step = 0;
      for (const drafts of windows) {
        const { accepted, next } = subject.accept({
          drafts: drafts.map((tokenId) => ({ tokenId })),
          row: (index) => rowAt(step + index),
          room: 9,
          stopTokenIds: new Set(),
          source: 'draft_head',
          context: { phase: 'verify', step },
        });
        for (const { tokenId } of [...accepted, ...(next ? [next.token] : [])]) {
          assert.equal(tokenId, plain.next(rowAt(step), CONTEXT).tokenId);
          step++;
        }
      }
    }),
  );
});

test('the heap gives finite ids in order: greatest first, equal ones by lower id', () => {
  const value = fc.oneof(fc.constantFrom(nan, inf, -inf, 0, -0, 1, 2), fc.float({ noNaN: true }));
  fc.assert(
    fc.property(fc.array(value, { maxLength: 60 }), (values) => {
      const row = Float32Array.from(values);
      const expected = [...row.keys()]
        .filter((i) => Number.isFinite(row[i]))
        .sort((a, b) => row[b]! - row[a]! || a - b);
      assert.deepEqual(new DescendingIds(row).take(1000), expected);
      assert.deepEqual(new DescendingIds(row).take(3), expected.slice(0, 3));
      assert.deepEqual(new DescendingIds(row).take(0), []);
    }),
  );
});

test('greedy without one id: the anchor is the first other one, also when it is NaN', () => {
  const without = (row: number[], id: number): number => greedyWithout(Float32Array.from(row), id);
  assert.equal(without([5, 1, 3, 3], 0), 2);
  assert.equal(without([5, nan, 3], 0), 1);
  assert.equal(without([nan, 7, 3], 1), 0);
  assert.equal(without([1, 7, 1], 1), 0);
  assert.equal(without([-inf, 2, -inf], 1), 0);
});

test('log-probabilities where the law has no number', () => {
  const below = Float32Array.of(-2e30, nan);
  assert.equal(logSumExp(below, DS4), -inf);
  assert.equal(logprobOf(below, 0, -inf, DS4), inf);
  assert.equal(logprobOf(below, 1, -inf, DS4), Math.fround(-1e30));
  assert.equal(logSumExp(Float32Array.of(nan, inf), DS4), -inf);
});

test('the knobs are rounded and clamped, never refused', () => {
  const knobs = settleKnobs({ temperature: 1e-60, topP: -3, topK: 2.9, minP: -1 }, 9000, DS4);
  assert.deepEqual(knobs, { temperature: 0, topP: 1, topK: 2, minP: 0 });
  assert.equal(settleKnobs({ temperature: 1, topP: 2, topK: 1e9 }, 9000, DS4).topK, 1024);
  assert.equal(settleKnobs({ temperature: 1, topP: 2, topK: nan }, 9000, DS4).topK, 0);
  assert.equal(settleKnobs({ temperature: 0.3, topP: 1, topK: 0 }, 9000, DS4).temperature, Math.fround(0.3));
});
