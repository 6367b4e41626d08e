/**
 * How few tokens a text can become, without encoding it: a prompt that is far beyond the context is refused by its length,
 * because encoding it would hold up the event loop for about a second a megabyte.
 *
 * Invariant: never more than encoding gives. Where a tokenizer may drop text or swap it for shorter text (added tokens that
 * take the spaces beside them, splits that remove what they match, normalisers other than NFC), nothing is claimed: 0.
 */
import { alphabetToBytes } from './byte-alphabet.js';
import type { TokenizerFiles } from './tokenizer-files.js';

export class TokenBound {
  /** Bytes of the longest token; undefined where length says nothing. */
  readonly #longestToken: number | undefined;
  readonly #normalise: (text: string) => string;

  constructor({ tokenizerJson, vocab, addedTokens }: TokenizerFiles) {
    const { normalizer, pre_tokenizer: preTokenizer, added_tokens: added } = tokenizerJson;
    const composes = isStage(normalizer) && normalizer['type'] === 'NFC';
    const known = composes || normalizer === undefined || normalizer === null;
    this.#normalise = composes ? (text) => text.normalize('NFC') : (text) => text;
    if (!known || !keepsText(preTokenizer) || (added as unknown[]).some(takesSpaces)) return;
    let longest = 1;
    for (const { content } of addedTokens) longest = Math.max(longest, Buffer.byteLength(content));
    for (const token of vocab.keys()) longest = Math.max(longest, alphabetToBytes(token)?.length ?? 0);
    this.#longestToken = longest;
  }

  /** A lower bound of the tokens of the text; linear, at the speed of a copy. */
  fewestTokens(text: string): number {
    if (this.#longestToken === undefined) return 0;
    return Math.ceil(Buffer.byteLength(this.#normalise(text)) / this.#longestToken);
  }
}

type Stage = Readonly<Record<string, unknown>>;

const isStage = (value: unknown): value is Stage => typeof value === 'object' && value !== null;

const takesSpaces = (entry: unknown): boolean =>
  isStage(entry) && (entry['lstrip'] === true || entry['rstrip'] === true);

function keepsText(stage: unknown): boolean {
  if (!isStage(stage)) return false;
  switch (stage['type']) {
    case 'Sequence':
      return (stage['pretokenizers'] as unknown[]).every(keepsText);
    case 'Split':
      return stage['behavior'] !== 'Removed';
    case 'ByteLevel':
    case 'Digits':
      return true;
    default:
      return false;
  }
}
