/**
 * Text to ids and ids to bytes: our seam over @huggingface/tokenizers, for byte-level BPE.
 *
 * Invariants: the library encodes only; every id's bytes come from the vocabulary itself, because a single token may be
 * part of a UTF-8 sequence and has no text of its own. Encoding never drops a character (tokenizer-files.ts). Ids in
 * [0, vocabSize) may have no token (holes): they have no bytes and add no text. A model's lm_head may be wider than
 * vocabSize: the sampler never draws the ids behind it.
 */
import * as library from '@huggingface/tokenizers';
import { PlumblineError } from '../errors.js';
import { alphabetToBytes } from './byte-alphabet.js';
import { TokenBound } from './token-bound.js';
import { checkTokenizerFiles, readTokenizerFiles, type TokenizerFiles } from './tokenizer-files.js';

export interface EncodeOptions {
  /** Adds what the post-processor adds around a text (bos, eos). Default false: chat templates write their own. */
  readonly addSpecialTokens?: boolean | undefined;
  /**
   * Whether added tokens written in the text (`<|im_end|>`, `<think>`) become their ids. Default true: chat templates
   * need it. With false they are encoded as the plain characters they are written with, so a text from outside cannot
   * end a turn or open a tool call.
   */
  readonly recogniseAddedTokens?: boolean | undefined;
  /** Refuses a text that is too long for so many tokens by its length alone, without the time to encode it. */
  readonly limit?: TokenLimit | undefined;
}

export interface TokenLimit {
  readonly tokens: number;
  /** The request field that the text came from, for the error. */
  readonly param: string;
}

/** Named tokens of tokenizer_config.json that chat templates and stop rules use. */
export interface NamedTokens {
  readonly bos?: string | undefined;
  readonly eos?: string | undefined;
  readonly pad?: string | undefined;
  readonly unk?: string | undefined;
}

/** The part of the library that is used. Its own declarations import without extensions, which NodeNext cannot resolve. */
interface LibraryTokenizer {
  tokenize(text: string, options: { add_special_tokens: boolean }): string[];
}
const LibraryTokenizer = library.Tokenizer as unknown as new (
  tokenizerJson: object,
  configJson: object,
) => LibraryTokenizer;

export class Tokenizer {
  /** Highest id that has a token, plus one. */
  readonly vocabSize: number;
  /** Content to id of the added tokens that are marked special. */
  readonly specialTokens: ReadonlyMap<string, number>;
  /** Content to id of every added token, special or not. */
  readonly addedTokens: ReadonlyMap<string, number>;
  readonly namedTokens: NamedTokens;
  /** tokenizer_config.json as it was read; the chat template lives in it. */
  readonly config: Readonly<Record<string, unknown>>;

  readonly #files: TokenizerFiles;
  readonly #bound: TokenBound;
  readonly #library: LibraryTokenizer;
  /** The same tokenizer without its added tokens; made when it is first asked for. */
  #plain: LibraryTokenizer | undefined;
  /** Token string by id; undefined where there is none. */
  readonly #tokens: (string | undefined)[];
  readonly #addedIds: ReadonlySet<number>;
  readonly #specialIds: ReadonlySet<number>;

  private constructor(files: TokenizerFiles) {
    this.#files = files;
    this.#bound = new TokenBound(files);
    this.config = files.configJson;
    this.#library = buildLibrary(files.tokenizerJson, files.configJson);
    this.addedTokens = new Map(files.addedTokens.map(({ content, id }) => [content, id]));
    this.specialTokens = new Map(
      files.addedTokens.filter(({ special }) => special).map(({ content, id }) => [content, id]),
    );
    this.#addedIds = new Set(this.addedTokens.values());
    this.#specialIds = new Set(this.specialTokens.values());
    const entries = [...files.vocab, ...this.addedTokens];
    this.vocabSize = entries.reduce((highest, [, id]) => Math.max(highest, id), -1) + 1;
    this.#tokens = new Array<string | undefined>(this.vocabSize).fill(undefined);
    for (const [token, id] of entries) this.#tokens[id] = token;
    this.namedTokens = {
      bos: this.#namedToken('bos_token'),
      eos: this.#namedToken('eos_token'),
      pad: this.#namedToken('pad_token'),
      unk: this.#namedToken('unk_token'),
    };
  }

