/**
 * Failures in the OpenAI dialect: `{"error": {message, type, param, code}}`, the same object for an HTTP error body and
 * for the error frame of a stream.
 *
 * Invariants: a message carries no token text, no stack and no path; where the server log says more, the message names
 * the request id. The further member `plumbline` is kept by the official clients (`error.error.plumbline`).
 */
import { NonFiniteLogitsError, type PlumblineError } from '../../errors.js';
import { wireCensus, type WireCensus } from './census.js';

export interface OpenAiErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
    readonly plumbline: OpenAiErrorDetails;
  };
}

export interface OpenAiErrorDetails {
  readonly request_id: string;
  /** Whether sending the same request again may succeed. */
  readonly retryable: boolean;
  /** What the invalid row of logits held; only with code `non_finite_logits`. */
  readonly census?: WireCensus;
}

/** @param requestId value of `x-request-id`. */
export function openAiError(error: PlumblineError, requestId: string): OpenAiErrorBody {
  const { openaiType, status } = error.row;
  return {
    error: {
      message: status >= 500 ? `${error.message} (request ${requestId})` : error.message,
      type: openaiType,
      param: error.param ?? null,
      code: error.code,
      plumbline: {
        request_id: requestId,
        retryable: error.retryable,
        ...(error instanceof NonFiniteLogitsError ? { census: wireCensus(error.census) } : {}),
      },
    },
  };
}
