/**
 * The name that a client gives a conversation.
 *
 * Invariant: what is taken is a short printable word, so that it can stand in headers, logs and file records as it is; the
 * beginning by which made-up names are known is not taken.
 */
import { PlumblineError } from '../errors.js';
import type { SessionWish } from '../schedule/request.js';
import { isInferred } from '../sessions/conversations.js';

const NAME = /^[\x21-\x7e]{1,128}$/;

/**
 * @param header value of `x-session-id`, which counts before the field of the body
 * @throws invalid_request
 */
export function sessionWish(
  header: string | undefined,
  promptCacheKey: string | undefined,
): Pick<SessionWish, 'id' | 'source'> {
  if (header !== undefined) return { id: checked(header, 'x-session-id'), source: 'header' };
  if (promptCacheKey !== undefined)
    return { id: checked(promptCacheKey, 'prompt_cache_key'), source: 'prompt_cache_key' };
  return {};
}

function checked(name: string, param: string): string {
  if (NAME.test(name) && !isInferred(name)) return name;
  throw new PlumblineError(
    'invalid_request',
    `'${param}' must be 1 to 128 printable ASCII characters without spaces, and not begin with 'auto-'`,
    { param },
  );
}
