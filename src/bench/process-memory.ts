/** How much memory this process has held at most, by the system's own count. */
import { readFileSync } from 'node:fs';

/**
 * Bytes of the greatest resident size since the process began (or since the count was last reset): VmHWM of Linux, else
 * what getrusage says. Memory of libraries and of mapped files that were read is part of it.
 */
export function peakResidentBytes(): number {
  const status = readText('/proc/self/status');
  const kibibytes = /^VmHWM:\s+(\d+) kB$/m.exec(status ?? '')?.[1];
  return 1024 * (kibibytes === undefined ? process.resourceUsage().maxRSS : Number(kibibytes));
}

/** Systems without /proc simply say nothing. */
function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
