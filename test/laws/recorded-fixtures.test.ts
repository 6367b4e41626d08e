/**
 * The recorded results of the original sampler and of MLX, judged line by line as `verify fixtures` does.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fixtureFiles } from '../../src/sample/verify/lines.js';
import { formatFixtureReport, verifyFixtureFile } from '../../src/sample/verify/verify-fixtures.js';
import { fixture } from '../support/repository.js';

/** Lines (1 for a table) and comparisons of each file; a judge that compares less than before must say so here. */
const EXPECTED: Readonly<Record<string, readonly [cases: number, checks: number]>> = {
  'sampler/ordinary': [1200, 94422],
  'sampler/pcg64': [20, 120],
  'sampler/fallback': [200, 29894],
  'sampler/batched': [700, 70138],
  'sampler/mixed': [150, 3879],
  'sampler/lazy-rows': [18, 1454],
  'sampler/serial': [300, 9371],
  'sampler/speculative': [460, 21587],
  'sampler/block': [318, 55031],
  'ds4-sampler/rng': [7, 21],
  'sample.jsonl.gz': [1500, 18000],
  'bad-rows.jsonl.gz': [240, 2880],
  'exact.jsonl.gz': [65, 780],
  'ds4-sampler/logprob': [100, 2042],
  'mlx/rng': [1819, 6935],
  'mlx/sort': [3043, 5119],
  'mlx/metal-predicted': [96, 960],
  'mlx/metal-gate-cases': [136, 544],
  'mlx/sigmoid-f32': [4096, 8192],
  'mlx/sigmoid-index': [15, 30],
  'mlx/sigmoid-table': [1, 65536],
};

for (const folder of ['sampler', 'ds4-sampler', 'mlx']) {
  for (const file of await fixtureFiles(fixture(folder))) {
    const name = file.slice(file.lastIndexOf('/') + 1);
    test(`${folder}: ${name}`, async () => {
      const report = await verifyFixtureFile(file);
      assert.equal(report.outcome, 'passed', formatFixtureReport(report));
      assert.deepEqual([report.cases, report.checks], EXPECTED[name] ?? EXPECTED[report.kind]);
    });
  }
}
