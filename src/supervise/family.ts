/**
 * The processes that a supervised command has become: itself, and whatever it started.
 */

export interface FamilyMemory {
  /** Resident sizes added up. A page that several processes share counts once for each: never less than what is held. */
  readonly residentBytes: number;
  /** The greatest resident size that any one of the processes has ever had, also between two looks. */
  readonly peakOfOneBytes: number;
  /** Shared pages counted once, in shares; only where the plain sum is over the limit, for it is dear to read. */
  readonly proportionalBytes?: number;
}

export interface Family {
  /** How far it reaches: to all descendants, or to those that stayed in the process group. */
  readonly reach: 'descendants' | 'group';
  /** Looks which processes live now. @returns how many; where they cannot be counted, 1 for any */
  look(): number;
  /** What those of the last look hold; undefined where the system does not say. @param limitBytes see FamilyMemory */
  memory(limitBytes: number): FamilyMemory | undefined;
  /** Sends a signal to all of the last look. */
  signal(name: NodeJS.Signals): void;
  /** Ids of the last look. */
  readonly pids: readonly number[];
}

/** Sends a signal; a process that has gone, or is not ours to end, is no error. @param pid negative: the group */
export function sendSignal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}
