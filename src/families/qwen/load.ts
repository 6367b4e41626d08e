/**
 * Opens a Qwen checkpoint: configuration, inventory, and a model assembled from its files.
 *
 * Invariants: everything is checked before the first weight is read; on any failure all files, mappings and blocks are
 * given back; only tensors of the text forward pass enter memory.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkpointHash } from '../../weights/checkpoint-hash.js';
import { openCheckpoint } from '../../weights/checkpoint.js';
import { weightFiles } from '../../weights/content-hash.js';
import { readGenerationConfig } from '../../weights/generation-config.js';
import type { FamilyLoadOptions, LoadedModel } from '../load.js';
import { LoadedWeights } from '../weight-source.js';
import { checkContext } from '../assemble.js';
import { assembleQwen } from './assemble.js';
import { readQwenConfig } from './config.js';
import { inventoryQwen } from './inventory.js';

/** @throws checkpoint_*, safetensors_invalid, config_*, tensor_*, invalid_option, model_too_large, out_of_memory */
export async function loadQwen(options: FamilyLoadOptions): Promise<LoadedModel> {
  const { dir, backend, draftHead, progress, signal } = options;
  const config = readQwenConfig(dir);
  const generation = readGenerationConfig(dir, config.vocabSize);
  checkContext(options.contextLength, config.maxPositions);
  const checkpoint = openCheckpoint(dir);
  try {
    const files = weightFiles(checkpoint);
    const { weights, report } = inventoryQwen(checkpoint, config, draftHead);
    const { model, memory } = await assembleQwen(options, {
      config,
      weights,
      modelHash: checkpointHash(checkpoint, readFileSync(join(dir, 'config.json'), 'utf8')),
      provide: async (tensors) => LoadedWeights.load(backend, checkpoint, tensors, progress, signal),
      tableSource: (shard) => checkpoint.source(shard),
      tableBytes: report.gatheredBytes,
      tablePlace: 'on-disk',
      release: () => checkpoint.close(),
    });
    return { model, generation, eosTokenIds: config.eosTokenIds, report, memory, weightFiles: files };
  } catch (error) {
    checkpoint.close();
    throw error;
  }
}
