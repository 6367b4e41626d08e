/**
 * The one table of errors. Every error that plumbline throws on purpose has a row here; a row says how each wire
 * format shows it, whether a retry can help, and what it poisons. docs/errors.md is generated from this table, and a
 * test holds the table, the page and the throw sites together.
 *
 * Invariants: a code is never reused for another meaning; messages name what was wrong and what to do; messages carry
 * no token text, no stack, and no path unless the user gave that path.
 */

/** What must be thrown away with the failure: nothing, this request, the session's whole state, or the process. */
export type Poison = 'nothing' | 'request' | 'session' | 'process';

export interface ErrorRow {
  /** HTTP status of the error answer. */
  readonly status: number;
  /** `error.type` in OpenAI-compatible answers. */
  readonly openaiType:
    'invalid_request_error' | 'server_error' | 'not_found_error' | 'authentication_error' | 'overloaded_error';
  /** `error.type` in Anthropic-compatible answers. */
  readonly anthropicType:
    'invalid_request_error' | 'api_error' | 'not_found_error' | 'authentication_error' | 'overloaded_error';
  /** Whether sending the same request again may succeed. */
  readonly retryable: boolean;
  readonly poisons: Poison;
  /** When it happens and what to do; becomes the doc page. */
  readonly doc: string;
}

const request = (status: number, doc: string): ErrorRow => ({
  status,
  openaiType: status === 404 ? 'not_found_error' : 'invalid_request_error',
  anthropicType: status === 404 ? 'not_found_error' : 'invalid_request_error',
  retryable: false,
  poisons: 'nothing',
  doc,
});

const server = (doc: string, poisons: Poison = 'request', retryable = false, status = 500): ErrorRow => ({
  status,
  openaiType: status === 503 ? 'overloaded_error' : 'server_error',
  anthropicType: status === 503 ? 'overloaded_error' : 'api_error',
  retryable,
  poisons,
  doc,
});

