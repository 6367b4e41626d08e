/**
 * Which models the options name, and under which names they are served.
 *
 * Invariants: at least one model; names differ. `name=folder` gives a name where no slash stands before the equals sign, so
 * a folder with one in its name is written as `./a=b`.
 */
import { basename, resolve } from 'node:path';
import type { Options } from '../config.js';
import { PlumblineError } from '../errors.js';
import { embeddedModelFolder } from './package-info.js';

export interface ModelSpec {
  readonly id: string;
  /** Absolute path of the checkpoint. */
  readonly folder: string;
}

/** @throws invalid_option for names that do not fit together. */
export function modelSpecs({ model, modelId }: Pick<Options, 'model' | 'modelId'>): readonly ModelSpec[] {
  const given = typeof model === 'string' ? [model] : (model ?? [embeddedModelFolder()]);
  if (modelId !== undefined && given.length > 1) {
    throw new PlumblineError(
      'invalid_option',
      '--model-id names a single model; of several, write --model name=folder',
      {
        param: '--model-id',
      },
    );
  }
  const specs = given.map((item) => specOf(item, modelId));
  const twice = specs.find(({ id }, index) => specs.findIndex((other) => other.id === id) !== index);
  if (twice !== undefined) {
    throw new PlumblineError(
      'invalid_option',
      `--model: two models would be served as '${twice.id}'; name them with --model name=folder`,
      { param: '--model' },
    );
  }
  return specs;
}

/** The one model of a command that works with one. @throws invalid_option when the options name several. */
export function singleModel(options: Pick<Options, 'model' | 'modelId'>): ModelSpec {
  const [spec, ...more] = modelSpecs(options);
  if (spec !== undefined && more.length === 0) return spec;
  throw new PlumblineError('invalid_option', 'this command takes one --model', { param: '--model' });
}

function specOf(item: string, modelId: string | undefined): ModelSpec {
  const named = /^([^=/]+)=(.+)$/s.exec(item);
  const folder = resolve(named?.[2] ?? item);
  return { id: modelId ?? named?.[1] ?? basename(folder), folder };
}
