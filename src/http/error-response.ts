/**
 * Any failure as an HTTP answer. Status, type and whether a client should try again come from the error table alone.
 */
import type { Context } from 'hono';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import { openAiError } from '../api/openai/errors.js';
import { toPlumblineError } from '../errors.js';
import type { HttpEnv } from './env.js';

const RETRY_AFTER_S = '1';

export function errorResponse(thrown: unknown, c: Context<HttpEnv>): Response {
  const error = toPlumblineError(thrown);
  c.set('failure', error);
  const { status } = error.row;
  // Official clients repeat every 5xx by themselves unless this header says that it is of no use.
  if (status >= 500) c.header('x-should-retry', String(error.retryable));
  if (status === 503) c.header('retry-after', RETRY_AFTER_S);
  return c.json(openAiError(error, c.get('requestId')), status as ContentfulStatusCode);
}
