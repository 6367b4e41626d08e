/**
 * A family by the process table of Linux, which also finds those that left the group and the session.
 *
 * A process belongs to it when it is in the group or the session of the command, when it belonged at an earlier look,
 * when the mark stands in the environment it was started with, or when its parent belongs. So a daemon that detaches
 * itself is found by the mark, and one with an empty environment by its parent. What escapes is a process that
 * detaches itself, empties its environment and loses its parent, all between two looks.
 *
 * Invariants: a process is never signalled for having the id of one that has gone; what does not belong at first sight
 * is not looked at again, so that a look costs little on a machine with many processes.
 */
import { sendSignal, type Family, type FamilyMemory } from './family.js';
import {
  listProcesses,
  readEnvironment,
  readMemory,
  readProportionalBytes,
  readStat,
  type ProcessStat,
} from './process-table.js';

/** The parent of all threads of the kernel, which have no environment. */
const KERNEL_THREADS = 2;

export class LinuxFamily implements Family {
  readonly reach = 'descendants';
  readonly #leader: number;
  readonly #mark: string;
  #members = new Map<number, ProcessStat>();
  /** Those that live and do not belong. */
  #others = new Set<number>();

  constructor(leader: number, mark: string) {
    this.#leader = leader;
    this.#mark = mark;
  }

  look(): number {
    const others = new Set<number>();
    const members = new Map<number, ProcessStat>();
    const undecided = new Map<number, ProcessStat>();
    for (const pid of listProcesses()) {
      const stat = this.#others.has(pid) ? undefined : readStat(pid);
      if (stat !== undefined) (this.#belongs(stat) ? members : undecided).set(pid, stat);
      else if (this.#others.has(pid)) others.add(pid);
    }
    for (const stat of undecided.values()) {
      const environment = readEnvironment(stat.pid);
      if (environment?.includes(this.#mark) === true) members.set(stat.pid, stat);
      // An empty environment is that of a process which begins a program just now: it is asked again.
      else if (environment !== '' || stat.parent === KERNEL_THREADS) others.add(stat.pid);
    }
    addDescendants(members, undecided);
    for (const pid of members.keys()) others.delete(pid);
    this.#members = members;
    this.#others = others;
    return members.size;
  }

  #belongs({ pid, group, session, start }: ProcessStat): boolean {
    return group === this.#leader || session === this.#leader || this.#members.get(pid)?.start === start;
  }

  memory(limitBytes: number): FamilyMemory {
    let residentBytes = 0;
    let peakOfOneBytes = 0;
    const resident = new Map<number, number>();
    for (const pid of this.#members.keys()) {
      const memory = readMemory(pid);
      if (memory === undefined) continue;
      resident.set(pid, memory.residentBytes);
      residentBytes += memory.residentBytes;
      peakOfOneBytes = Math.max(peakOfOneBytes, memory.peakResidentBytes);
    }
    if (residentBytes <= limitBytes) return { residentBytes, peakOfOneBytes };
    let proportionalBytes = 0;
    for (const [pid, bytes] of resident) {
      // Where a kernel or a foreign user keeps the shares to itself, the whole of the process counts.
      proportionalBytes += readProportionalBytes(pid) ?? (readStat(pid) === undefined ? 0 : bytes);
    }
    return { residentBytes, peakOfOneBytes, proportionalBytes };
  }

  signal(name: NodeJS.Signals): void {
    const members = [...this.#members.values()];
    // The group at once, so that none of it sees another end first.
    if (members.some(({ group }) => group === this.#leader)) sendSignal(-this.#leader, name);
    for (const { pid, group, start } of members) {
      if (group !== this.#leader && readStat(pid)?.start === start) sendSignal(pid, name);
    }
  }

  get pids(): readonly number[] {
    return [...this.#members.keys()];
  }
}

/** Moves those whose parent belongs, and theirs, to the members. */
function addDescendants(members: Map<number, ProcessStat>, undecided: ReadonlyMap<number, ProcessStat>): void {
  let before: number;
  do {
    before = members.size;
    for (const stat of undecided.values()) if (members.has(stat.parent)) members.set(stat.pid, stat);
  } while (members.size > before);
}
