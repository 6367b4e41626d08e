/**
 * Ids to text, as the ids come: a byte-level detokenizer that emits text once it is certain.
 *
 * Invariants: over any sequence of ids the concatenated output equals one UTF-8 decoding of all their bytes (WHATWG
 * decoder, byte order marks kept); no output ends inside a UTF-8 sequence; at most 3 bytes are held back, and only while
 * they can still become a character. What can no longer become one is U+FFFD at once, not at the end.
 */
import type { Tokenizer } from './tokenizer.js';

/** What the detokenizer needs to know of a tokenizer. */
export type TokenBytes = Pick<Tokenizer, 'tokenBytes' | 'isSpecial'>;

export interface DetokenizerOptions {
  /** Whether special tokens (`<|im_end|>`) show in the text. Default false: they add no bytes. */
  readonly keepSpecial?: boolean | undefined;
}

const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
const NOTHING = new Uint8Array(0);

export class Detokenizer {
  readonly #tokenizer: TokenBytes;
  readonly #keepSpecial: boolean;
  /** An unfinished UTF-8 sequence: empty, or the first 1 to 3 bytes of one. */
  #pending: Uint8Array = NOTHING;

  constructor(tokenizer: TokenBytes, options: DetokenizerOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#keepSpecial = options.keepSpecial ?? false;
  }

  /** The text that became certain with this id; '' when all its bytes are held back. An id without a token adds none. */
  push(id: number): string {
    if (!this.#keepSpecial && this.#tokenizer.isSpecial(id)) return '';
    const bytes = join(this.#pending, this.#tokenizer.tokenBytes(id) ?? NOTHING);
    const certain = bytes.length - unfinishedTail(bytes);
    this.#pending = bytes.subarray(certain);
    return decoder.decode(bytes.subarray(0, certain));
  }

  /** The held-back bytes, which no more bytes will complete: U+FFFD or ''. The detokenizer is then as new. */
  flush(): string {
    const text = decoder.decode(this.#pending);
    this.#pending = NOTHING;
    return text;
  }
}

function join(head: Uint8Array, tail: Uint8Array): Uint8Array {
  if (head.length === 0) return tail;
  const bytes = new Uint8Array(head.length + tail.length);
  bytes.set(head);
  bytes.set(tail, head.length);
  return bytes;
}

/**
 * Length, 0 to 3, of the suffix that is a proper prefix of a well-formed UTF-8 sequence (Unicode, table 3-7). Splitting
 * there is exact: a lead byte always begins a new sequence for the decoder, whatever came before it.
 */
export function unfinishedTail(bytes: Uint8Array): number {
  const end = bytes.length;
  for (let length = 1; length <= 3 && length <= end; length++) {
    const byte = bytes[end - length] ?? 0;
    if (byte < 0x80) return 0;
    if (byte >= 0xc0)
      return length < sequenceLength(byte) && secondByteFits(byte, length, bytes[end - length + 1]) ? length : 0;
  }
  return 0;
}

/** Length of the sequence that a lead byte begins; 0 for bytes that begin none. */
function sequenceLength(lead: number): number {
  if (lead < 0xc2 || lead > 0xf4) return 0;
  return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/** Four lead bytes narrow the range of the byte after them: no overlong forms, no surrogates, nothing above U+10FFFF. */
function secondByteFits(lead: number, length: number, second: number | undefined): boolean {
  if (length < 2 || second === undefined) return true;
  switch (lead) {
    case 0xe0:
      return second >= 0xa0;
    case 0xed:
      return second <= 0x9f;
    case 0xf0:
      return second >= 0x90;
    case 0xf4:
      return second <= 0x8f;
    default:
      return true;
  }
}
