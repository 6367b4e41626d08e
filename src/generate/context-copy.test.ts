import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PlumblineError } from '../errors.js';
import { ContextCopy } from './context-copy.js';

/** A prompt of 200 different tokens. */
const PROMPT = Array.from({ length: 200 }, (_, i) => 1000 + i);

/** A lane whose text ends with the `matching` tokens before prompt index `next`. */
function behind(
  next: number,
  matching: number,
  lane = new ContextCopy(PROMPT),
): { lane: ContextCopy; primary: number } {
  for (const id of [1, 2, 3, 4, ...PROMPT.slice(next - matching, next)]) lane.emitted(id);
  return { lane, primary: PROMPT[next - 1]! };
}

/** Two rounds that end probation without a trace in what follows. */
function trusted(): ContextCopy {
  const lane = new ContextCopy(PROMPT);
  lane.report(8, 8);
  lane.report(8, 8);
  return lane;
}

test('a longer match earns a longer block, 24 tokens at most', () => {
  const sizes = [6, 7, 8, 9, 10, 11].map((matching) => {
    const { lane, primary } = behind(50, matching, trusted());
    const block = lane.propose(primary);
    assert.deepEqual(block, PROMPT.slice(50, 50 + block.length));
    return block.length;
  });
  assert.deepEqual(sizes, [8, 12, 16, 24, 24, 24]);
});

test('fewer than six matching tokens propose nothing; a block ends with the prompt', () => {
  const short = behind(50, 5, trusted());
  assert.deepEqual(short.lane.propose(short.primary), []);
  const { lane, primary } = behind(197, 10, trusted());
  assert.deepEqual(lane.propose(primary), PROMPT.slice(197));
  const end = behind(200, 10, trusted());
  assert.deepEqual(end.lane.propose(end.primary), []);
});

test('the match may begin in the prompt: its last tokens are part of the text', () => {
  const lane = new ContextCopy([...PROMPT, 9, ...PROMPT.slice(30, 35)]);
  lane.emitted(PROMPT[35]!);
  assert.deepEqual(lane.propose(PROMPT[35]!), PROMPT.slice(36, 44));
});

test('on probation a block is 8 tokens: until two rounds are done and the average is at the bar', () => {
  const sizeAfter = (...rounds: readonly [offered: number, accepted: number][]): number => {
    const lane = new ContextCopy(PROMPT);
    for (const [offered, accepted] of rounds) lane.report(offered, accepted);
    const { primary } = behind(50, 10, lane);
    return lane.propose(primary).length;
  };
  assert.equal(sizeAfter(), 8);
  assert.equal(sizeAfter([8, 8]), 8);
  assert.equal(sizeAfter([8, 4], [8, 4]), 24); // the average stays at 0.5
  assert.equal(sizeAfter([8, 4], [8, 3]), 8); // 0.4625
  assert.equal(sizeAfter([8, 4], [8, 3], [8, 6]), 24); // 0.54875
  assert.equal(sizeAfter([8, 0], [8, 7]), 24); // 0.5075
  assert.equal(sizeAfter([8, 8], [8, 1]), 8); // 0.4925
});

/** Tokens until proposals are made again. */
function pause(lane: ContextCopy): number {
  let tokens = 0;
  for (; lane.propose(behind(50, 6, lane).primary).length === 0; tokens++) assert.ok(tokens < 10_000);
  return tokens;
}

test('three poor rounds suspend the lane for 64 tokens, then twice as long each time up to 4096', () => {
  const lane = new ContextCopy(PROMPT);
  lane.report(8, 0); // 0.35
  lane.report(8, 0); // 0.245, but only two rounds
  assert.equal(lane.suspendedFor, 0);
  lane.report(8, 0);
  const suspensions: number[] = [];
  for (let i = 0; i < 9; i++) {
    suspensions.push(lane.suspendedFor);
    while (lane.suspendedFor > 0) lane.emitted(1);
    lane.report(8, 0);
  }
  assert.deepEqual(suspensions, [64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]);
});

test('a suspended lane proposes nothing until that many tokens were emitted', () => {
  const lane = new ContextCopy(PROMPT);
  for (let i = 0; i < 3; i++) lane.report(8, 0);
  const { primary } = behind(50, 6, lane);
  assert.equal(lane.suspendedFor, 54);
  assert.deepEqual(lane.propose(primary), []);
  assert.equal(pause(lane), 5); // each look emits ten tokens: 44, 34, 24, 14 and 4 are still to come
});

test('a good round puts the suspension back to its start', () => {
  const lane = new ContextCopy(PROMPT);
  for (let i = 0; i < 6; i++) lane.report(8, 0);
  assert.equal(lane.suspendedFor, 512);
  lane.report(8, 4); // the average stays below 0.35: suspended again, as at the start
  assert.equal(lane.suspendedFor, 64);
  for (let i = 0; i < 4; i++) lane.report(8, 8);
  while (lane.suspendedFor > 0) lane.emitted(1);
  lane.report(8, 8);
  assert.equal(lane.suspendedFor, 0);
});

test('asking changes nothing; a proposal is behind the newest token or a fault', () => {
  const { lane, primary } = behind(50, 10);
  assert.deepEqual(lane.propose(primary), lane.propose(primary));
  assert.throws(
    () => lane.propose(primary + 1),
    (thrown) => thrown instanceof PlumblineError && thrown.code === 'internal_error',
  );
});

test('whatever is emitted and reported, a block is a piece of the prompt that follows the newest six tokens', () => {
  const word = fc.integer({ min: 0, max: 2 });
  fc.assert(
    fc.property(
      fc.array(word, { minLength: 1, maxLength: 120 }),
      fc.array(fc.record({ emitted: fc.array(word, { minLength: 1, maxLength: 9 }), kept: fc.nat() }), {
        maxLength: 30,
      }),
      (prompt, rounds) => {
        const lane = new ContextCopy(prompt);
        const text = [...prompt];
        for (const { emitted, kept } of rounds) {
          for (const id of emitted) {
            text.push(id);
            lane.emitted(id);
          }
          const block = lane.propose(text.at(-1)!);
          assert.ok(block.length <= 24);
          if (block.length === 0) continue;
          assert.ok(`,${prompt.join()},`.includes(`,${[...text.slice(-6), ...block].join()},`));
          lane.report(block.length, kept % (block.length + 1));
        }
      },
    ),
  );
});
