/**
 * The log: one line an event, as JSON for machines or as a short line for a terminal. It goes to stderr, so that stdout
 * stays what a command was asked to print.
 *
 * Invariant: no prompt, no answer, no token text and no key is ever logged; requests appear by their id.
 */
import { pino, type DestinationStream, type Logger } from 'pino';

export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export type Log = Pick<Logger, 'error' | 'warn' | 'info' | 'debug'>;

export interface LogOptions {
  readonly level: LogLevel;
  /** JSON lines instead of lines for people. */
  readonly json: boolean;
  /** Where lines go; default stderr. */
  readonly destination?: DestinationStream | undefined;
}

export function createLog({ level, json, destination = process.stderr }: LogOptions): Log {
  const base = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime };
  return json ? pino(base, destination) : pino(base, { write: (line) => destination.write(terminalLine(line)) });
}

const LEVEL_NAMES: Readonly<Record<number, string>> = { 20: 'debug', 30: 'info', 40: 'warn', 50: 'error' };

/** `12:00:01 info  message key=value`, from pino's own JSON line; a stack follows on its own lines. */
function terminalLine(json: string): string {
  const { time, level, msg, err, ...fields } = JSON.parse(json) as Record<string, unknown> & {
    time: string;
    level: number;
    msg?: string;
    err?: { stack?: string };
  };
  const pairs = Object.entries(fields).map(
    ([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  const stack = err?.stack === undefined ? '' : `\n${err.stack}`;
  return `${[time.slice(11, 19), (LEVEL_NAMES[level] ?? '').padEnd(5), msg ?? '', ...pairs].join(' ').trimEnd()}${stack}\n`;
}
