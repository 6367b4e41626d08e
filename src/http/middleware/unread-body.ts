/**
 * An answer that was given before the body of its request was read ends the connection, and says so: what is left of the
 * body would stand in the way of the next request, and a client must not find that out by a failure of that one.
 */
import type { MiddlewareHandler } from 'hono';
import type { HttpBindings } from '@hono/node-server';
import type { HttpEnv } from '../env.js';

export function unreadBody(): MiddlewareHandler<HttpEnv> {
  return async (c, next) => {
    await next();
    const incoming = (c.env as Partial<HttpBindings> | undefined)?.incoming;
    if (incoming === undefined || incoming.readableEnded) return;
    const { 'content-length': length = '0', 'transfer-encoding': coding } = incoming.headers;
    if (length !== '0' || coding !== undefined) c.res.headers.set('connection', 'close');
  };
}
