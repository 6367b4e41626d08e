import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { NgramHash } from './ngram.js';
import { ngramConstants, primesFrom, type NgramConstants } from './ngram-constants.js';

/** The published Flash Next configuration. */
const FLASH = { ngramSize: 3, heads: 16, tableSizeBase: 20_000_000, tableRowDivisor: 128, seed: 1234 };
const FLASH_VOCAB = 248320;
const FLASH_EOS = 248044;

/** The published constants and rows of the sequence 1, 2, 3, eos, 5, head by head. */
const FLASH_SIZES = [3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171].map(
  (above) => 20_000_000 + above,
);
const FLASH_IDS = [1, 2, 3, FLASH_EOS, 5];
const FLASH_ROWS = [
  '16121432 28938500 59087997 73487090 81148277 104500129 120276032 149373875 176283436 184305849 216528839 231080079 257961536 266068568 289043455 305959965',
  '15220011 32170723 40646129 76511807 98682440 106072663 127158041 141938523 170367010 180520041 210849650 234005644 252857364 272068622 291885712 311569748',
  '14605717 24410875 49313567 72177428 86060820 104022010 130963819 146886202 161523077 195939126 219424565 220811782 248020141 275228530 284297999 309645223',
  '1040936 20493796 54629949 79359381 85142054 114677089 129861487 151753631 160770146 187379937 207108329 229509886 243927029 279402641 291463027 313528485',
  '15389869 39778609 55713969 62213332 88817728 118483999 133731511 155458159 179763390 197956758 205378969 220499474 242466248 265658744 293662119 315720898',
].map((line) => line.split(' ').map(Number));

const flashConstants = ngramConstants(FLASH, 0, FLASH_VOCAB);
const flashHash = new NgramHash(flashConstants, FLASH_EOS, FLASH_VOCAB);

test('the constants of the published model', () => {
  assert.deepEqual(flashConstants.multipliers, [23703573157769n, 20109073645365n, 8052911324071n]);
  assert.deepEqual(flashConstants.sizes, FLASH_SIZES);
  assert.equal(flashConstants.offsets[0], 0);
  assert.equal(flashConstants.offsets[15], 300001275);
  assert.equal(
    flashConstants.sizes.reduce((a, b) => a + b),
    320001446,
  );
  assert.equal(flashConstants.rows, 320001536);
});

test('the primes of a second layer go on where those of the first end', () => {
  const config = { ngramSize: 3, heads: 4, tableSizeBase: 211, tableRowDivisor: 8, seed: 1234 };
  assert.deepEqual(ngramConstants(config, 0, 384).sizes, [211, 223, 227, 229]);
  assert.deepEqual(ngramConstants(config, 1, 384).sizes, [233, 239, 241, 251]);
});

test('the rows of the published sequence, whole and cut', () => {
  const whole = flashHash.rows(FLASH_IDS, flashHash.emptyHistory());
  assert.deepEqual(Array.from(whole), FLASH_ROWS.flat());
  const history = flashHash.nextHistory(flashHash.emptyHistory(), FLASH_IDS.slice(0, 3));
  assert.deepEqual(Array.from(history), [2, 3]);
  assert.deepEqual(Array.from(flashHash.rows(FLASH_IDS.slice(3), history)), FLASH_ROWS.slice(3).flat());
});

/** The hash by its definition, in BigInt, with the eos rule read forwards from the text of the law. */
function rowsByDefinition(
  constants: NgramConstants,
  eos: number,
  ids: readonly number[],
  history: readonly number[],
): number[] {
  const shifts = constants.multipliers.length;
  const perGroup = constants.sizes.length / (shifts - 1);
  const all = [...history, ...ids];
  return ids.flatMap((_, t) => {
    const at = history.length + t;
    const seen = (s: number): number => {
      for (let back = 1; back <= s; back++) if (all[at - back] === eos) return eos;
      return all[at - s] as number;
    };
    return constants.sizes.map((size, head) => {
      const tokens = Math.floor(head / perGroup) + 2;
      let mix = 0n;
      for (let s = 0; s < tokens; s++)
        mix ^= BigInt.asUintN(64, BigInt(seen(s)) * (constants.multipliers[s] as bigint));
      return (constants.offsets[head] as number) + Number(mix % BigInt(size));
    });
  });
}

