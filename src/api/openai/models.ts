/** GET /v1/models and GET /v1/models/:id. */
import { modelNames, type NamedModel } from '../model-names.js';
import type { ServedModel } from '../served-model.js';

export interface OpenAiModel {
  readonly id: string;
  readonly object: 'model';
  readonly created: number;
  readonly owned_by: string;
  readonly plumbline: {
    readonly context_length: number;
    readonly backend: string;
    readonly activation_law: string;
    /** Of an alias: the model that it means, and whether that reasons first under this name. */
    readonly alias_of?: string;
    readonly thinking?: 'on' | 'off';
  };
}

export function openAiModel({ model, alias }: NamedModel): OpenAiModel {
  const { id, createdAt, contextLength, build } = model;
  return {
    id: alias?.name ?? id,
    object: 'model',
    created: createdAt,
    owned_by: 'plumbline',
    plumbline: {
      context_length: contextLength,
      backend: build.backend,
      activation_law: build.activationLaw,
      ...(alias && { alias_of: id, thinking: alias.thinking ? 'on' : 'off' }),
    },
  };
}

export function openAiModelList(models: readonly ServedModel[]): { object: 'list'; data: readonly OpenAiModel[] } {
  return { object: 'list', data: modelNames(models).map(openAiModel) };
}
