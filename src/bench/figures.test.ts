import assert from 'node:assert/strict';
import { test } from 'node:test';
import { against, percentile, spread, withLimit, withShareTarget } from './figures.js';
import { formatReport } from './table.js';

test('a spread is the median, the least and the greatest, whatever the order', () => {
  assert.deepEqual(spread([3, 1, 2]), { median: 2, min: 1, max: 3, rounds: 3 });
  assert.deepEqual(spread([4, 1, 2, 3]), { median: 2.5, min: 1, max: 4, rounds: 4 });
  assert.deepEqual(spread([5]), { median: 5, min: 5, max: 5, rounds: 1 });
});

test('a percentile lies between its neighbours in proportion', () => {
  const sorted = Array.from({ length: 101 }, (_, i) => i);
  assert.equal(percentile(sorted, 0.99), 99);
  assert.equal(percentile([0, 10], 0.25), 2.5);
  assert.equal(percentile([7], 0.99), 7);
});

test('a share is taken round by round: a slow machine in one round does not look like a slow engine', () => {
  const figure = against('decode', 'tokens/s', [40, 20, 10], [50, 25, 12.5], 'bandwidth');
  assert.deepEqual(figure.bound.share, { median: 0.8, min: 0.8, max: 0.8, rounds: 3 });
  assert.equal(figure.value.median, 20);
  assert.equal(figure.bound.value.median, 25);
});

test('a share target is judged by the median of the shares, a limit by the value that it is about', () => {
  const figure = against('decode', 'tokens/s', [6, 7, 9], [10, 10, 10], 'bandwidth');
  assert.deepEqual(withShareTarget(figure, 0.7).target, { text: 'at least 70 % of the bound', met: true });
  assert.equal(withShareTarget(figure, 0.75).target?.met, false);
  const latency = { name: 'p99', unit: 'ms', value: spread([51]) } as const;
  assert.deepEqual(withLimit(latency, 51, 50, 'within 50 ms').target, { text: 'within 50 ms', met: false });
});

test('the table has the bound, the share and a missed target beside the figure', () => {
  const figure = withShareTarget(
    against('decode, 2 threads', 'tokens/s', [20, 30, 25], [50, 50, 50], 'bandwidth'),
    0.7,
  );
  const lines = formatReport({ part: 'decode', figures: [figure], notes: ['a note'] });
  assert.match(
    lines[0]!,
    /^decode, 2 threads +25\.0 tokens\/s +\[20\.0 \.\. 30\.0\] +of 50\.0 +50 % \[40 \.\. 60\] +MISSED: at least 70 % of the bound$/,
  );
  assert.deepEqual(lines.slice(1), ['    bound: bandwidth', '    a note']);
});
