/**
 * A prompt that begins with a text whose state is kept, under laws that know such states by their text: the tokens of then
 * stay, and only what stands behind them is encoded.
 */
import type { TextPrefix, TextPrefixes } from '../sessions/text-prefixes.js';

export interface KnownText {
  readonly promptTokens: readonly number[];
  /** How many of them are the stored ones, and by which text they were found. */
  readonly prefix: { readonly tokens: number; readonly by: TextPrefix['by'] };
}

/** Where texts are known, for whom, and how much room there is. */
export interface TextMemory {
  readonly texts: TextPrefixes;
  readonly session: string | undefined;
  /** Stored tokens may be more than those of the plain text: a prompt of more than this is left as it is. */
  readonly mostTokens: number;
}

/** Why a stored text is not gone on from: with its tokens the answer would have no room in the context. */
export type TextDeclined = 'no_room';

/** @param plain the prompt as its text is encoded; undefined: no stored text reaches farther than these tokens do */
export function fromKnownText(
  plain: readonly number[],
  { texts, session, mostTokens }: TextMemory,
  encode: (text: string) => readonly number[],
): KnownText | TextDeclined | undefined {
  const known = texts.longest(plain, session);
  if (known === undefined) return undefined;
  const promptTokens = [...known.tokens, ...encode(known.rest)];
  if (promptTokens.length > mostTokens) return 'no_room';
  return { promptTokens, prefix: { tokens: known.tokens.length, by: known.by } };
}
