/**
 * Cross-origin access of browser pages. A request without an Origin header does not come from a page and passes; an
 * origin that is not in the list is refused before anything is read or computed, so that no page can make this
 * machine work, even one that could not read the answer.
 */
import type { MiddlewareHandler } from 'hono';
import { PlumblineError } from '../../errors.js';
import type { HttpEnv } from '../env.js';

const ALLOWED_METHODS = 'GET, HEAD, POST, DELETE, OPTIONS';
const EXPOSED_HEADERS = 'x-request-id, x-should-retry, retry-after';
const PREFLIGHT_MAX_AGE_S = '600';

/** @param origins exact origins as browsers send them (`https://host:port`, `null`), or `*` for every page. */
export function cors(origins: readonly string[]): MiddlewareHandler<HttpEnv> {
  const any = origins.includes('*');
  const allowed = new Set(origins.map((origin) => origin.replace(/\/$/, '').toLowerCase()));
  return async (c, next) => {
    const origin = c.req.header('origin');
    if (origin === undefined) return next();
    c.header('vary', 'Origin', { append: true });
    if (!any && !allowed.has(origin.toLowerCase())) {
      throw new PlumblineError(
        'forbidden_origin',
        'this browser origin is not allowed; start the server with --cors-origin to allow it',
      );
    }
    c.header('access-control-allow-origin', any ? '*' : origin);
    c.header('access-control-expose-headers', EXPOSED_HEADERS);
    if (c.req.method === 'OPTIONS' && c.req.header('access-control-request-method') !== undefined) {
      c.header('access-control-allow-methods', ALLOWED_METHODS);
      // Official clients add a dozen x-stainless-* headers, so the asked-for list is granted as it is.
      c.header(
        'access-control-allow-headers',
        c.req.header('access-control-request-headers') ?? 'authorization, content-type',
      );
      c.header('access-control-max-age', PREFLIGHT_MAX_AGE_S);
      return c.body(null, 204);
    }
    return next();
  };
}
