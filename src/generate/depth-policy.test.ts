import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { AcceptanceRates } from './acceptance-rates.js';
import { createDepthPolicy, type DepthPolicy, type DepthPolicyName } from './depth-policy.js';

const NAMES: readonly DepthPolicyName[] = ['off', 'expected-value', 'position-average', 'streak', 'cost'];

/** Plays rounds; each accepts what it is told, as far as it is deep. Rounds without drafts report nothing. */
function play(policy: DepthPolicy, accepted: readonly number[]): string[] {
  return accepted.map((most) => {
    const { depth, reason } = policy.next();
    if (depth > 0) policy.report({ depth, accepted: Math.min(most, depth) });
    return `${depth} ${reason}`;
  });
}

const times = <T>(count: number, value: T): T[] => new Array<T>(count).fill(value);

test('off: always the maximum', () => {
  assert.deepEqual(play(createDepthPolicy('off', 3), [3, 0, 0, 0, 0]), times(5, '3 fixed'));
});

test('a maximum of 0 drafts nothing, under every policy', () => {
  for (const name of NAMES) {
    const policy = createDepthPolicy(name, 0);
    assert.deepEqual([policy.name, policy.maxDepth], [name, 0]);
    assert.deepEqual(play(policy, times(40, 0)), times(40, '0 fixed'));
  }
});

test('streak: starts at 1, one deeper after four full accepts in a row, up to the maximum', () => {
  const depths = play(createDepthPolicy('streak', 3), times(13, 3)).map((text) => Number(text[0]));
  assert.deepEqual(depths, [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3]);
});

test('streak: an early rejection takes one off, a late one only the streak', () => {
  const policy = createDepthPolicy('streak', 5);
  const depths = (accepted: readonly number[]): number[] => play(policy, accepted).map((text) => Number(text[0]));
  depths(times(16, 9));
  assert.equal(policy.next().depth, 5);
  assert.deepEqual(depths([2, 9, 9, 9, 1, 9]), [5, 5, 5, 5, 5, 4]); // at 3 of 5: late; at 2 of 5: early
  assert.deepEqual(depths([9, 0, 0, 0, 0, 9]), [4, 4, 3, 2, 1, 1]);
});

test('expected value: the maximum while warming up, and again every 32 rounds', () => {
  const rounds = play(createDepthPolicy('expected-value', 3), times(96, 0));
  const deep = rounds.flatMap((text, i) => (text.startsWith('3') ? [`${i + 1} ${text.slice(2)}`] : []));
  assert.deepEqual(deep, [
    '1 warm_up',
    '2 warm_up',
    '3 warm_up',
    '4 warm_up',
    '32 explore',
    '64 explore',
    '96 explore',
  ]);
  assert.ok(rounds.every((text) => /^3 (?:warm_up|explore)$|^2 expected_value$/.test(text)));
});

test('expected value: two drafts always, a third where it is likely enough to be kept', () => {
  // The third is kept with chance 0.92 * 0.64 * 0.32 = 0.188 before anything is known: just above 0.18.
  assert.equal(play(createDepthPolicy('expected-value', 3), times(5, 3)).at(-1), '3 expected_value');
  // Three rounds of two and one of three move the rates to 0.952, 0.784 and 0.274: 0.2046.
  assert.equal(play(createDepthPolicy('expected-value', 3), [2, 2, 2, 3, 0]).at(-1), '3 expected_value');
  // Four rounds of two move them to 0.952, 0.784 and 0.192: 0.143.
  assert.equal(play(createDepthPolicy('expected-value', 3), [2, 2, 2, 2, 0]).at(-1), '2 expected_value');
  // Close to 0.18 on either side: 0.17961, 0.18102, 0.17381.
  assert.equal(play(createDepthPolicy('expected-value', 3), [1, 3, 0, 0, 0]).at(-1), '2 expected_value');
  assert.equal(play(createDepthPolicy('expected-value', 3), [1, 3, 1, 0, 0]).at(-1), '3 expected_value');
  assert.equal(play(createDepthPolicy('expected-value', 3), [3, 0, 0, 0, 0]).at(-1), '2 expected_value');
  assert.equal(play(createDepthPolicy('expected-value', 1), times(5, 0)).at(-1), '1 expected_value');
});

