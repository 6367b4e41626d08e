/**
 * The names by which requests ask for a model: those that models are served under, and further ones that a law gives them,
 * which also say whether the model reasons first.
 *
 * Invariant: a served name counts before any alias, and an alias only while it can mean one model alone.
 */
import { PlumblineError } from '../errors.js';
import type { ModelAlias, ServedModel } from './served-model.js';

export interface NamedModel {
  readonly model: ServedModel;
  /** The alias that it was asked for by. */
  readonly alias?: ModelAlias | undefined;
}

/** Every name that means one model, aliases last. */
export function modelNames(models: readonly ServedModel[]): readonly (NamedModel & { readonly name: string })[] {
  const served = models.map((model) => ({ name: model.id, model }));
  const aliases = models.flatMap((model) => (model.aliases ?? []).map((alias) => ({ name: alias.name, model, alias })));
  const unambiguous = aliases.filter(
    ({ name }) => !served.some((other) => other.name === name) && aliases.filter((a) => a.name === name).length === 1,
  );
  return [...served, ...unambiguous];
}

/** Throws `model_not_found`. */
export function findModel(id: string, models: readonly ServedModel[]): NamedModel {
  const names = modelNames(models);
  const found = names.find(({ name }) => name === id);
  if (found !== undefined) return found;
  const several = models.filter(({ aliases = [] }) => aliases.some(({ name }) => name === id));
  const quoted = (list: readonly string[]): string => list.map((name) => `'${name}'`).join(', ');
  const message =
    several.length > 1
      ? `the model '${id}' may be any of ${quoted(several.map((model) => model.id))}; name the one that is meant`
      : `the model '${id}' is not served here; served: ${quoted(names.map(({ name }) => name))}`;
  throw new PlumblineError('model_not_found', message, { param: 'model' });
}
