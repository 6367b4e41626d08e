/**
 * Refuses requests whose Host header does not name this server. A page on the web can point its own domain at
 * 127.0.0.1 (DNS rebinding) and then read answers as its own origin; the Host header gives it away.
 *
 * Enforced when the server listens on a loopback address, or when hosts were allowed explicitly.
 */
import type { MiddlewareHandler } from 'hono';
import { PlumblineError } from '../../errors.js';
import type { HttpEnv } from '../env.js';

const LOOPBACK_HOSTS: readonly string[] = ['localhost', '127.0.0.1', '[::1]'];

export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host === '[::1]' || /^127(\.\d{1,3}){3}$/.test(host);
}

/** The host of a Host header, without its port, in lower case; undefined when it is not a host. */
export function hostName(header: string): string | undefined {
  const match = /^(\[[0-9a-f:.]+\]|[^:/?#@\s[\]]+)(?::\d{1,5})?$/i.exec(header);
  return match?.[1]?.toLowerCase().replace(/\.$/, '');
}

/**
 * @param listenHost the address that the server binds.
 * @param allowedHosts further host names, without port (flag --allowed-host).
 */
export function hostCheck(listenHost: string, allowedHosts: readonly string[]): MiddlewareHandler<HttpEnv> {
  const enforced = isLoopback(listenHost) || allowedHosts.length > 0;
  const allowed = new Set([
    ...LOOPBACK_HOSTS,
    listenHost.toLowerCase(),
    ...allowedHosts.map((host) => host.toLowerCase()),
  ]);
  return async (c, next) => {
    const header = c.req.header('host') ?? new URL(c.req.url).host;
    const name = hostName(header);
    if (enforced && (name === undefined || !allowed.has(name))) {
      throw new PlumblineError(
        'forbidden_host',
        'the Host header of the request does not name this server; call it as localhost or 127.0.0.1, or start it with --allowed-host',
      );
    }
    await next();
  };
}
