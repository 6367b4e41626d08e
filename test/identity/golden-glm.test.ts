/**
 * The golden cases of GLM pass on every backend, and judge: a model whose configuration says one thing otherwise fails them.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { withBackend } from '../../src/engine/backends/open-backend.js';
import { verifyGolden, type GoldenResult } from '../../src/families/verify-golden.js';
import { GLM_GOLDEN_CASES, goldenFolder } from '../support/golden.js';
import { writeJson } from '../support/write-checkpoint.js';

const verified = (dir: string, name: 'cpu' | 'wasm' | 'reference'): Promise<GoldenResult> =>
  withBackend(name, 2, ({ backend }) => verifyGolden(dir, { backend, dtype: 'auto' }));

for (const backend of ['cpu', 'wasm', 'reference'] as const) {
  test(`${backend}: the golden cases pass whole, layer by layer and in pieces`, async (t) => {
    for (const name of GLM_GOLDEN_CASES) {
      const result = await verified(goldenFolder(t, name), backend);
      assert.ok(result.passed, JSON.stringify(result.checks));
      assert.deepEqual(
        result.checks.map((check) => [check.name, check.limit]),
        [
          ['whole', 3e-4],
          ['hidden', 5 * 3e-4],
          ['chunked', 3e-4],
        ],
      );
      assert.match(result.checks[1]!.note!, /^9 layers/);
    }
  });
}

const STRONG = 'glm5-next-strong';
const SHARED = 'glm5-next-shared-index';
const OTHERWISE: readonly (readonly [(typeof GLM_GOLDEN_CASES)[number], string, unknown])[] = [
  [STRONG, 'index_topk', 12],
  [STRONG, 'index_kpool_always_select_tail', false],
  [STRONG, 'linear_lower_bound', -4],
  [STRONG, 'linear_lower_bound', null],
  [STRONG, 'swiglu_limit', 10],
  [STRONG, 'routed_scaling_factor', 2],
  [STRONG, 'norm_topk_prob', false],
  [STRONG, 'hc_sinkhorn_iters', 2],
  [STRONG, 'hc_eps', 1e-2],
  [STRONG, 'rms_norm_eps', 1e-3],
  [STRONG, 'n_group', 2],
  [SHARED, 'index_topk', 16],
  // The last of the layers takes the choice of one layer further back.
  [SHARED, 'indexer_types', ['full', 'full', 'full', 'shared', 'full', 'shared', 'shared', 'full']],
];

for (const [name, key, value] of OTHERWISE) {
  test(`${name} fails with ${key} ${JSON.stringify(value)}`, async (t) => {
    const dir = goldenFolder(t, name);
    const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8')) as { text_config: object };
    writeJson(dir, 'config.json', { ...config, text_config: { ...config.text_config, [key]: value } });
    const { passed, checks } = await verified(dir, 'cpu');
    assert.equal(passed, false, JSON.stringify(checks));
  });
}
