/**
 * A whole server: its models, the HTTP app around them, a listening socket.
 *
 * Invariants: nothing listens before every model is ready; each has a backend, a queue and memory of its own, so one that
 * fails does not disturb the others; a stop first ends the answers, then the models, then returns; a failed start leaves
 * nothing open.
 */
import { resolveOptions, type GivenOptions, type Options } from '../config.js';
import { createLog, type Log } from '../observe/log.js';
import type { ContainmentFigures, LiveFigures } from '../observe/metrics.js';
import { Telemetry } from '../observe/telemetry.js';
import { allSessions } from '../sessions/all-sessions.js';
import { ownSessionFolder } from '../sessions/checkpoints/session-folder.js';
import type { ContainmentReceipt } from '../sessions/containment/receipts.js';
import { createApp } from './app.js';
import type { HttpOptions } from './context.js';
import type { HealthDetails } from './health.js';
import { listen, requireFreeAddress } from './node-server.js';
import { modelSpecs, type ModelSpec } from './model-specs.js';
import { openModel, type OpenedModel, type OpenObserver, type TestSeams } from './open-model.js';
import { packageVersion } from './package-info.js';

export interface RunningServer {
  /** Without a trailing slash; the port is the one that was really taken. */
  readonly url: string;
  readonly port: number;
  /** At least one, in the order of the options. */
  readonly models: readonly OpenedModel[];
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

/** @throws `invalid_option`, `address_in_use`, and what opening a model throws. */
export async function startServer(
  given: GivenOptions,
  observer: OpenObserver = {},
  seams: TestSeams = {},
): Promise<RunningServer> {
  const options = resolveOptions(given);
  const started = performance.now();
  const log = createLog({ level: options.logLevel, json: options.json });
  const specs = modelSpecs(options);
  await requireFreeAddress(options.host, options.port);
  const models: OpenedModel[] = [];
  const closeModels = async (): Promise<void> => {
    for (const model of models.splice(0).reverse()) await model.close(0);
  };
  try {
    const told = { log, onContainment: (receipt: ContainmentReceipt) => telemetry.containment(receipt), ...observer };
    const opened: OpenedModel[] = [];
    const telemetry = new Telemetry(log, () => liveOf(opened));
    for (const spec of specs) {
      const model = await openModel(spec, withOwnFolder(options, spec, specs), told, seams);
      models.push(model);
      opened.push(model);
    }
    const health = (): HealthDetails => ({
      version: packageVersion(),
      uptime_s: Math.round((performance.now() - started) / 1000),
      models: opened.map((model) => model.health()),
    });
    const http = createApp({
      options: httpOptions(options),
      models: opened.map((model) => model.served),
      telemetry,
      health,
      brokenModels: () => opened.filter((model) => model.isBroken()).length,
      sessions: allSessions(opened.flatMap(({ sessions }) => sessions.admin ?? [])),
    });
    const listening = await listen(http, options.host, options.port);
    for (const { sessions } of opened) {
      await sessions.tellAddress(listening.url).catch(() => undefined); // commands then say who has the folder
    }
    let closed: Promise<void> | undefined;
    const close = async (graceMs: number, hurry?: AbortSignal): Promise<void> => {
      await listening.stop(graceMs, hurry);
      await closeModels();
    };
    return {
      url: listening.url,
      port: listening.port,
      models: opened,
      log,
      health,
      close: (graceMs = options.shutdownTimeoutS * 1000, hurry) => (closed ??= close(graceMs, hurry)),
    };
  } catch (thrown) {
    await closeModels();
    throw thrown;
  }
}

/** Of several models each keeps its sessions in a folder of its own in the one that was given. */
function withOwnFolder(options: Options, { id }: ModelSpec, { length }: readonly ModelSpec[]): Options {
  const { sessionDir } = options;
  if (sessionDir === undefined || length === 1) return options;
  return { ...options, sessionDir: ownSessionFolder(sessionDir, id) };
}

function liveOf(models: readonly OpenedModel[]): LiveFigures {
  const figures = models.map((model) => model.live());
  const total = (of: (figure: LiveFigures) => number): number => figures.reduce((sum, figure) => sum + of(figure), 0);
  const contained = figures.flatMap(({ containment }) => containment ?? []);
  return {
    running: total(({ running }) => running),
    waiting: total(({ waiting }) => waiting),
    ...(contained.length > 0 && { containment: sumOf(contained) }),
    sessions: figures.flatMap(({ sessions = [] }) => sessions),
  };
}

function sumOf(figures: readonly ContainmentFigures[]): ContainmentFigures {
  const total = (of: (figure: ContainmentFigures) => number): number =>
    figures.reduce((sum, figure) => sum + of(figure), 0);
  return {
    containments: total(({ containments }) => containments),
    savesRefused: total(({ savesRefused }) => savesRefused),
    restoresRefused: total(({ restoresRefused }) => restoresRefused),
    writeFailures: total(({ writeFailures }) => writeFailures),
    notReady: total(({ notReady }) => notReady),
  };
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
