/**
 * Gives every request an id: the client's own `x-request-id` when it is plain, else a fresh one. The id is in the
 * answer's header in every case, errors included.
 */
import { randomUUID } from 'node:crypto';
import type { MiddlewareHandler } from 'hono';
import type { HttpEnv } from '../env.js';

/** What a client may choose: nothing that could break a log line or a header. */
const PLAIN_ID = /^[A-Za-z0-9._:-]{1,128}$/;

export function requestId(): MiddlewareHandler<HttpEnv> {
  return async (c, next) => {
    const given = c.req.header('x-request-id');
    const id = given !== undefined && PLAIN_ID.test(given) ? given : `req_${randomUUID().replaceAll('-', '')}`;
    c.set('requestId', id);
    c.header('x-request-id', id);
    await next();
  };
}