test('position average: deepest while drafts are kept, fewer as they fail, none at last, with a probe now and then', () => {
  const policy = createDepthPolicy('position-average', 3);
  const rounds = play(policy, times(60, 0));
  assert.equal(rounds[0], '3 position_average');
  const first = rounds.indexOf('0 low_acceptance');
  // One draft pays while its rate is above a fifth: 0.85 * 0.85^n < 0.2 at n = 9.
  assert.equal(first, 9);
  assert.deepEqual(rounds.slice(first, first + 18), [
    ...times(8, '0 low_acceptance'),
    '1 probe',
    ...times(8, '0 low_acceptance'),
    '1 probe',
  ]);
});

test('position average: probes that are accepted bring drafts back', () => {
  const policy = createDepthPolicy('position-average', 3);
  const rounds = play(policy, [...times(30, 0), ...times(60, 3)]);
  const back = rounds.findIndex((text, i) => i >= 30 && text.endsWith('position_average'));
  assert.ok(back > 30);
  assert.equal(rounds.at(-1), '3 position_average');
});

test('cost: as deep as tokens by time ask, from 1 on', () => {
  // 25 ms a forward, 3.5 ms a draft: 1.92/28.5, 2.5088/32, 2.6972/35.5 tokens a ms.
  const policy = createDepthPolicy('cost', 3);
  assert.deepEqual(policy.next(), { depth: 2, reason: 'tokens_per_time' });
  // Rounds of two teach nothing about a third draft; the explored one does.
  const rounds = play(createDepthPolicy('cost', 3), times(40, 3));
  assert.deepEqual([rounds[30], rounds[31], rounds[32]], ['2 tokens_per_time', '3 explore', '3 tokens_per_time']);
  assert.equal(play(createDepthPolicy('cost', 3), times(40, 0)).at(-1), '1 tokens_per_time');
});

test('cost: measured times move the depth', () => {
  const settled = (draftMs: number, verifyMs: number): number => {
    const policy = createDepthPolicy('cost', 3);
    for (let i = 0; i < 90; i++) {
      const { depth } = policy.next();
      // Two of three are accepted.
      policy.report({ depth, accepted: Math.min(2, depth), draftMs: draftMs * depth, verifyMs });
    }
    return policy.next().depth;
  };
  assert.equal(settled(1, 25), 2);
  assert.equal(settled(60, 25), 1); // a draft that costs two forwards is not worth it
});

test('no policy leaves its range, and the same calls give the same depths', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...NAMES),
      fc.nat({ max: 5 }),
      fc.array(fc.nat({ max: 6 }), { maxLength: 120 }),
      (name, most, accepted) => {
        const rounds = play(createDepthPolicy(name, most), accepted);
        assert.deepEqual(play(createDepthPolicy(name, most), accepted), rounds);
        for (const text of rounds) {
          const depth = Number(text.split(' ')[0]);
          assert.ok(depth <= most && depth >= (name === 'position-average' ? 0 : Math.min(1, most)));
        }
      },
    ),
  );
});

test('rates: only decided depths move, and they stay rates', () => {
  const rates = new AcceptanceRates([0.5, 0.5, 0.5], 0.25);
  rates.record(3, 1);
  assert.deepEqual(
    [1, 2, 3, 4].map((depth) => rates.at(depth)),
    [0.625, 0.375, 0.5, 0],
  );
  assert.equal(rates.prefix(2), 0.625 * 0.375);
  assert.equal(rates.expectedTokens(2), 1 + 0.625 + 0.625 * 0.375);
  rates.record(2, 2);
  assert.deepEqual(
    [1, 2, 3].map((depth) => rates.at(depth)),
    [0.71875, 0.53125, 0.5],
  );
});
