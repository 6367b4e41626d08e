/**
 * Runs a command within limits of memory and time, and leaves nothing of it running.
 *
 * Invariants: the command leads a session and a group of its own; every way out of here, also a failure of our own or an
 * exit of this process, has ended all its processes first; what ended the run is decided once, and a command that has
 * exited has exited, whatever limit it passed at the same moment. Limits are judged every 100 ms, more seldom (at
 * most 500 ms) where a look at the processes takes long; what happens between two looks is not seen.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import type { Writable } from 'node:stream';
import { setImmediate as turnOfReads, setTimeout as sleep } from 'node:timers/promises';
import { PlumblineError } from '../errors.js';
import { endFamily } from './end-family.js';
import { sendSignal, type Family, type FamilyMemory } from './family.js';
import { familyOf, memoryWatchAbsence } from './open-family.js';
import type { EndReason, Limits, SuperviseReport } from './report.js';
import { WatchedPipe } from './watched-pipe.js';

export interface SuperviseOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly limits: Limits;
  /** Aborted: everything is ended. */
  readonly signal?: AbortSignal;
  /** Where output goes under an idle limit. Without one the command has the streams of this process themselves. */
  readonly output: { readonly stdout: Writable; readonly stderr: Writable };
}

/** The marks of the runs that a process belongs to, one in another. */
const MARK_VARIABLE = 'PLUMBLINE_SUPERVISED';
const LOOK_MS = 100;
/** Longest time between two looks, and how long processes may outlive the command without being left behind. */
const SLOWEST_LOOK_MS = 500;
const SETTLE_MS = 200;
/** Looks take at most this part of the time of one processor. */
const LOOK_SHARE = 1 / 30;
/** Of the limit: by how much memory may grow in the grace before it is cut short. */
const GRACE_GROWTH = 0.1;
/** For the last output of a command, when something that could not be ended holds its pipe. */
const OUTPUT_PATIENCE_MS = 2000;

/**
 * @throws PlumblineError: `supervise_unavailable` when this system cannot hold the limits, before anything is started;
 * `command_not_started`
 */
export async function supervise(options: SuperviseOptions): Promise<SuperviseReport> {
  refuseWhatIsAbsent(options.limits);
  const pipes = options.limits.idleMs === null ? [] : openPipes(options.output);
  const mark = randomUUID();
  const startedAt = performance.now();
  let child: ChildProcess & { readonly pid: number };
  try {
    child = await start(options, pipes, mark);
  } finally {
    for (const pipe of pipes) pipe.started();
  }
  const family = familyOf(child.pid, mark);
  const endAtOnce = (): void => {
    sendSignal(-child.pid, 'SIGKILL');
    family.look();
    family.signal('SIGKILL');
  };
  process.on('exit', endAtOnce);
  try {
    const run = new Run(options, child, family, pipes, startedAt);
    return await run.report();
  } catch (thrown) {
    endAtOnce();
    throw thrown;
  } finally {
    process.off('exit', endAtOnce);
  }
}

function refuseWhatIsAbsent({ memoryBytes }: Limits): void {
  if (process.platform === 'win32')
    throw new PlumblineError('supervise_unavailable', 'supervise needs process groups, which Windows does not have');
  const absence = memoryBytes === null ? undefined : memoryWatchAbsence();
  if (absence === undefined) return;
  throw new PlumblineError(
    'supervise_unavailable',
    `--memory-mib cannot be held: ${absence}; leave it out, and the limits of time are held`,
    { param: '--memory-mib' },
  );
}

function openPipes({ stdout, stderr }: SuperviseOptions['output']): WatchedPipe[] {
  const pipes: WatchedPipe[] = [];
  try {
    for (const sink of [stdout, stderr]) pipes.push(new WatchedPipe(sink));
    return pipes;
  } catch (thrown) {
    for (const pipe of pipes) pipe.started();
    throw thrown;
  }
}

/** Starts the command in a session of its own. */
async function start(
  { command, args, environment }: SuperviseOptions,
  [stdout, stderr]: readonly WatchedPipe[],
  mark: string,
): Promise<ChildProcess & { readonly pid: number }> {
  const outer = environment[MARK_VARIABLE];
  try {
    const child = spawn(command, args, {
      detached: true,
      stdio: ['inherit', stdout?.writeEnd ?? 'inherit', stderr?.writeEnd ?? 'inherit'],
      env: { ...environment, [MARK_VARIABLE]: outer === undefined ? mark : `${outer}:${mark}` },
    });
    await new Promise((resolve, reject) => child.once('spawn', resolve).once('error', reject));
    return child as ChildProcess & { readonly pid: number };
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new PlumblineError('command_not_started', `${command} could not be started: ${why}`, { cause });
  }
}

