/**
 * The prefix under which a checkpoint keeps its text tensors: text-only files use the short one, multimodal ones the long.
 */
import { PlumblineError } from '../errors.js';
import { quoteName } from '../weights/strict-json.js';

export type TextRoot = 'model' | 'model.language_model';

interface NameSet {
  has(name: string): boolean;
}

const ROOTS: readonly TextRoot[] = ['model', 'model.language_model'];

/**
 * Which root a checkpoint uses, by where its embedding is.
 *
 * @throws tensor_missing when there is none, tensor_mismatch when there are two, config_unsupported for a pack of another
 * program's own layout
 */
export function findRoot(tensors: NameSet): TextRoot {
  const found = ROOTS.filter((root) => tensors.has(`${root}.embed_tokens.weight`));
  const [root] = found;
  if (found.length > 1) {
    throw new PlumblineError(
      'tensor_mismatch',
      `the checkpoint has an embed_tokens.weight under both ${found.join(' and ')}`,
    );
  }
  if (root !== undefined) return root;
  if (tensors.has('language_model.model.embed_tokens.weight')) {
    throw new PlumblineError(
      'config_unsupported',
      'the checkpoint has the tensor names of an MLX pack; only the published layout is supported',
    );
  }
  throw new PlumblineError(
    'tensor_missing',
    `the checkpoint has no tensor ${ROOTS.map((r) => quoteName(`${r}.embed_tokens.weight`)).join(' or ')}`,
  );
}
