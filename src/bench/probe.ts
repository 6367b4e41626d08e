/**
 * The machine's own limits, measured by the native addon: how fast threads read memory that no cache holds, and how fast
 * they multiply and add what lies in registers.
 *
 * Invariants: a probe runs for a moment only, so that it can stand between the rounds of what it is compared with; its
 * buffer is far larger than the caches and is given back at once.
 */
import { cpuBackendStatus, multiplyRate, readBandwidth } from '../engine/backends/cpu/index.js';

export interface MachineProbes {
  /** Why there are no probes; then figures have no bound beside them. */
  readonly absent?: string | undefined;
  /** Bytes per second of `threads` threads reading together: the median over sweeps of the buffer. */
  bandwidth(threads: number): Promise<number | undefined>;
  /** Multiply-adds per second of `threads` threads together in float32, on the widest registers in use. */
  arithmetic(threads: number): Promise<number | undefined>;
}

const PROBE_BYTES = 256 * 1024 * 1024;

export function machineProbes(quick: boolean): MachineProbes {
  const status = cpuBackendStatus();
  if (!status.available) {
    return {
      absent: `no bounds without the native addon: ${status.reason}`,
      bandwidth: () => Promise.resolve(undefined),
      arithmetic: () => Promise.resolve(undefined),
    };
  }
  const bytes = quick ? PROBE_BYTES / 8 : PROBE_BYTES;
  const seconds = quick ? 0.02 : 0.25;
  return {
    bandwidth: async (threads) => (await readBandwidth(bytes, threads, seconds)).median,
    arithmetic: async (threads) => (await multiplyRate(threads, seconds)).median,
  };
}
