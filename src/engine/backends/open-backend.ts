/**
 * Chooses and opens a backend by name.
 *
 * Invariants: `auto` takes the first of cpu and wasm that can run here, never the slow reference; every choice comes with
 * its reason, and whatever was passed over with why; a backend that was asked for by name and cannot run is an error,
 * never another backend.
 */
import { availableParallelism } from 'node:os';
import type { Backend, BackendName } from './backend.js';
import { cpuBackendStatus, openCpuBackend } from './cpu/index.js';
import { ReferenceBackend } from './reference/reference.js';
import { openWasmBackend } from './wasm/wasm-backend.js';

export interface OpenedBackend {
  readonly backend: Backend;
  /** Why this one, as a clause: `asked for`, `the fastest that runs here`. */
  readonly reason: string;
  /** Faster backends that were passed over. */
  readonly declined: readonly { readonly backend: BackendName; readonly reason: string }[];
}

/**
 * @param threads undefined: as many as this process may use.
 * @throws backend_unavailable, invalid_option, out_of_memory
 */
export async function openBackend(name: BackendName | 'auto', threads?: number): Promise<OpenedBackend> {
  if (name !== 'auto') return { backend: await open(name, threads), reason: 'asked for', declined: [] };
  const cpu = cpuBackendStatus();
  if (cpu.available) {
    return { backend: await open('cpu', threads), reason: 'the native addon is built and runs here', declined: [] };
  }
  const declined = [{ backend: 'cpu', reason: cpu.reason }] as const;
  return { backend: await open('wasm', threads), reason: `the cpu backend cannot run: ${cpu.reason}`, declined };
}

async function open(name: BackendName, threads: number | undefined): Promise<Backend> {
  switch (name) {
    case 'cpu':
      return openCpuBackend({ threads });
    case 'wasm':
      return openWasmBackend({ threads: threads ?? availableParallelism() });
    case 'reference':
      return new ReferenceBackend();
  }
}

/** Opens, works, and closes in every case. */
export async function withBackend<T>(
  name: BackendName | 'auto',
  threads: number | undefined,
  work: (opened: OpenedBackend) => Promise<T>,
): Promise<T> {
  const opened = await openBackend(name, threads);
  try {
    return await work(opened);
  } finally {
    await opened.backend.close();
  }
}
