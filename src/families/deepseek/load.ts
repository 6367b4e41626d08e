/**
 * Opens a DeepSeek V4 checkpoint: configuration, inventory, and a model assembled from its files.
 *
 * Invariants: everything is checked before the first weight is read; on any failure all files, mappings and blocks are
 * given back; only tensors of the forward pass enter memory.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkpointHash } from '../../weights/checkpoint-hash.js';
import { openCheckpoint } from '../../weights/checkpoint.js';
import { weightFiles } from '../../weights/content-hash.js';
import { readGenerationConfig } from '../../weights/generation-config.js';
import { checkContext } from '../assemble.js';
import type { FamilyLoadOptions, LoadedModel } from '../load.js';
import { LoadedWeights } from '../weight-source.js';
import { assembleDeepseek } from './assemble.js';
import { readDeepseekConfig } from './config.js';
import { inventoryDeepseek } from './inventory.js';

/** @throws checkpoint_*, safetensors_invalid, config_*, tensor_*, invalid_option, model_too_large, out_of_memory */
export async function loadDeepseek(options: FamilyLoadOptions): Promise<LoadedModel> {
  const { dir, backend, progress, signal } = options;
  const config = readDeepseekConfig(dir);
  const generation = readGenerationConfig(dir, config.vocabSize);
  checkContext(options.contextLength, config.maxPositions);
  const checkpoint = openCheckpoint(dir);
  try {
    const files = weightFiles(checkpoint);
    const { weights, report } = inventoryDeepseek(checkpoint, config);
    const { model, memory } = await assembleDeepseek(options, {
      config,
      weights,
      modelHash: checkpointHash(checkpoint, readFileSync(join(dir, 'config.json'), 'utf8')),
      provide: (tensors) => LoadedWeights.load(backend, checkpoint, tensors, progress, signal),
      release: () => checkpoint.close(),
    });
    return { model, generation, eosTokenIds: config.eosTokenIds, report, memory, weightFiles: files };
  } catch (error) {
    checkpoint.close();
    throw error;
  }
}
