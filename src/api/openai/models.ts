/** GET /v1/models and GET /v1/models/:id. */
import type { ServedModel } from '../served-model.js';

export interface OpenAiModel {
  readonly id: string;
  readonly object: 'model';
  readonly created: number;
  readonly owned_by: string;
  readonly plumbline: { readonly context_length: number; readonly backend: string; readonly activation_law: string };
}

export function openAiModel({ id, createdAt, contextLength, build }: ServedModel): OpenAiModel {
  return {
    id,
    object: 'model',
    created: createdAt,
    owned_by: 'plumbline',
    plumbline: { context_length: contextLength, backend: build.backend, activation_law: build.activationLaw },
  };
}

export function openAiModelList(models: readonly ServedModel[]): { object: 'list'; data: readonly OpenAiModel[] } {
  return { object: 'list', data: models.map(openAiModel) };
}
