/**
 * Opens a GLM checkpoint: configuration, inventory, and a model assembled from its files.
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
import { activationLaw, assembleModel, checkContext } from '../assemble.js';
import type { FamilyLoadOptions, LoadedModel } from '../load.js';
import { maxHeadRows } from '../paged-trunk.js';
import { LoadedWeights } from '../weight-source.js';
import { bindGlm, copiedBytes, type BoundGlm } from './bind.js';
import { readGlmConfig } from './config.js';
import { inventoryGlm } from './inventory.js';
import { GLM_ACTIVATION_LAWS, NO_BF16 } from './laws.js';
import { GLM_STATE_VALUES, GlmModel } from './model.js';
import { glmWorkspaceWords } from './plan-builder.js';
import { glmStateLayout } from './state-layout.js';

/** @throws checkpoint_*, safetensors_invalid, config_*, tensor_*, invalid_option, model_too_large, out_of_memory */
export async function loadGlm(options: FamilyLoadOptions): Promise<LoadedModel> {
  const { dir, id, backend, gatePolicy, maxRows, sequences, progress, signal } = options;
  const config = readGlmConfig(dir);
  const generation = readGenerationConfig(dir, config.vocabSize);
  const law = activationLaw(options.dtype, 'f32', GLM_ACTIVATION_LAWS, NO_BF16);
  const contextLength = checkContext(options.contextLength, config.maxPositions);
  const checkpoint = openCheckpoint(dir);
  try {
    const files = weightFiles(checkpoint);
    const { weights, report } = inventoryGlm(checkpoint, config);
    const state = glmStateLayout(config, law);
    const { layout } = state;
    const modelHash = checkpointHash(checkpoint, readFileSync(join(dir, 'config.json'), 'utf8'));
    const outCapacity = maxHeadRows(config.vocabSize, maxRows);
    const plan = { law, pageTokens: layout.pageTokens, rowCapacity: maxRows, outCapacity, standaloneTable: -1, fusedTable: -1 }; // prettier-ignore
    const { model, memory } = await assembleModel<BoundGlm, GlmModel>(options, {
      bind: (source, table) => bindGlm({ config, weights, source, table }),
      provide: async (tensors) => LoadedWeights.load(backend, checkpoint, tensors, progress, signal),
      workspaceWords: (bound) => glmWorkspaceWords({ config, bound, state, plan, taps: false }),
      layout,
      stateValues: GLM_STATE_VALUES,
      contextLength,
      extraWeightBytes: copiedBytes(weights, config),
      model: (parts) =>
        new GlmModel({
          ...parts,
          ...{ id, modelHash, config, backend, law, gatePolicy, contextLength, maxRows, sequences },
        }),
      release: () => checkpoint.close(),
    });
    return { model, generation, eosTokenIds: config.eosTokenIds, report, memory, weightFiles: files };
  } catch (error) {
    checkpoint.close();
    throw error;
  }
}