class Run {
  readonly #options: SuperviseOptions;
  readonly #child: ChildProcess;
  readonly #family: Family;
  readonly #pipes: readonly WatchedPipe[];
  readonly #startedAt: number;
  /** Aborted when there is something to decide before the next look. */
  readonly #wake = new AbortController();
  readonly #exited: Promise<void>;
  #peakResidentBytes: number | null = null;
  #peakProcesses: number | null = null;
  #breachBytes: number | null = null;

  constructor(
    options: SuperviseOptions,
    child: ChildProcess,
    family: Family,
    pipes: readonly WatchedPipe[],
    startedAt: number,
  ) {
    this.#options = options;
    this.#child = child;
    this.#family = family;
    this.#pipes = pipes;
    this.#startedAt = startedAt;
    this.#exited = new Promise((resolve) => {
      // It may have exited while we waited to hear of its start.
      if (this.#hasExited) resolve();
      else child.once('exit', () => resolve());
    });
    void this.#exited.then(() => this.#wake.abort());
  }

  get #hasExited(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** Watches to the end, ends what is left, and tells. */
  async report(): Promise<SuperviseReport> {
    const { limits, signal } = this.#options;
    const reason = await this.#watch();
    const left = reason === 'exited' || reason === 'signalled' ? await this.#leftBehind() : 0;
    const ended = await endFamily(this.#family, limits.graceMs, () => this.#growsOn());
    const wallMs = performance.now() - this.#startedAt;
    if (ended.stillRunning.length === 0) await this.#exited;
    await Promise.all(this.#pipes.map(async (pipe) => pipe.end(OUTPUT_PATIENCE_MS, signal)));
    return {
      reason,
      exitCode: this.#child.exitCode,
      signal: this.#child.signalCode,
      wallMs: Math.round(wallMs),
      memory: {
        peakResidentBytes: this.#peakResidentBytes,
        breachBytes: this.#breachBytes,
        peakProcesses: this.#peakProcesses,
      },
      limits,
      leftBehind: left,
      ...ended,
      watched: this.#family.reach,
    };
  }

  /** How many processes outlive the command, by more than it takes to end. */
  async #leftBehind(): Promise<number> {
    const settled = performance.now() + SETTLE_MS;
    let left = this.#family.look();
    while (left > 0 && performance.now() < settled) {
      await sleep(10);
      left = this.#family.look();
    }
    return left;
  }

  async #watch(): Promise<EndReason> {
    const { signal } = this.#options;
    const wake = (): void => this.#wake.abort();
    signal?.addEventListener('abort', wake);
    if (signal?.aborted === true) wake();
    try {
      for (let pauseMs = 0; ; pauseMs = Math.min(Math.max(pauseMs, LOOK_MS), SLOWEST_LOOK_MS)) {
        await sleep(pauseMs, undefined, { signal: this.#wake.signal }).catch(() => undefined);
        // Output that has come while this process could not run is read before its absence is judged.
        await turnOfReads();
        const before = performance.now();
        const reason = this.#judge();
        if (reason !== undefined) return reason;
        pauseMs = (performance.now() - before) / LOOK_SHARE;
      }
    } finally {
      signal?.removeEventListener('abort', wake);
    }
  }

  /** What ends the run now, if anything does. */
  #judge(): EndReason | undefined {
    if (this.#hasExited) return this.#child.exitCode === null ? 'signalled' : 'exited';
    // Whatever ends it, what it held until then is told, also where the looks are far apart.
    const held = this.#measure();
    if (this.#options.signal?.aborted === true) return 'interrupted';
    const { memoryBytes, idleMs, totalMs } = this.#options.limits;
    if (memoryBytes !== null && held !== undefined && held > memoryBytes) {
      this.#breachBytes = held;
      return 'memory';
    }
    if (totalMs !== null && performance.now() - this.#startedAt > totalMs) return 'total';
    if (idleMs !== null && this.#pipes.every((pipe) => pipe.idleMs() > idleMs)) return 'idle';
    return undefined;
  }

  /** Looks at all processes. @returns the bytes that count against the limit; undefined where they are not known */
  #measure(): number | undefined {
    const processes = this.#family.look();
    const memory: FamilyMemory | undefined = this.#family.memory(this.#options.limits.memoryBytes ?? Infinity);
    // A process that has ended and is not yet told of holds nothing: that is no measurement.
    if (memory === undefined || processes === 0) return undefined;
    const peak = Math.max(memory.residentBytes, memory.peakOfOneBytes);
    this.#peakResidentBytes = Math.max(this.#peakResidentBytes ?? 0, peak);
    this.#peakProcesses = Math.max(this.#peakProcesses ?? 0, processes);
    return memory.proportionalBytes ?? memory.residentBytes;
  }

  /** Whether a run that is ended for its memory takes more and more of it. */
  #growsOn(): boolean {
    if (this.#breachBytes === null) return false;
    const held = this.#measure() ?? 0;
    return held > this.#breachBytes + GRACE_GROWTH * (this.#options.limits.memoryBytes ?? 0);
  }
}
