/** Chooses how the processes of a command are known, by what the system offers. */
import type { Family } from './family.js';
import { GroupFamily } from './group-family.js';
import { LinuxFamily } from './linux-family.js';
import { hasProcessTable } from './process-table.js';

/** Why the memory of processes cannot be watched here; undefined when it can. */
export function memoryWatchAbsence(): string | undefined {
  if (hasProcessTable()) return undefined;
  return process.platform === 'linux'
    ? '/proc, which says what processes hold, cannot be read here'
    : `what processes hold is read from the /proc of Linux, and this is ${process.platform}`;
}

/**
 * @param leader id of the command's process, which leads a group and a session of its own
 * @param mark a text in the environment of the command that no other process has
 */
export function familyOf(leader: number, mark: string): Family {
  return hasProcessTable() ? new LinuxFamily(leader, mark) : new GroupFamily(leader);
}
