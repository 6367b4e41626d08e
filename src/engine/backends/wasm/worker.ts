/**
 * A thread of the wasm backend: thread 0 runs plans and reports how each ended, the others help it, until all are to end.
 *
 * Invariants: between plans the thread sleeps inside WebAssembly, not in its event loop, so it hears of work by a word of
 * the shared memory and never by a message; a thread that traps stays inside its op, so no other can report the plan as done.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { Kernels, type PlanStatus } from './kernels.js';
import type { WasmMemory, WasmModule } from './web-assembly.js';

export interface WorkerSetup {
  readonly module: WasmModule;
  readonly memory: WasmMemory;
  /** 0 … threads - 1. */
  readonly thread: number;
}

export type WorkerReport =
  | { readonly kind: 'ready' }
  /** From thread 0: how the plan ended. */
  | { readonly kind: 'ended'; readonly status: Exclude<PlanStatus, 'ended'> }
  | { readonly kind: 'trapped'; readonly message: string };

const { module, memory, thread } = workerData as WorkerSetup;
const report = (message: WorkerReport): void => parentPort?.postMessage(message);

const kernels = new Kernels(module, memory);
report({ kind: 'ready' });
try {
  if (thread === 0) {
    for (let status = kernels.nextPlan(); status !== 'ended'; status = kernels.nextPlan()) report({ kind: 'ended', status });
  } else {
    while (kernels.helpOut(thread));
  }
} catch (trap) {
  report({ kind: 'trapped', message: trap instanceof Error ? trap.message : String(trap) });
}