  /** Reads tokenizer.json and tokenizer_config.json of a checkpoint folder. Throws `tokenizer_invalid`. */
  static async load(folder: string): Promise<Tokenizer> {
    return new Tokenizer(await readTokenizerFiles(folder));
  }

  /** From already parsed files. Throws `tokenizer_invalid`. */
  static fromJson(tokenizerJson: unknown, configJson: unknown): Tokenizer {
    return new Tokenizer(checkTokenizerFiles(tokenizerJson, configJson));
  }

  /**
   * Ids of a text. The tokenizer's own normaliser (NFC in the Qwen family) runs first, so the bytes of the ids are those
   * of the normalised text; lone surrogates become U+FFFD.
   * @throws context_length_exceeded for a text that certainly passes `limit`; one that passes it less may be encoded.
   */
  encode(text: string, options: EncodeOptions = {}): number[] {
    const { addSpecialTokens = false, recogniseAddedTokens = true, limit } = options;
    if (limit !== undefined) this.#requireFits(text, limit);
    const encoder = recogniseAddedTokens ? this.#library : this.#plainLibrary();
    // Token strings, not the library's ids: the plain tokenizer does not know the ids that the post-processor adds.
    return encoder.tokenize(text, { add_special_tokens: addSpecialTokens }).map((token) => {
      const id = this.#files.vocab.get(token) ?? this.addedTokens.get(token);
      if (id === undefined)
        throw new PlumblineError(
          'tokenizer_invalid',
          `tokenizer.json: the post_processor adds ${JSON.stringify(token)}, which has no id`,
        );
      return id;
    });
  }

  /** The bytes an id stands for: those of the byte alphabet, or the UTF-8 of an added token. undefined: no such token. */
  tokenBytes(id: number): Uint8Array | undefined {
    const token = this.#tokens[id];
    if (token === undefined) return undefined;
    return this.#addedIds.has(id) ? utf8.encode(token) : alphabetToBytes(token);
  }

  /** Whether the id has a token; false for holes and for every id from vocabSize on. */
  hasToken(id: number): boolean {
    return this.#tokens[id] !== undefined;
  }

  /** Whether the id is an added token marked special: it steers the model and is not part of the answer's text. */
  isSpecial(id: number): boolean {
    return this.#specialIds.has(id);
  }

  /** Id of an added token by its content, such as `<|im_end|>`. */
  addedTokenId(content: string): number | undefined {
    return this.addedTokens.get(content);
  }

  #requireFits(text: string, { tokens, param }: TokenLimit): void {
    const fewest = this.#bound.fewestTokens(text);
    if (fewest <= tokens) return;
    throw new PlumblineError(
      'context_length_exceeded',
      `the prompt has at least ${fewest} tokens, more than the context of ${tokens}`,
      { param },
    );
  }

  #plainLibrary(): LibraryTokenizer {
    this.#plain ??= buildLibrary({ ...this.#files.tokenizerJson, added_tokens: [] }, this.#files.configJson);
    return this.#plain;
  }

  /** A named token is a string or an AddedToken object; null and absence mean that the model has none. */
  #namedToken(key: string): string | undefined {
    const value = this.config[key];
    const content = typeof value === 'object' && value !== null && 'content' in value ? value.content : value;
    if (content === undefined || content === null) return undefined;
    if (typeof content !== 'string')
      throw new PlumblineError('tokenizer_invalid', `tokenizer_config.json: ${key} is not a token string`);
    if (!this.addedTokens.has(content) && !this.#files.vocab.has(content)) {
      throw new PlumblineError(
        'tokenizer_invalid',
        `tokenizer_config.json: ${key} ${JSON.stringify(content)} is not in tokenizer.json`,
      );
    }
    return content;
  }
}

const utf8 = new TextEncoder();

function buildLibrary(tokenizerJson: object, configJson: object): LibraryTokenizer {
  try {
    return new LibraryTokenizer(tokenizerJson, configJson);
  } catch (error) {
    throw new PlumblineError(
      'tokenizer_invalid',
      `tokenizer.json: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
}
