/**
 * A whole server: a model, the HTTP app around it, a listening socket.
 *
 * Invariants: nothing listens before the model is ready; a stop first ends the answers, then the model, then returns; a
 * failed start leaves nothing open.
 */
import { resolveOptions, type GivenOptions, type Options } from '../config.js';
import { createLog, type Log } from '../observe/log.js';
import { Telemetry } from '../observe/telemetry.js';
import { createApp } from './app.js';
import type { HttpOptions } from './context.js';
import type { HealthDetails } from './health.js';
import { listen, requireFreeAddress } from './node-server.js';
import { openModel, type OpenedModel, type OpenObserver, type TestSeams } from './open-model.js';
import { packageVersion } from './package-info.js';

export interface RunningServer {
  /** Without a trailing slash; the port is the one that was really taken. */
  readonly url: string;
  readonly port: number;
  readonly model: OpenedModel;
  readonly log: Log;
  /** What GET /health tells. */
  readonly health: () => HealthDetails;
  /**
   * Stops in order; by default with the configured time for running requests, cut short when `hurry` is aborted.
   * Calling it again changes nothing.
   */
  readonly close: (graceMs?: number, hurry?: AbortSignal) => Promise<void>;
}

const MIB = 1024 * 1024;
/** A client that reads nothing for this long while bytes wait for it is given up. */
const STALL_TIMEOUT_MS = 120_000;

/** @throws `invalid_option`, `address_in_use`, and what opening the model throws. */
export async function startServer(
  given: GivenOptions,
  observer: OpenObserver = {},
  seams: TestSeams = {},
): Promise<RunningServer> {
  const options = resolveOptions(given);
  const started = performance.now();
  const log = createLog({ level: options.logLevel, json: options.json });
  await requireFreeAddress(options.host, options.port);
  const model = await openModel(
    options,
    { log, onContainment: (receipt) => telemetry.containment(receipt), ...observer },
    seams,
  );
  const telemetry = new Telemetry(log, () => model.live());
  const health = (): HealthDetails => ({
    version: packageVersion(),
    uptime_s: Math.round((performance.now() - started) / 1000),
    models: [model.health()],
  });
  const http = createApp({
    options: httpOptions(options),
    models: [model.served],
    telemetry,
    health,
    isBroken: () => model.isBroken(),
    sessions: model.sessions.admin,
  });
  try {
    const listening = await listen(http, options.host, options.port);
    await model.sessions.tellAddress(listening.url).catch(() => undefined); // commands then say who has the folder
    let closed: Promise<void> | undefined;
    const close = async (graceMs: number, hurry?: AbortSignal): Promise<void> => {
      await listening.stop(graceMs, hurry);
      await model.close(0);
    };
    return {
      url: listening.url,
      port: listening.port,
      model,
      log,
      health,
      close: (graceMs = options.shutdownTimeoutS * 1000, hurry) => (closed ??= close(graceMs, hurry)),
    };
  } catch (thrown) {
    await model.close(0);
    throw thrown;
  }
}

function httpOptions(options: Options): HttpOptions {
  return {
    listenHost: options.host,
    allowedHosts: options.allowedHost,
    corsOrigins: options.corsOrigin,
    apiKey: options.apiKey,
    maxBodyBytes: Math.floor(options.maxBodyMib * MIB),
    keepAliveMs: options.keepAliveS * 1000,
    stallTimeoutMs: STALL_TIMEOUT_MS,
  };
}
