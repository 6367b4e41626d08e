/**
 * A thread of the wasm backend: runs its share of every plan until it is told to quit. Thread 0 reports how each ended.
 *
 * Invariants: between plans the thread sleeps inside WebAssembly, not in its event loop, so it hears of work by a word of
 * the shared memory and never by a message; after a trap it arrives at no barrier, so no other thread can report an end.
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
  | { readonly kind: 'ended'; readonly status: PlanStatus }
  | { readonly kind: 'trapped'; readonly message: string };

const { module, memory, thread } = workerData as WorkerSetup;
const report = (message: WorkerReport): void => parentPort?.postMessage(message);

const kernels = new Kernels(module, memory);
report({ kind: 'ready' });
for (;;) {
  let status: PlanStatus;
  try {
    status = kernels.nextPlan(thread);
  } catch (trap) {
    report({ kind: 'trapped', message: trap instanceof Error ? trap.message : String(trap) });
    break;
  }
  if (status === 'quit' || status === 'broken') break;
  if (thread === 0) report({ kind: 'ended', status });
}
