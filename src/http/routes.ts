/**
 * The table of routes, and the answers to requests that meet none: 404 with the list, 405 with the methods allowed.
 */
import type { Context, Handler, Hono } from 'hono';
import { PlumblineError } from '../errors.js';
import type { HttpEnv } from './env.js';

export interface Route {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Path pattern of hono. */
  readonly path: string;
  readonly summary: string;
  readonly handler: Handler<HttpEnv>;
}

/** `POST /v1/chat/completions`, with a pattern's parameter written as `:id`. */
export function routeName({ method, path }: Route): string {
  return `${method} ${path.replace(/\{.*\}$/, '')}`;
}

export function addRoutes(app: Hono<HttpEnv>, routes: readonly Route[]): void {
  for (const { method, path, handler } of routes) app.on(method, path, handler);
  for (const path of new Set(routes.map((route) => route.path))) {
    const methods = routes
      .filter((route) => route.path === path)
      .flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
    app.all(path, (c) => {
      c.header('allow', methods.join(', '));
      throw new PlumblineError(
        'method_not_allowed',
        `${path.replace(/\{.*\}$/, '')} takes ${methods.join(' or ')}, not ${c.req.method}`,
      );
    });
  }
  app.notFound(() => {
    throw new PlumblineError('route_not_found', `no such route; there are: ${routes.map(routeName).join(', ')}`);
  });
}

/** A fixed word for logs and metrics: the pattern of the path, or `none`. */
export function routeLabel(routes: readonly Route[]): (c: Context<HttpEnv>) => string {
  const exact = new Set(routes.map((route) => route.path));
  const prefixes = routes.filter((route) => route.path.includes('/:')).map((route) => route.path);
  return (c) => {
    const path = c.req.path;
    if (exact.has(path)) return path;
    const pattern = prefixes.find((candidate) => path.startsWith(candidate.slice(0, candidate.indexOf(':'))));
    return pattern?.replace(/\{.*\}$/, '') ?? 'none';
  };
}
