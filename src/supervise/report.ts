/** What is told of a supervised run: as an object for programs, and as lines for people. */

/**
 * Why a run ended: the command exited or was ended by a signal that is not ours; or it was ended because it held too
 * much, was silent too long, ran too long, or because we were told to stop.
 */
export type EndReason = 'exited' | 'signalled' | 'memory' | 'idle' | 'total' | 'interrupted';

/** null: no limit. */
export interface Limits {
  readonly memoryBytes: number | null;
  readonly idleMs: number | null;
  readonly totalMs: number | null;
  readonly graceMs: number;
}

export interface SuperviseReport {
  readonly reason: EndReason;
  /** How the command itself ended: one of the two is null. Both are when it could not be ended. */
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly wallMs: number;
  readonly memory: {
    /**
     * Greatest sum of resident sizes: shared pages count once for each process. null where the system does not
     * say, and for a command that had exited before the first look.
     */
    readonly peakResidentBytes: number | null;
    /** What was held when the limit was passed, shared pages counted once; null when it was not. */
    readonly breachBytes: number | null;
    /** Most processes at a time; null where they cannot be counted. */
    readonly peakProcesses: number | null;
  };
  readonly limits: Limits;
  /** Processes that were still there when the command had exited, and were ended. */
  readonly leftBehind: number;
  /** Processes that did not end within the grace, and were killed. */
  readonly killed: number;
  /** Ids of processes that could not be ended. */
  readonly stillRunning: readonly number[];
  /** Which processes were watched: all descendants, or those that stayed in the group of the command. */
  readonly watched: 'descendants' | 'group';
}

/** Whether the command ended by itself and took all of its processes with it. */
export function endedAlone({ reason, leftBehind, stillRunning }: SuperviseReport): boolean {
  return reason === 'exited' && leftBehind === 0 && stillRunning.length === 0;
}

export function formatSuperviseReport(report: SuperviseReport): string[] {
  const { memory, wallMs, leftBehind, killed, stillRunning } = report;
  const { peakResidentBytes: peak, peakProcesses } = memory;
  const held =
    peak === null ? notMeasured(report) : `peak memory ${mebibytes(peak)} in at most ${count(peakProcesses ?? 0)}`;
  return [
    `${cause(report)} after ${seconds(wallMs)}; ${held}`,
    ...(leftBehind > 0 ? [`${count(leftBehind)} left behind by the command had to be ended`] : []),
    ...(killed > 0
      ? [`${count(killed)} did not end within ${seconds(report.limits.graceMs)} and had to be killed`]
      : []),
    ...(stillRunning.length > 0 ? [`could not be ended and still running: ${stillRunning.join(', ')}`] : []),
  ];
}

function cause({ reason, exitCode, signal, memory, limits }: SuperviseReport): string {
  const status = exitCode === null ? `the command ended by ${signal ?? 'nothing'}` : `the command exited ${exitCode}`;
  switch (reason) {
    case 'exited':
      return `exited ${exitCode ?? 0}`;
    case 'signalled':
      return `ended by ${signal ?? 'a signal'} from elsewhere`;
    case 'memory':
      return `ended for memory: ${mebibytes(memory.breachBytes ?? 0)} held, limit ${mebibytes(limits.memoryBytes ?? 0)} (${status})`;
    case 'idle':
      return `ended for silence: no output for ${seconds(limits.idleMs ?? 0)} (${status})`;
    case 'total':
      return `ended for time: limit ${seconds(limits.totalMs ?? 0)} (${status})`;
    case 'interrupted':
      return `interrupted (${status})`;
  }
}

const notMeasured = ({ watched }: SuperviseReport): string =>
  watched === 'group' ? 'memory is not told by this system' : 'too short for its memory to be measured';
const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
const seconds = (ms: number): string => `${Number((ms / 1000).toFixed(1))} s`;
const count = (processes: number): string => (processes === 1 ? '1 process' : `${processes} processes`);
