/**
 * How tensors are called in a Qwen checkpoint: the parts that this program does not serve, and the numbered shards of an
 * n-gram table. Full names appear once, here and in the inventory, and nowhere else.
 */
import { PlumblineError } from '../../errors.js';
import { quoteName } from '../../weights/strict-json.js';

interface NameSet {
  has(name: string): boolean;
  names(): Iterable<string>;
}

/** Parts of a published checkpoint that are known but not served. */
export const UNSERVED_PARTS = ['draft head', 'vision tower'] as const;
export type UnservedPart = (typeof UNSERVED_PARTS)[number];

export function unservedPart(name: string): UnservedPart | undefined {
  if (name.startsWith('mtp.')) return 'draft head';
  if (name.startsWith('model.visual.')) return 'vision tower';
  return undefined;
}

/**
 * The tensors of an n-gram table in stacking order: by shard number, not by name (`shard_10` comes after `shard_9`).
 *
 * @param prefix `….ple.ple_embedding.ngram_embedding`
 * @throws tensor_missing when there is none or a shard is absent, tensor_mismatch when shards and a whole table coexist
 */
export function ngramTableNames(tensors: NameSet, prefix: string): readonly string[] {
  const whole = `${prefix}.weight`;
  const shards: { number: number; name: string }[] = [];
  for (const name of tensors.names()) {
    if (!name.startsWith(`${prefix}.shard_`)) continue;
    const digits = /^(0|[1-9][0-9]{0,9})\.weight$/.exec(name.slice(prefix.length + '.shard_'.length))?.[1];
    if (digits !== undefined) shards.push({ number: Number(digits), name });
  }
  if (shards.length === 0) {
    if (tensors.has(whole)) return [whole];
    throw new PlumblineError(
      'tensor_missing',
      `the checkpoint has neither ${quoteName(whole)} nor ${quoteName(`${prefix}.shard_0.weight`)}`,
    );
  }
  if (tensors.has(whole)) {
    throw new PlumblineError('tensor_mismatch', `the checkpoint has both ${quoteName(whole)} and shards of it`);
  }
  shards.sort((a, b) => a.number - b.number);
  shards.forEach(({ number }, i) => {
    if (number !== i) {
      throw new PlumblineError(
        'tensor_missing',
        `the checkpoint has no tensor ${quoteName(`${prefix}.shard_${i}.weight`)} but a shard ${number}`,
      );
    }
  });
  return shards.map(({ name }) => name);
}
