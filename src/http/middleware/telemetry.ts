/** Tells every request with its route, status and duration (for a stream: until its headers). */
import type { Context, MiddlewareHandler } from 'hono';
import type { Telemetry } from '../../observe/telemetry.js';
import type { HttpEnv } from '../env.js';

/** @param routeOf the pattern of the route that a request met, or a fixed word when it met none. */
export function requestTelemetry(
  telemetry: Telemetry,
  routeOf: (c: Context<HttpEnv>) => string,
): MiddlewareHandler<HttpEnv> {
  return async (c, next) => {
    const start = performance.now();
    await next();
    telemetry.request({
      requestId: c.get('requestId'),
      method: c.req.method,
      route: routeOf(c),
      status: c.res.status,
      milliseconds: performance.now() - start,
      failure: c.get('failure'),
    });
  };
}
