/**
 * What Linux says of its processes, read from /proc.
 *
 * Invariants: a process that has gone, or that may not be looked into, gives undefined, and a zombie has gone; a table
 * that cannot be read (no file descriptors left) is thrown. A process is known by its id and the time of its start together, for ids are given out again.
 */
import { readdirSync, readFileSync } from 'node:fs';

export interface ProcessStat {
  readonly pid: number;
  readonly parent: number;
  /** Process group. */
  readonly group: number;
  readonly session: number;
  /** Clock ticks since the boot, as text. */
  readonly start: string;
}

export interface ProcessMemory {
  readonly residentBytes: number;
  /** The greatest resident size since the process began to run its program. */
  readonly peakResidentBytes: number;
}

/** Whether this system has what the functions of this module read. */
export function hasProcessTable(): boolean {
  return process.platform === 'linux' && readStat(process.pid) !== undefined;
}

export function listProcesses(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** undefined for a process that has gone, zombies included. */
export function readStat(pid: number): ProcessStat | undefined {
  const text = readText(`/proc/${pid}/stat`);
  if (text === undefined) return undefined;
  // The second field is the name in parentheses, in which anything may stand.
  const [state = '', parent, group, session, ...rest] = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const start = rest[START_FIELD - SESSION_FIELD - 1];
  if (start === undefined || 'ZXx'.includes(state)) return undefined;
  return { pid, parent: Number(parent), group: Number(group), session: Number(session), start };
}

/** Numbers of fields in proc(5). */
const SESSION_FIELD = 6;
const START_FIELD = 22;

/** The environment a process was started with, as it lies in memory; '' while it starts, and for the kernel's own. */
export function readEnvironment(pid: number): string | undefined {
  return readText(`/proc/${pid}/environ`);
}

/** undefined for a process that has gone or has no memory of its own. */
export function readMemory(pid: number): ProcessMemory | undefined {
  const status = readText(`/proc/${pid}/status`);
  const residentBytes = kibibytes(status, 'VmRSS');
  if (residentBytes === undefined) return undefined;
  return { residentBytes, peakResidentBytes: kibibytes(status, 'VmHWM') ?? residentBytes };
}

/**
 * The resident size in which each page counts by the share that the process has in it. The kernel walks all pages for
 * it: about 20 ms a gibibyte.
 * @returns undefined where the kernel does not say
 */
export function readProportionalBytes(pid: number): number | undefined {
  return kibibytes(readText(`/proc/${pid}/smaps_rollup`), 'Pss');
}

function kibibytes(text: string | undefined, key: string): number | undefined {
  const found = new RegExp(`^${key}:\\s+(\\d+) kB$`, 'm').exec(text ?? '')?.[1];
  return found === undefined ? undefined : Number(found) * 1024;
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'latin1');
  } catch (thrown) {
    if (SAYS_NOTHING.has((thrown as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw thrown;
  }
}

/** A process that has gone, or that is none of our business. Anything else would make living processes look gone. */
const SAYS_NOTHING: ReadonlySet<string> = new Set(['ENOENT', 'ESRCH', 'EACCES', 'EPERM']);
