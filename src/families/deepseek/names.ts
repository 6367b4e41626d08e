/**
 * The two spellings of the family's tensors: the published one, and the one that the reference implementation writes.
 * Everything downstream speaks of tensors by their published names.
 *
 * Invariants: a tensor that is there under both spellings is refused, so it is never a matter of luck which one is read.
 */
import { PlumblineError } from '../../errors.js';
import { quoteName } from '../../weights/strict-json.js';

interface NameSet {
  has(name: string): boolean;
}

/** How a published name may be spelled in a checkpoint, the published spelling first. */
export function spellings(name: string): readonly string[] {
  return [name, rewritten(name)].filter((spelling, i, all) => all.indexOf(spelling) === i);
}

function rewritten(name: string): string {
  if (name === 'head.weight') return name;
  if (name === 'embed.weight') return 'model.embed_tokens.weight';
  const head = /^hc_head_(fn|base|scale)$/.exec(name);
  if (head) return `model.hc_head.hc_${head[1]}`;
  return `model.${name.replace(/\.attn\.kv_norm\.weight$/, '.attn.norm.weight')}`;
}

/**
 * The spelling that the checkpoint uses, or the published one where it has none.
 *
 * @throws tensor_mismatch when it has both
 */
export function spelled(tensors: NameSet, name: string): string {
  const found = spellings(name).filter((spelling) => tensors.has(spelling));
  if (found.length > 1) {
    throw new PlumblineError(
      'tensor_mismatch',
      `the checkpoint has the same tensor twice, as ${found.map((spelling) => quoteName(spelling)).join(' and ')}`,
    );
  }
  return found[0] ?? name;
}

/** Whether a tensor belongs to the extra prediction layers, under either spelling. */
export function isExtraLayer(name: string): boolean {
  return name.startsWith('mtp.') || name.startsWith('model.mtp.');
}
