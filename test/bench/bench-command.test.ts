/** `plumbline bench` runs on a tiny model and says what it promises; its figures are no matter of tests. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BENCH_PARTS } from '../../src/bench/bench.js';
import type { Figure, PartReport } from '../../src/bench/figures.js';
import { cpuBackendStatus } from '../../src/engine/backends/cpu/index.js';
import { cli } from '../support/cli.js';

const bench = async (...args: string[]) => cli(['bench', ...args]);

const lines = (out: string): unknown[] =>
  out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown);

function assertSound({ name, value, bound }: Figure): void {
  for (const { median, min, max, rounds } of [value, ...(bound === undefined ? [] : [bound.value, bound.share])]) {
    assert.ok(rounds >= 1 && min <= median && median <= max && min >= 0 && Number.isFinite(max), name);
  }
}

test('every part reports, with the machine first', async () => {
  const { code, out } = await bench('--quick', '--size', 'tiny', '--json');
  assert.equal(code, 0);
  const [machine, ...reports] = lines(out) as [{ machine: string }, ...PartReport[]];
  assert.match(machine.machine, /node v\d+/);
  for (const part of BENCH_PARTS) {
    const own = reports.filter((report) => report.part === part);
    assert.ok(own.length >= 1, `${part} is missing`);
    for (const { figures, notes } of own) {
      assert.ok(figures.length >= 1 && notes.length >= 1, part);
      figures.forEach(assertSound);
    }
  }
});

test('decode stands beside the bandwidth, prefill beside the arithmetic, where the addon can measure them', async () => {
  const { out } = await bench('decode', 'prefill', '--quick', '--size', 'tiny', '--threads', '2', '--json');
  const [, decode, prefill, ...rest] = lines(out) as [unknown, PartReport, PartReport];
  assert.deepEqual([decode.part, prefill.part, rest.length], ['decode', 'prefill', 0]);
  const bounds = [...decode.figures, ...prefill.figures].flatMap(({ bound }) => (bound ? [bound.what] : []));
  const expected = ['read bandwidth over bytes of a token', 'multiply-adds in registers', 'multiply-adds in registers'];
  assert.deepEqual(bounds, cpuBackendStatus().available ? expected : []);
  if (!cpuBackendStatus().available) assert.match(decode.notes.join(), /no bounds without the native addon/);
});

test('the wasm backend is measured as well, and the table is for readers', async () => {
  const { code, out } = await bench('decode', '--quick', '--size', 'tiny', '--backend', 'wasm', '--threads', '1');
  assert.equal(code, 0);
  assert.match(out, /decode, 1 thread +[\d.]+ tokens\/s/);
});

test('an unknown part is refused', async () => {
  const { code, err } = await bench('speed');
  assert.equal(code, 2);
  assert.match(err, /Allowed choices are memory, /);
});
