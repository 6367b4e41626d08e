/** Opens models for tests, and closes everything when the test ends. */
import type { TestContext } from 'node:test';
import type { Backend } from '../../src/engine/backends/backend.js';
import { openBackend } from '../../src/engine/backends/open-backend.js';
import { loadModel, type FamilyLoadOptions } from '../../src/families/load.js';
import { isPagedModel, type PagedModel } from '../../src/families/paged-model.js';
import { QwenModel } from '../../src/families/qwen/model.js';
import { goldenFolder, type GoldenCase, type QwenGoldenCase } from './golden.js';
import { EMBEDDED_MODEL } from './repository.js';

export type Checkpoint = GoldenCase | 'plumbline-tiny';
export type QwenCheckpoint = QwenGoldenCase | 'plumbline-tiny';

export type ModelOptions = Partial<
  Pick<FamilyLoadOptions, 'dtype' | 'gatePolicy' | 'maxRows' | 'sequences' | 'draftHead'>
> & {
  readonly backend?: 'cpu' | 'wasm' | 'reference';
  readonly threads?: number;
};

/** A Qwen model of the tracked checkpoints on a backend of its own. */
export async function openTestModel(
  t: TestContext,
  checkpoint: QwenCheckpoint,
  options: ModelOptions = {},
): Promise<{ readonly model: QwenModel; readonly backend: Backend }> {
  const { model, backend } = await openPagedTestModel(t, checkpoint, options);
  if (!(model instanceof QwenModel)) throw new Error(`${checkpoint} is no model of this family`);
  return { model, backend };
}

/** A model of any family. */
export async function openPagedTestModel(
  t: TestContext,
  checkpoint: Checkpoint,
  options: ModelOptions = {},
): Promise<{ readonly model: PagedModel; readonly backend: Backend }> {
  const { backend: name = 'cpu', threads = 2, ...rest } = options;
  const { backend } = await openBackend(name, threads);
  t.after(() => backend.close());
  const dir = checkpoint === 'plumbline-tiny' ? EMBEDDED_MODEL : goldenFolder(t, checkpoint);
  const { model } = await loadModel({
    dir,
    id: checkpoint,
    backend,
    dtype: 'f32',
    gatePolicy: 'uniform',
    maxRows: 64,
    sequences: 8,
    draftHead: checkpoint === 'plumbline-tiny',
    ...rest,
  });
  t.after(() => model.close());
  if (!isPagedModel(model)) throw new Error(`${checkpoint} is no paged model`);
  return { model, backend };
}
