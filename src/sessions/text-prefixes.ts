/**
 * Stored states found by the text that they stand for: the key of one is the SHA-1 of the bytes of its tokens, and of every
 * text that a client may send in their place. The longest stored text that a prompt's text begins with wins; of equal ones
 * that of more tokens.
 *
 * Invariants: keys are made of the tokens that are stored anyway and are no part of any file; a hash only proposes, bytes
 * decide; a text ends between characters, and something of the prompt is left behind it. Where the prompt's own tokens reach
 * as far, they stay. A text that hides something serves its own session alone, or, among sessions without a name, those.
 */
import { createHash } from 'node:crypto';
import { isInferred } from './conversations.js';

/** A state that is kept, by what its keys are made of. */
export interface StoredPrefix {
  /** Stands for the stored thing as long as it is stored. */
  readonly identity: object;
  readonly session: string;
  tokens(): Int32Array;
}

/** How a stored state was found to begin a prompt. */
export type MatchedBy = 'tokens' | 'text' | 'visible_text';

export interface TextPrefix {
  readonly tokens: Int32Array;
  /** The text of the prompt behind them. */
  readonly rest: string;
  readonly by: Exclude<MatchedBy, 'tokens'>;
}

export interface TextPrefixesOptions {
  readonly stored: () => Iterable<StoredPrefix>;
  /** How many tokens of a prompt need not be computed, by the tokens alone. */
  readonly reach: (prompt: readonly number[]) => number;
  /** Bytes of an id; undefined for ids without a token. */
  readonly tokenBytes: (id: number) => Uint8Array | undefined;
  /** Further texts by which a client may send the text of a transcript again. */
  readonly visibleTexts?: ((text: string) => readonly string[]) | undefined;
}

interface TextKey {
  readonly sha1: string;
  readonly bytes: number;
  readonly by: TextPrefix['by'];
}

interface Found {
  readonly prefix: StoredPrefix;
  readonly key: TextKey;
}

export class TextPrefixes {
  readonly #o: TextPrefixesOptions;
  readonly #keys = new WeakMap<object, readonly TextKey[]>();

  constructor(options: TextPrefixesOptions) {
    this.#o = options;
  }

  /**
   * The tokens of the longest stored text that the text of `prompt` begins with, where that is longer than what its own
   * tokens find.
   * @param session as the client names it; undefined: it names none
   */
  longest(prompt: readonly number[], session: string | undefined): TextPrefix | undefined {
    const text = this.#textOf(prompt);
    if (text === undefined) return undefined;
    const least = this.#textOf(prompt.slice(0, this.#o.reach(prompt)))!.length;
    const found: Found[] = [];
    for (const prefix of this.#o.stored()) {
      for (const key of this.#keysOf(prefix)) {
        if (key.bytes <= least || key.bytes >= text.length || !isBoundary(text, key.bytes)) continue;
        if (key.by === 'text' || maySee(prefix.session, session)) found.push({ prefix, key });
      }
    }
    const hashes = prefixHashes(text, new Set(found.map(({ key }) => key.bytes)));
    const equal = found
      .filter(({ key }) => hashes.get(key.bytes) === key.sha1)
      .map((one) => ({ ...one, tokens: one.prefix.tokens() }))
      .sort((a, b) => b.key.bytes - a.key.bytes || b.tokens.length - a.tokens.length);
    for (const { tokens, key } of equal) {
      const begin = text.subarray(0, key.bytes);
      if (!this.#textsOf(tokens).some(({ bytes }) => begin.equals(bytes))) continue;
      return { tokens, rest: text.subarray(key.bytes).toString(), by: key.by };
    }
    return undefined;
  }

  #keysOf(prefix: StoredPrefix): readonly TextKey[] {
    const known = this.#keys.get(prefix.identity);
    if (known !== undefined) return known;
    const keys = this.#textsOf(prefix.tokens()).map(({ bytes, by }): TextKey => ({
      sha1: sha1(bytes),
      bytes: bytes.length,
      by,
    }));
    this.#keys.set(prefix.identity, keys);
    return keys;
  }

  /** The text of the tokens, and those by which it may come again. */
  #textsOf(tokens: ArrayLike<number>): { readonly bytes: Buffer; readonly by: TextPrefix['by'] }[] {
    const bytes = this.#textOf(tokens);
    if (bytes === undefined) return [];
    const text = bytes.toString();
    // Of bytes that are no text nothing can be left out.
    const visible = Buffer.from(text).equals(bytes) ? (this.#o.visibleTexts?.(text) ?? []) : [];
    return [
      { bytes, by: 'text' },
      ...visible
        .filter((other) => other !== text)
        .map((other) => ({ bytes: Buffer.from(other), by: 'visible_text' as const })),
    ];
  }

  /** undefined when an id has no bytes. */
  #textOf(tokens: ArrayLike<number>): Buffer | undefined {
    const pieces: Uint8Array[] = [];
    for (let i = 0; i < tokens.length; i++) {
      const piece = this.#o.tokenBytes(tokens[i]!);
      if (piece === undefined) return undefined;
      pieces.push(piece);
    }
    return Buffer.concat(pieces);
  }
}

function maySee(owner: string, session: string | undefined): boolean {
  return session === undefined ? isInferred(owner) : owner === session;
}

/** Whether no character goes over the place before byte `at`. */
const isBoundary = (text: Uint8Array, at: number): boolean => (text[at]! & 0xc0) !== 0x80;

const sha1 = (bytes: Uint8Array): string => createHash('sha1').update(bytes).digest('hex');

/** SHA-1 of the first bytes of a text, by how many they are. */
function prefixHashes(text: Uint8Array, lengths: ReadonlySet<number>): ReadonlyMap<number, string> {
  const hash = createHash('sha1');
  let done = 0;
  return new Map(
    [...lengths]
      .sort((a, b) => a - b)
      .map((length) => {
        hash.update(text.subarray(done, length));
        done = length;
        return [length, hash.copy().digest('hex')];
      }),
  );
}
