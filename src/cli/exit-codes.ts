/**
 * How a command ends. 0: done; 1: it failed, or something that it checked falls short; 2: it was called wrongly;
 * 130: it was interrupted. `supervise` ends as its command did: with its code, or with 128 and the number of the signal
 * that ended it. When the command was ended for a limit, 122: silence, 123: memory, 124: time; 127: it did not start.
 *
 * Invariant: a failure is one readable line on stderr (one JSON object with --json); a stack appears only with
 * --log-level debug.
 */
import { CommanderError } from 'commander';
import { NonFiniteLogitsError, type PlumblineError, toPlumblineError } from '../errors.js';
import type { CliIo } from './io.js';

export const EXIT = {
  done: 0,
  failed: 1,
  usage: 2,
  idle: 122,
  memory: 123,
  total: 124,
  notStarted: 127,
  interrupted: 130,
} as const;
/** One of EXIT, or what a supervised command ended with. */
export type ExitCode = number;

export interface FailureStyle {
  readonly json: boolean;
  readonly debug: boolean;
}

/** Says what went wrong and gives the exit code for it. */
export function reportFailure(thrown: unknown, io: CliIo, { json, debug }: FailureStyle): ExitCode {
  if (thrown instanceof CommanderError) {
    // Commander has already written its message, or the help that was asked for.
    return thrown.exitCode === 0 ? EXIT.done : EXIT.usage;
  }
  const error = toPlumblineError(thrown);
  if (error.code === 'request_cancelled') {
    io.err('interrupted\n');
    return EXIT.interrupted;
  }
  // Without a server log to look into, the cause itself is told.
  const unknown = error.code === 'internal_error' && error.cause instanceof Error ? `: ${error.cause.message}` : '';
  const message = `${error.message}${unknown}`;
  if (json) io.err(`${JSON.stringify({ error: { code: error.code, message, ...census(error) } })}\n`);
  else io.err(`error: ${message} [${error.code}]\n`);
  if (debug) io.err(`${stackOf(error)}\n`);
  if (error.code === 'invalid_option') return EXIT.usage;
  return error.code === 'command_not_started' ? EXIT.notStarted : EXIT.failed;
}

function census(error: PlumblineError): object {
  return error instanceof NonFiniteLogitsError ? { census: error.census } : {};
}

function stackOf(error: PlumblineError): string {
  const cause = error.cause instanceof Error ? `\ncaused by: ${error.cause.stack ?? error.cause.message}` : '';
  return `${error.stack ?? error.message}${cause}`;
}
