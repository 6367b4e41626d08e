/** Everything that the HTTP app works with. A server fills it with real parts, a test with small ones. */
import type { ServedModel } from '../api/served-model.js';
import type { Telemetry } from '../observe/telemetry.js';
import type { KeptSessions } from '../sessions/admin.js';
import type { HealthDetails } from './health.js';

export interface HttpOptions {
  /** The address that the server binds; decides whether the Host header is checked. */
  readonly listenHost: string;
  readonly allowedHosts: readonly string[];
  readonly corsOrigins: readonly string[];
  readonly apiKey: string | undefined;
  readonly maxBodyBytes: number;
  /** Longest silence of a stream in milliseconds before a comment is sent; 0: no comments. */
  readonly keepAliveMs: number;
  /** Milliseconds that a stream may wait for its client to read; 0: for ever. */
  readonly stallTimeoutMs: number;
}

export interface ServerContext {
  readonly options: HttpOptions;
  readonly models: readonly ServedModel[];
  readonly telemetry: Telemetry;
  /** Absent while no sessions are kept. */
  readonly sessions?: KeptSessions | undefined;
  /** What /health tells beyond that the server lives. */
  readonly health: () => HealthDetails;
  /** How many models a failure has made unusable until the process is started again. */
  readonly brokenModels: () => number;
}
