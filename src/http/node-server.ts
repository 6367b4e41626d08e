/**
 * The Node server around the HTTP app: listening, malformed requests below HTTP's own rules, and a stop in two steps.
 *
 * Invariants: after `stop()` resolves, no socket is open and no generation runs; running generations get the given time
 * to end by themselves, after which each ends with `shutting_down` as its error.
 */
import { createServer as createHttpServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import { openAiError } from '../api/openai/errors.js';
import { PlumblineError } from '../errors.js';
import type { HttpApp } from './app.js';

export interface ListeningServer {
  /** As a URL without a trailing slash, with the port that was really taken. */
  readonly url: string;
  readonly port: number;
  /**
   * Refuses new generations, waits up to `graceMs` for the running ones, ends the rest, closes every connection.
   * Calling it again gives the same promise.
   * @param hurry when it is aborted, running generations get no more time.
   */
  stop(graceMs: number, hurry?: AbortSignal): Promise<void>;
}

/** Time that the error frames of ended generations get to reach their clients. */
const FLUSH_MS = 1000;
const SWEEP_MS = 10;

/** @param port 0 takes any free port. Throws `address_in_use` and `invalid_option`. */
export async function listen(http: HttpApp, host: string, port: number): Promise<ListeningServer> {
  const listener = getRequestListener(http.app.fetch, { overrideGlobalObjects: false, errorHandler: malformedRequest });
  const server = createHttpServer((incoming, outgoing) => void listener(incoming, outgoing));
  // Events are small and must not wait for each other.
  server.on('connection', (socket) => socket.setNoDelay(true));
  await bind(server, host, port);
  const taken = (server.address() as AddressInfo).port;
  let stopped: Promise<void> | undefined;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${taken}`,
    port: taken,
    stop: (graceMs, hurry) => (stopped ??= stop(server, http, graceMs, hurry)),
  };
}

/**
 * Takes the address for a moment, so that a taken port is told before a large model is loaded for nothing.
 * Throws as `listen` does.
 */
export async function requireFreeAddress(host: string, port: number): Promise<void> {
  const probe = createHttpServer();
  await bind(probe, host, port);
  await new Promise<void>((resolve) => probe.close(() => resolve()));
}

/** What the adapter refuses before the app sees it: an impossible URL or Host header. */
function malformedRequest(): Response {
  const error = new PlumblineError('invalid_request', 'the request line or the Host header is malformed');
  return Response.json(openAiError(error, 'none'), { status: error.row.status });
}

async function bind(server: Server, host: string, port: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(bindError(error, host, port)));
    server.listen(port, host, resolve);
  });
  server.removeAllListeners('error');
}

function bindError(error: NodeJS.ErrnoException, host: string, port: number): PlumblineError {
  switch (error.code) {
    case 'EADDRINUSE':
      return new PlumblineError(
        'address_in_use',
        `${host}:${port} is taken by another program; choose another --port`,
        { cause: error },
      );
    case 'EACCES':
      return new PlumblineError('invalid_option', `no right to listen on port ${port}; choose a --port above 1023`, {
        param: '--port',
        cause: error,
      });
    default:
      return new PlumblineError(
        'invalid_option',
        `cannot listen on '${host}' (${error.code ?? error.message}); choose another --host`,
        { param: '--host', cause: error },
      );
  }
}

async function stop(server: Server, http: HttpApp, graceMs: number, hurry?: AbortSignal): Promise<void> {
  http.stopAccepting();
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeIdleConnections();
  await within(graceMs, http.active.idle(), hurry);
  if (http.active.size > 0) {
    http.active.abortAll(
      new PlumblineError(
        'shutting_down',
        'the server is stopping; the request was ended before its answer was complete',
      ),
    );
    await within(FLUSH_MS, http.active.idle());
  }
  // A connection is idle once its last answer is out; one that does not get there in time is cut off.
  const sweep = setInterval(() => server.closeIdleConnections(), SWEEP_MS);
  await within(FLUSH_MS, closed);
  clearInterval(sweep);
  server.closeAllConnections();
  await closed;
}

/** Waits for the promise, but no longer than the time, and not beyond an abort of `hurry`. */
async function within(milliseconds: number, promise: Promise<void>, hurry?: AbortSignal): Promise<void> {
  if (hurry?.aborted === true) return;
  let timer: NodeJS.Timeout | undefined;
  let enough: () => void = () => undefined;
  const timeout = new Promise<void>((resolve) => {
    enough = resolve;
    timer = setTimeout(resolve, milliseconds);
  });
  hurry?.addEventListener('abort', enough, { once: true });
  await Promise.race([promise, timeout]);
  hurry?.removeEventListener('abort', enough);
  clearTimeout(timer);
}
