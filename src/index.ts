/**
 * plumbline as a library: a server in this process.
 *
 * ```ts
 * const server = await createServer({ port: 0 });
 * const answer = await fetch(`${server.url}/v1/models`);
 * await server.close();
 * ```
 */
import type { GivenOptions } from './config.js';
import { startServer, type RunningServer } from './http/server.js';

export { OPTIONS, type GivenOptions, type OptionName, type Options } from './config.js';
export {
  ERRORS,
  NonFiniteLogitsError,
  PlumblineError,
  type ErrorCode,
  type ErrorRow,
  type LogitsCensus,
} from './errors.js';
export type { HealthDetails, ModelHealth } from './http/health.js';

/** A server that runs in this process. */
export type PlumblineServer = Pick<RunningServer, 'url' | 'port' | 'health' | 'close'>;

/**
 * Loads a model (by default the embedded one) and serves it.
 * @throws PlumblineError: `invalid_option`, `address_in_use`, `checkpoint_…`, `config_…`, `model_too_large`, ….
 */
export async function createServer(options: GivenOptions = {}): Promise<PlumblineServer> {
  const { url, port, health, close } = await startServer(options);
  return { url, port, health, close };
}
