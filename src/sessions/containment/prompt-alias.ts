/** Names for prompts: the hash of their first tokens, so that a conversation without an id is known again after a failure. */
import { createHash, type Hash } from 'node:crypto';
import type { PromptAlias } from './fence-records.js';

/** The whole of a prompt as an alias. */
export function aliasOf(tokens: ArrayLike<number>): PromptAlias {
  return { tokens: tokens.length, hash: feed(createHash('sha256'), tokens, 0, tokens.length).digest('hex') };
}

/**
 * The value of the longest alias that the prompt begins with; undefined when it begins with none.
 * One pass over the prompt, whatever the number of aliases.
 */
export function longestAlias<T>(
  prompt: ArrayLike<number>,
  aliases: Iterable<{ readonly alias: PromptAlias; readonly value: T }>,
): T | undefined {
  const byLength = new Map<number, Map<string, T>>();
  for (const { alias, value } of aliases) {
    if (alias.tokens === 0 || alias.tokens > prompt.length) continue;
    const sameLength = byLength.get(alias.tokens) ?? new Map<string, T>();
    byLength.set(alias.tokens, sameLength.set(alias.hash, value));
  }
  const hash = createHash('sha256');
  let found: T | undefined;
  let fed = 0;
  for (const [tokens, sameLength] of [...byLength].sort(([a], [b]) => a - b)) {
    feed(hash, prompt, fed, tokens);
    fed = tokens;
    found = sameLength.get(hash.copy().digest('hex')) ?? found;
  }
  return found;
}

function feed(hash: Hash, tokens: ArrayLike<number>, from: number, to: number): Hash {
  const bytes = Buffer.alloc((to - from) * 4);
  for (let i = from; i < to; i++) bytes.writeInt32LE(tokens[i]!, (i - from) * 4);
  return hash.update(bytes);
}