const configs = fc
  .record({
    ngramSize: fc.integer({ min: 2, max: 6 }),
    perGroup: fc.integer({ min: 1, max: 5 }),
    tableSizeBase: fc.oneof(fc.integer({ min: 2, max: 3000 }), fc.integer({ min: 2, max: 80_000_000 })),
    tableRowDivisor: fc.constantFrom(1, 8, 128),
    seed: fc.oneof(fc.constant(1234), fc.nat(), fc.constant(Number.MAX_SAFE_INTEGER)),
    pleIndex: fc.nat(3),
    vocabSize: fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 2 ** 24 })),
  })
  .map(({ perGroup, ...rest }) => ({ ...rest, heads: (rest.ngramSize - 1) * perGroup }));

test('rows equal the 64-bit definition for any configuration, ids, eos and cut', () => {
  fc.assert(
    fc.property(
      configs,
      fc.array(fc.nat(), { minLength: 1, maxLength: 12 }),
      fc.nat(),
      fc.nat(),
      (config, picks, eosPick, cutPick) => {
        const { vocabSize, pleIndex } = config;
        const constants = ngramConstants(config, pleIndex, vocabSize);
        const eos = eosPick % vocabSize;
        // Every third id is eos or a largest id, so that the rule and the extreme products occur.
        const ids = picks.map((pick) => (pick % 3 === 0 ? (pick % 2 === 0 ? eos : vocabSize - 1) : pick % vocabSize));
        const hash = new NgramHash(constants, eos, vocabSize);
        const expected = rowsByDefinition(constants, eos, ids, Array.from(hash.emptyHistory()));
        assert.deepEqual(Array.from(hash.rows(ids, hash.emptyHistory())), expected);

        const cut = cutPick % (ids.length + 1);
        const first = hash.rows(ids.slice(0, cut), hash.emptyHistory());
        const second = hash.rows(ids.slice(cut), hash.nextHistory(hash.emptyHistory(), ids.slice(0, cut)));
        assert.deepEqual([...first, ...second], expected);
        assert.ok(expected.every((row) => row >= 0 && row < constants.rows));
      },
    ),
    { numRuns: 400 },
  );
});

test('products of any two of the largest ids and multipliers stay below 2^63', () => {
  fc.assert(
    fc.property(configs, (config) => {
      const { multipliers } = ngramConstants(config, config.pleIndex, config.vocabSize);
      for (const multiplier of multipliers) assert.ok(multiplier * BigInt(config.vocabSize - 1) < 1n << 63n);
    }),
  );
});

test('the largest head sizes and ids that are allowed are exact', () => {
  const size = 2 ** 31 - 1;
  const constants = { multipliers: [(1n << 33n) - 1n, (1n << 33n) - 3n], sizes: [size], offsets: [0], rows: size };
  const hash = new NgramHash(constants, 0, 2 ** 30);
  const ids = [2 ** 30 - 1, 2 ** 30 - 2, 2 ** 29, 1, 2 ** 30 - 1];
  assert.deepEqual(Array.from(hash.rows(ids, [2 ** 30 - 1])), rowsByDefinition(constants, 0, ids, [2 ** 30 - 1]));
});

test('a token that is eos still sees the tokens before it; the one after it sees only eos', () => {
  const eos = 9;
  const hash = new NgramHash(ngramConstants({ ...FLASH, tableSizeBase: 1000 }, 0, 64), eos, 64);
  const row = (ids: number[], t: number): number[] =>
    Array.from(hash.rows(ids, hash.emptyHistory()).subarray(16 * t, 16 * t + 16));
  assert.notDeepEqual(row([3, 4, eos], 2), row([5, 6, eos], 2));
  assert.deepEqual(row([3, 4, eos, 7], 3), row([7], 0));
  assert.deepEqual(row([3, eos, 4, 7], 3).slice(8), row([5, eos, 4, 7], 3).slice(8));
});

test('ids outside the vocabulary and histories of a wrong length are refused', () => {
  assert.throws(() => flashHash.rows([FLASH_VOCAB], flashHash.emptyHistory()), { code: 'internal_error' });
  assert.throws(() => flashHash.rows([-1], flashHash.emptyHistory()), { code: 'internal_error' });
  assert.throws(() => flashHash.rows([1], [1]), { code: 'internal_error' });
});

test('primes are the primes, from any start', () => {
  const isPrime = (n: number): boolean => {
    for (let d = 2; d * d <= n; d++) if (n % d === 0) return false;
    return n >= 2;
  };
  for (const from of [1, 2, 3, 4, 211, 65_536, 131_071, 2 ** 31 - 200]) {
    const expected: number[] = [];
    for (let n = from; expected.length < 5; n++) if (isPrime(n)) expected.push(n);
    assert.deepEqual(primesFrom(from, 5), expected);
  }
  assert.equal(primesFrom(2, 10_000)[9_999], 104_729);
});
