/**
 * The golden cases: tiny random-weight checkpoints with what the reference implementation computes on them. The
 * repository keeps their safetensors files compressed; a test gets a folder as `plumbline verify golden` takes it.
 */
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { fixture, temporaryFolder, type Cleanup } from './repository.js';

export const GOLDEN_CASES = ['qwen4-exp-tiny', 'qwen4-exp-wide', 'qwen3.5-dense-tiny'] as const;
export const DEEPSEEK_GOLDEN_CASES = [
  'deepseek-v4-plain-rope',
  'deepseek-v4-strong',
  'deepseek-v4-strong-iters3',
] as const;

export const GLM_GOLDEN_CASES = ['glm5-next-shared-index', 'glm5-next-strong'] as const;

export type QwenGoldenCase = (typeof GOLDEN_CASES)[number];
export type GoldenCase = QwenGoldenCase | (typeof DEEPSEEK_GOLDEN_CASES)[number] | (typeof GLM_GOLDEN_CASES)[number];

/** Unpack a case: config.json, generation_config.json, golden.json, model.safetensors, golden.safetensors. */
export function goldenFolder(test: Cleanup, name: GoldenCase): string {
  const from = fixture('golden', name);
  const to = temporaryFolder(test, `golden-${name}`);
  for (const file of readdirSync(from)) {
    if (file.endsWith('.gz')) writeFileSync(join(to, file.slice(0, -3)), gunzipSync(readFileSync(join(from, file))));
    else copyFileSync(join(from, file), join(to, file));
  }
  return to;
}
