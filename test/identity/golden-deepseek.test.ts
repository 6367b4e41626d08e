/**
 * The golden cases of DeepSeek V4 pass on every backend, and judge: a model whose configuration says one thing otherwise
 * fails them.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { withBackend } from '../../src/engine/backends/open-backend.js';
import { verifyGolden, type GoldenResult } from '../../src/families/verify-golden.js';
import { DEEPSEEK_GOLDEN_CASES, goldenFolder } from '../support/golden.js';
import { writeJson } from '../support/write-checkpoint.js';

const verified = (dir: string, name: 'cpu' | 'wasm' | 'reference'): Promise<GoldenResult> =>
  withBackend(name, 2, ({ backend }) => verifyGolden(dir, { backend, dtype: 'auto' }));

for (const backend of ['cpu', 'wasm', 'reference'] as const) {
  test(`${backend}: the golden cases pass whole, layer by layer and in pieces`, async (t) => {
    for (const name of DEEPSEEK_GOLDEN_CASES) {
      const result = await verified(goldenFolder(t, name), backend);
      assert.ok(result.passed, JSON.stringify(result.checks));
      assert.deepEqual(
        result.checks.map((check) => [check.name, check.limit]),
        [
          ['whole', 2e-5],
          ['hidden', 1e-4],
          ['chunked', 2e-5],
        ],
      );
    }
  });
}

const OTHERWISE: readonly (readonly [(typeof DEEPSEEK_GOLDEN_CASES)[number], string, unknown])[] = [
  ['deepseek-v4-strong', 'sliding_window', 15],
  ['deepseek-v4-strong', 'index_topk', 7],
  ['deepseek-v4-strong', 'compress_rope_theta', undefined],
  ['deepseek-v4-strong', 'swiglu_limit', 10],
  ['deepseek-v4-strong', 'scoring_func', 'sigmoid'],
  ['deepseek-v4-strong', 'routed_scaling_factor', 1.4],
  ['deepseek-v4-strong', 'hc_eps', 1e-3],
  ['deepseek-v4-strong-iters3', 'hc_sinkhorn_iters', 4],
  ['deepseek-v4-strong-iters3', 'hc_eps', 1e-6],
  ['deepseek-v4-plain-rope', 'rms_norm_eps', 1e-4],
];

for (const [name, key, value] of OTHERWISE) {
  test(`${name} fails with ${key} ${JSON.stringify(value ?? 'of the main table')}`, async (t) => {
    const dir = goldenFolder(t, name);
    const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8')) as Record<string, unknown>;
    const { main } = config.rope_parameters as Record<string, unknown>;
    const other = key === 'compress_rope_theta' ? { rope_parameters: { main, compress: main } } : { [key]: value };
    writeJson(dir, 'config.json', { ...config, ...other });
    const { passed, checks } = await verified(dir, 'cpu');
    assert.equal(passed, false, JSON.stringify(checks));
  });
}
