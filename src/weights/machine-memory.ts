/**
 * How much memory this process may still take: what the system says is available, narrowed by the control groups
 * (containers) that hold the process.
 *
 * Invariants: a figure that the system does not give is left out, never guessed; page cache counts as available, for the
 * system gives it back when it is needed.
 */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { dirname, join } from 'node:path';

export interface MachineMemory {
  readonly totalBytes: number;
  /** MemAvailable of Linux; absent where the system does not say. */
  readonly availableBytes?: number | undefined;
  /** The narrowest control group around the process: its limit, and what is left of it. */
  readonly cgroup?: CgroupMemory | undefined;
}

export interface CgroupMemory {
  readonly limitBytes: number;
  readonly availableBytes: number;
}

/** @param root where the system's files are; another folder in tests */
export function readMachineMemory(root = '/'): MachineMemory {
  const meminfo = readText(join(root, 'proc/meminfo'));
  return {
    totalBytes: kibibytes(meminfo, 'MemTotal') ?? totalmem(),
    availableBytes: kibibytes(meminfo, 'MemAvailable'),
    cgroup: readCgroup(root),
  };
}

/** The most that may be taken, by the narrowest of the figures. */
export function availableMemory({ totalBytes, availableBytes, cgroup }: MachineMemory): number {
  return Math.min(availableBytes ?? totalBytes, cgroup?.availableBytes ?? Infinity);
}

function kibibytes(meminfo: string | undefined, key: string): number | undefined {
  const found = new RegExp(`^${key}:\\s+(\\d+) kB$`, 'm').exec(meminfo ?? '')?.[1];
  return found === undefined ? undefined : Number(found) * 1024;
}

/** Version 1 and 2 name the same three things differently. */
interface CgroupFiles {
  readonly mount: string;
  readonly limit: string;
  readonly usage: string;
  readonly reclaimable: RegExp;
}

const VERSION_1: CgroupFiles = {
  mount: 'sys/fs/cgroup/memory',
  limit: 'memory.limit_in_bytes',
  usage: 'memory.usage_in_bytes',
  reclaimable: /^total_inactive_file (\d+)$/m,
};

const VERSION_2: CgroupFiles = {
  mount: 'sys/fs/cgroup',
  limit: 'memory.max',
  usage: 'memory.current',
  reclaimable: /^inactive_file (\d+)$/m,
};

function readCgroup(root: string): CgroupMemory | undefined {
  let narrowest: CgroupMemory | undefined;
  for (const line of (readText(join(root, 'proc/self/cgroup')) ?? '').split('\n')) {
    const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    if (path === undefined) continue;
    const files =
      controllers === '' ? VERSION_2 : controllers?.split(',').includes('memory') === true ? VERSION_1 : undefined;
    if (files === undefined) continue;
    for (const group of selfAndAncestors(path)) {
      const found = readGroup(join(root, files.mount, group), files);
      if (found !== undefined && (narrowest === undefined || found.availableBytes < narrowest.availableBytes))
        narrowest = found;
    }
  }
  return narrowest;
}

/** A limit binds everything below it. Inside a container the path may not exist there; the mount's root then does. */
function selfAndAncestors(path: string): string[] {
  const groups = [path];
  for (let group = path; group !== '/';) {
    group = dirname(group);
    groups.push(group);
  }
  return groups;
}

function readGroup(folder: string, files: CgroupFiles): CgroupMemory | undefined {
  const limitBytes = decimal(readText(join(folder, files.limit)));
  const usage = decimal(readText(join(folder, files.usage)));
  // Without a limit version 2 says "max" and version 1 a number near 2^63.
  if (limitBytes === undefined || usage === undefined || limitBytes > 2 ** 60) return undefined;
  const reclaimable = Number(files.reclaimable.exec(readText(join(folder, 'memory.stat')) ?? '')?.[1] ?? 0);
  return { limitBytes, availableBytes: Math.max(0, limitBytes - usage + reclaimable) };
}

function decimal(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+\s*$/.test(text) ? Number(text) : undefined;
}

/** Files of the system that do not exist here, or may not be read, simply say nothing. */
function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
