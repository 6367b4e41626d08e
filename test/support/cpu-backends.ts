/** The cpu backends that this machine can open: one for every instruction set, and the best one with two threads. */
import type { Backend } from '../../src/engine/backends/backend.js';
import { loadAddon } from '../../src/engine/backends/cpu/addon.js';
import { openCpuBackend } from '../../src/engine/backends/cpu/index.js';

export interface NamedBackend {
  readonly name: string;
  readonly backend: Backend;
}

/** Why the addon is not there, as a test's `skip`; false where it is. A machine without a compiler runs on wasm. */
export function cpuAbsence(): string | false {
  const found = loadAddon();
  return found.kind === 'missing' && found.reason;
}

export function openCpuBackends(): NamedBackend[] {
  const found = loadAddon();
  if (found.kind === 'missing') return [];
  const sets = ['avx512bf16', 'avx512', 'avx2', 'neon', 'generic'].filter(
    (isa) => found.addon.resolveIsa(isa) !== null,
  );
  const alone = sets.map((isa) => ({ name: `${isa}, 1 thread`, backend: openCpuBackend({ threads: 1, isa }) }));
  const shared = { threads: 2, isa: sets[0], sharedWork: 0 }; // even the smallest op is shared
  return [...alone, { name: `${sets[0]}, 2 threads`, backend: openCpuBackend(shared) }];
}
