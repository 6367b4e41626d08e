/** A server over tiny random checkpoints of three families with a byte tokenizer, two of them under the ds4 law. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { GivenOptions } from '../../src/config.js';
import type { TestSeams } from '../../src/http/open-model.js';
import { byteTokenizerConfig, byteTokenizerJson } from './byte-tokenizer.js';
import { embeddedServer, type EmbeddedServer } from './embedded-server.js';
import { writeCheckpoint, writeJson } from './write-checkpoint.js';
import { writeDeepseekCheckpoint } from './write-deepseek.js';
import { writeGlmCheckpoint } from './write-glm.js';

/** Rows of every one of them. */
export const VOCABULARY = 272;
export const DS4_MODELS = ['deepseek', 'glm'] as const;
export const ALL_MODELS = ['qwen', ...DS4_MODELS] as const;
export type TinyModel = (typeof ALL_MODELS)[number];

export interface ThreeFamilies extends EmbeddedServer {
  /** Closes it and takes the checkpoints away. */
  end(): Promise<void>;
}

function writeTiny(folder: string, model: TinyModel): void {
  if (model === 'qwen') {
    writeCheckpoint(folder, { byteTokenizer: true });
    return;
  }
  if (model === 'deepseek') writeDeepseekCheckpoint(folder);
  else writeGlmCheckpoint(folder);
  const { chat_template: _, ...config } = byteTokenizerConfig(); // prompts follow the family's own layout
  writeJson(folder, 'tokenizer.json', byteTokenizerJson());
  writeJson(folder, 'tokenizer_config.json', config);
}

export async function threeFamilies(
  models: readonly TinyModel[] = ALL_MODELS,
  seams: TestSeams = {},
  options: GivenOptions = {},
): Promise<ThreeFamilies> {
  const root = mkdtempSync(join(tmpdir(), 'plumbline-families-'));
  const removeAll = (): void => rmSync(root, { recursive: true, force: true });
  try {
    for (const model of models) writeTiny(join(root, model), model);
    const folders = models.map((model) => `${model}=${join(root, model)}`);
    const server = await embeddedServer({ threads: 1, model: folders, ...options }, seams);
    return {
      ...server,
      end: async () => {
        await server.close(0);
        removeAll();
      },
    };
  } catch (thrown) {
    removeAll();
    throw thrown;
  }
}