export const ERRORS = {
  // ---- the request ----
  invalid_request: request(
    400,
    'A field of the request body has the wrong type or value; the message names the field and what is allowed.',
  ),
  invalid_json: request(400, 'The request body is not JSON.'),
  unsupported_parameter: request(
    400,
    'The field is known but not supported here; the message says what to send instead.',
  ),
  context_length_exceeded: request(
    400,
    'Prompt plus requested tokens do not fit the context window; shorten the prompt or lower max_tokens.',
  ),
  chat_template_error: request(
    400,
    'The chat template of the model refused the messages; the message repeats what the template said.',
  ),
  model_not_found: request(404, 'The `model` of the request is not served here; GET /v1/models lists what is.'),
  route_not_found: request(404, 'No such route; the message lists the routes that exist.'),
  method_not_allowed: request(405, 'The route exists but not for this method.'),
  body_too_large: request(413, 'The request body is over the limit (flag --max-body-mib).'),
  unsupported_media_type: request(415, 'The body must be sent as application/json.'),
  unauthorized: {
    status: 401,
    openaiType: 'authentication_error',
    anthropicType: 'authentication_error',
    retryable: false,
    poisons: 'nothing',
    doc: 'The server was started with --api-key and the request carries none, or another one.',
  },
  forbidden_origin: request(403, 'The browser origin is not in the allowed list (flag --cors-origin).'),
  forbidden_host: request(
    403,
    'The Host header does not name this server; call it as localhost or 127.0.0.1, or allow the name (flag --allowed-host).',
  ),
  request_cancelled: {
    ...request(499, 'The client went away or cancelled; nothing more is computed for this request.'),
    poisons: 'request',
  },
  deadline_exceeded: server(
    'The request ran longer than its deadline (flag --request-timeout-s).',
    'request',
    true,
    504,
  ),
  // ---- the server ----
  queue_full: server('Too many requests are waiting (flag --max-queue); retry later.', 'nothing', true, 503),
  shutting_down: server('The server is stopping and takes no new requests.', 'nothing', true, 503),
  non_finite_logits: server(
    'A row of logits held NaN, +infinity, or no finite entry. No token was made from it; the request failed and all cached state of its session was dropped.',
    'session',
  ),
  tool_call_unterminated: server(
    'The answer ended inside a tool call, so that there is neither a call nor a text to give; raise max_tokens or ask again.',
    'nothing',
  ),
  tool_call_malformed: server(
    'A streamed answer has a tool call that cannot be read, and its beginning has already been sent; ask again, or without streaming, where such an answer comes back as text.',
    'nothing',
  ),
  internal_error: server('A fault of plumbline itself; please report it with the request id.', 'request'),
  invalid_distribution: server(
    'A sampling distribution was built from negative or mismatched entries: a programming error.',
    'request',
  ),
  // ---- configuration, checkpoints, machine ----
  invalid_option: request(
    400,
    'A command-line flag or configuration value is wrong; the message names it and what is allowed.',
  ),
  checkpoint_not_found: request(404, 'The checkpoint folder, or a file that it must have, does not exist.'),
  checkpoint_unreadable: request(
    400,
    'A checkpoint file could not be read; the message names the file and the reason of the system.',
  ),
  safetensors_invalid: request(
    400,
    'A safetensors file breaks the format: header, offsets, overlaps, shapes, or sizes; the message names file and tensor.',
  ),
  config_invalid: request(
    400,
    'config.json is not usable: the message names the key, its value, and the rule that it breaks.',
  ),
  config_unsupported: request(
    400,
    'config.json is valid but asks for something that plumbline does not do; the message names it.',
  ),
  tensor_missing: request(400, 'A tensor that the configuration requires is not in the checkpoint.'),
  tensor_mismatch: request(
    400,
    'A tensor has another shape or dtype than the configuration requires, or stored constants differ from their formulas.',
  ),
  tokenizer_invalid: request(400, 'tokenizer.json or tokenizer_config.json is missing or unusable.'),
  model_too_large: request(
    400,
    'The memory plan does not fit this machine; the message gives the figures and which flags lower them.',
  ),
  out_of_memory: server(
    'Memory for activations or state could not be had; the message gives the figures.',
    'request',
    true,
    503,
  ),
  backend_unavailable: request(
    400,
    'The chosen backend cannot run on this machine; the message says why and what can.',
  ),
  backend_failed: server('A backend failed while it ran a plan; its process state cannot be trusted.', 'process'),
  plan_invalid: server('A plan breaks the rules of the op table: a programming error.', 'request'),
  fixture_invalid: request(
    400,
    'A fixture or golden file given to `verify` is not of a known format; the message names file and line.',
  ),
  session_store_locked: request(
    400,
    'Another plumbline works on the session folder; the message says which process. Stop it, or choose another --session-dir.',
  ),
  session_store_unusable: request(
    400,
    'The session folder cannot be made, read or written; the message has the reason of the system.',
  ),
  session_file_invalid: request(
    400,
    'A file of stored sessions is damaged, cut short, or of a format or version that is not known here; nothing of it was used.',
  ),
  server_unreachable: request(400, 'No server answers at the address that the command was given (flag --url).'),
  server_refused: request(400, 'The server refused what the command asked for; the message is its own.'),
  session_not_found: request(404, 'No session of this id is kept, in memory or on disk.'),
  sessions_off: request(
    404,
    'The server keeps no sessions, or none on disk; the message says which flag turns it on (--sessions, --session-dir).',
  ),
  session_not_stored: server(
    'A session could not be taken in: no room within the budget or on the disk, or it failed here since it was written; the message has the reason.',
    'nothing',
  ),
  supervise_unavailable: request(
    400,
    'This system cannot hold a limit that `supervise` was asked for; the message says which and why. Nothing was started.',
  ),
  command_not_started: request(400, 'The command given to `supervise` could not be started; the message says why.'),
  address_in_use: request(400, 'The host and port are taken; choose another --port.'),
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

export interface ErrorOptions {
  /** The request field or flag at fault, for `error.param`. */
  readonly param?: string | undefined;
  readonly cause?: unknown;
}

/** The base of every error that plumbline throws on purpose. */
export class PlumblineError extends Error {
  readonly code: ErrorCode;
  readonly param: string | undefined;

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'PlumblineError';
    this.code = code;
    this.param = options.param;
  }

  get row(): ErrorRow {
    return ERRORS[this.code];
  }

  /** Whether sending the same request again may succeed. */
  get retryable(): boolean {
    return this.row.retryable;
  }
}

/** Which row of logits was invalid, and what was in it. */
export interface LogitsCensus {
  /** The place that asked for a token: `ar_step`, `prefill_frontier`, `draft`, `verify`, `bonus`, … */
  readonly site: string;
  /** The phase of the forward that made the row (engine/plan/phase.ts). */
  readonly phase: string;
  /** 0-based index of the completion token that the row was to decide. */
  readonly step: number;
  readonly nanCount: number;
  /** Infinities of both signs. */
  readonly infCount: number;
  /** Length of the row. */
  readonly vocabSize: number;
}

/** A row of logits from which no token may be made (NaN, +inf, or nothing finite). */
export class NonFiniteLogitsError extends PlumblineError {
  readonly census: LogitsCensus;
  /** Prompt tokens whose state the failed request had not computed itself; set when the failure is contained. */
  reusedTokens = 0;

  constructor(census: LogitsCensus) {
    super(
      'non_finite_logits',
      `invalid logits row at ${census.site} (phase ${census.phase}, step ${census.step}): ${census.nanCount} NaN and ` +
        `${census.infCount} infinite of ${census.vocabSize}; this request failed and all cached state of its session was dropped`,
    );
    this.name = 'NonFiniteLogitsError';
    this.census = census;
  }

  /** The same request starts cold the next time. One that was cold already would compute the same again. */
  override get retryable(): boolean {
    return this.reusedTokens > 0;
  }
}

/** Any thrown value as a PlumblineError; unknown ones become `internal_error` with the original as cause. */
export function toPlumblineError(thrown: unknown): PlumblineError {
  if (thrown instanceof PlumblineError) return thrown;
  return new PlumblineError('internal_error', 'internal error; the server log has the details under this request id', {
    cause: thrown,
  });
}
