/**
 * The API key, as `Authorization: Bearer KEY` or `x-api-key: KEY`. Keys are compared by their digests in constant time,
 * so that neither the length nor a common prefix shows in the timing.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { MiddlewareHandler } from 'hono';
import { PlumblineError } from '../../errors.js';
import type { HttpEnv } from '../env.js';

const digest = (text: string): Buffer => createHash('sha256').update(text, 'utf8').digest();

/**
 * @param apiKey the key, or undefined: everyone is authorized.
 * @param openPaths paths that answer without a key; their handlers look at `authorized`.
 */
export function auth(apiKey: string | undefined, openPaths: readonly string[]): MiddlewareHandler<HttpEnv> {
  const expected = apiKey === undefined ? undefined : digest(apiKey);
  return async (c, next) => {
    const bearer = /^Bearer\s+(.+)$/i.exec(c.req.header('authorization') ?? '')?.[1];
    const given = bearer ?? c.req.header('x-api-key');
    const authorized = expected === undefined || (given !== undefined && timingSafeEqual(digest(given), expected));
    c.set('authorized', authorized);
    if (!authorized && !openPaths.includes(c.req.path)) {
      c.header('www-authenticate', 'Bearer');
      throw new PlumblineError(
        'unauthorized',
        given === undefined
          ? 'an API key is required: send it as `Authorization: Bearer KEY`'
          : 'the API key is not the one that this server was started with',
      );
    }
    return next();
  };
}
