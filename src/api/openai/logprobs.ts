/**
 * Log-probabilities on the wire, in the chat form and in the older completions form.
 *
 * Values are natural logs of the raw log-softmax of the processed row (after mask and penalties, before temperature).
 * JSON has no infinity: a token that the mask or an underflow leaves without probability shows as -9999, as OpenAI does;
 * a number is never null.
 */
import type { TokenLogprob } from '../../schedule/request.js';

const LOWEST = -9999;
/** A law may give +infinity to the tokens of a row that has no mass. */
const HIGHEST = 9999;

/** The text of a token id, by its bytes; undefined for ids without a token. */
export type BytesOf = (tokenId: number) => Uint8Array | undefined;

interface WireToken {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
}

export interface ChatTokenLogprob extends WireToken {
  readonly top_logprobs: readonly WireToken[];
}

export function chatLogprob(chosen: TokenLogprob, top: readonly TokenLogprob[], bytesOf: BytesOf): ChatTokenLogprob {
  return { ...wireToken(chosen, bytesOf), top_logprobs: top.map((entry) => wireToken(entry, bytesOf)) };
}

export interface CompletionLogprobs {
  readonly tokens: readonly string[];
  readonly token_logprobs: readonly number[];
  readonly top_logprobs: readonly Readonly<Record<string, number>>[];
  /** Characters of the answer that were certain before each token. */
  readonly text_offset: readonly number[];
}

/** @param offset characters of the answer that were certain before this token. */
export function completionLogprobs(
  chosen: TokenLogprob,
  top: readonly TokenLogprob[],
  offset: number,
  bytesOf: BytesOf,
): CompletionLogprobs {
  // The older form names the chosen token among the alternatives even when it is not one of the most likely.
  const alternatives = top.some((entry) => entry.tokenId === chosen.tokenId) ? top : [...top, chosen];
  return {
    tokens: [tokenText(bytesOf(chosen.tokenId))],
    token_logprobs: [finite(chosen.logprob)],
    top_logprobs: [
      Object.fromEntries(alternatives.map((entry) => [tokenText(bytesOf(entry.tokenId)), finite(entry.logprob)])),
    ],
    text_offset: [offset],
  };
}

export function joinCompletionLogprobs(parts: readonly CompletionLogprobs[]): CompletionLogprobs {
  return {
    tokens: parts.flatMap((part) => part.tokens),
    token_logprobs: parts.flatMap((part) => part.token_logprobs),
    top_logprobs: parts.flatMap((part) => part.top_logprobs),
    text_offset: parts.flatMap((part) => part.text_offset),
  };
}

function wireToken({ tokenId, logprob }: TokenLogprob, bytesOf: BytesOf): WireToken {
  const bytes = bytesOf(tokenId);
  return { token: tokenText(bytes), logprob: finite(logprob), bytes: Array.from(bytes ?? []) };
}

const finite = (logprob: number): number => Math.min(Math.max(logprob, LOWEST), HIGHEST);

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The token as text; a token that is not whole UTF-8 by itself as `bytes:\xe2\x82`, in OpenAI's own notation. */
function tokenText(bytes: Uint8Array | undefined): string {
  if (bytes === undefined) return '';
  try {
    return decoder.decode(bytes);
  } catch {
    return `bytes:${Array.from(bytes, (byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('')}`;
  }
}
