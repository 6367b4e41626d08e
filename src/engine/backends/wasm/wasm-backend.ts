/**
 * The wasm backend: the kernels of wasm/assembly on a shared memory, run by worker threads. It needs nothing but Node: no
 * compiler, no binary, no flags.
 *
 * Invariants: float law `mul-add`, one set of bits for any number of threads; plans run one at a time in the order of the
 * calls, and the main thread never waits for one; once a thread has failed, every execution is refused; addresses are
 * 32-bit, so all memory of a backend together stays under 4 GiB.
 */
import { PlumblineError } from '../../../errors.js';
import type { Address, Backend, Execution, LoadedPlan, MemoryBlock, PlanProgram } from '../backend.js';
import { cancelCall } from '../../plan/call-block.js';
import { CALL_HEADER, SEQUENCE_RECORD_WORDS } from '../../plan/ops.js';
import { compileKernels, kernelMemory, Kernels } from './kernels.js';
import { PlanStore, WasmPlan } from './plan-store.js';
import { SharedHeap } from './shared-heap.js';
import { WorkerPool } from './worker-pool.js';

export interface WasmBackendOptions {
  /** Worker threads, at least 1; more than there are cores slows all of them down. */
  readonly threads: number;
  /** Most bytes of memory, at most just under 4 GiB, the default. */
  readonly maxBytes?: number | undefined;
  /** Least work of an op that threads share (wasm/assembly/work.ts); 0 shares every op, which only tests want. */
  readonly sharedWork?: number | undefined;
}

/** Compiles the kernels and starts the threads. Throws backend_unavailable, invalid_option. */
export async function openWasmBackend(options: WasmBackendOptions): Promise<Backend> {
  const { threads, maxBytes } = options;
  if (!Number.isInteger(threads) || threads < 1) {
    throw new PlumblineError('invalid_option', `threads is ${threads}; it must be a whole number of at least 1`);
  }
  const module = await compileKernels();
  const memory = kernelMemory();
  const kernels = new Kernels(module, memory);
  kernels.set('SHARED_WORK', options.sharedWork ?? kernels.sharedWork);
  const pool = await WorkerPool.start(kernels, { module, memory }, threads);
  return new WasmBackend(threads, kernels, new SharedHeap(memory, kernels.reserved, maxBytes), pool);
}

class WasmBackend implements Backend {
  readonly name = 'wasm';
  readonly isa = 'simd128';
  readonly floatLaw = 'mul-add';
  readonly threads: number;
  readonly #kernels: Kernels;
  readonly #heap: SharedHeap;
  readonly #plans: PlanStore;
  readonly #pool: WorkerPool;
  /** Resolves, never rejects, when the last plan that was asked for has ended. */
  #last: Promise<unknown> = Promise.resolve();
  #running: MemoryBlock | undefined;
  #closing: Promise<void> | undefined;

  constructor(threads: number, kernels: Kernels, heap: SharedHeap, pool: WorkerPool) {
    this.threads = threads;
    this.#kernels = kernels;
    this.#heap = heap;
    this.#plans = new PlanStore(heap);
    this.#pool = pool;
  }

  allocate(byteLength: number, purpose: string): MemoryBlock {
    return this.#heap.allocate(byteLength, purpose);
  }

  load(program: PlanProgram): LoadedPlan {
    return this.#plans.load(program);
  }

  execute(execution: Execution): Promise<'done' | 'cancelled'> {
    const run = this.#last.then(() => this.#run(execution));
    this.#last = run.catch(() => undefined); // the caller sees the failure; the next plan must not wait for it
    return run;
  }

  memory(): { readonly allocated: number; readonly mapped: number } {
    return { allocated: this.#heap.allocated, mapped: 0 };
  }

  /** Stops the running plan, which resolves as cancelled like those behind it, and ends the threads. */
  close(): Promise<void> {
    return (this.#closing ??= this.#end());
  }

  async #end(): Promise<void> {
    if (this.#running) cancelCall(this.#running);
    await this.#last;
    await this.#pool.close();
  }

  async #run({ plan, workspace, call }: Execution): Promise<'done' | 'cancelled'> {
    if (this.#pool.failure) throw this.#pool.failure;
    if (this.#closing) return 'cancelled';
    if (!(plan instanceof WasmPlan) || plan.store !== this.#plans) throw failed('another backend loaded the plan');
    if (plan.freed) throw failed('the plan has been freed');
    const visible = checkCall(plan, workspace, call);
    const stride = this.#scratchStride(plan, visible);
    const scratch: Address = this.#heap.takeRange(stride * this.threads, 'scratch memory of the threads', false);
    try {
      this.#kernels.set('CODE', plan.code.address);
      this.#kernels.set('WEIGHTS', plan.table.address);
      this.#kernels.set('WORKSPACE', workspace.address);
      this.#kernels.set('CALL', call.address);
      this.#kernels.set('SCRATCH', scratch);
      this.#kernels.set('SCRATCH_STRIDE', stride);
      this.#running = call;
      return await this.#pool.run();
    } finally {
      this.#running = undefined;
      this.#heap.giveRange(scratch, stride * this.threads);
    }
  }

  /** By powers of two of what rows can see, so that a growing context asks the kernels rarely. */
  #scratchStride(plan: WasmPlan, visible: number): number {
    const step = 2 ** Math.ceil(Math.log2(Math.max(visible, 1)));
    let stride = plan.scratch.get(step);
    if (stride === undefined) {
      stride = this.#kernels.scratchBytes(plan.code.address, step);
      plan.scratch.set(step, stride);
    }
    return stride;
  }
}

const at = Object.fromEntries(CALL_HEADER.map((name, index) => [name, index])) as Record<
  (typeof CALL_HEADER)[number],
  number
>;

/** The most tokens that a row of the call sees. Throws backend_failed where the call does not fit the plan. */
function checkCall({ header }: WasmPlan, workspace: MemoryBlock, call: MemoryBlock): number {
  const ints = new Int32Array(call.bytes.buffer, call.bytes.byteOffset, call.bytes.byteLength >> 2);
  const word = (index: number): number => ints[index] ?? 0;
  if (word(at.rows) > header.rowCapacity || word(at.outRows) > header.outCapacity) {
    throw failed(`a call of ${word(at.rows)} + ${word(at.outRows)} rows passes the capacities of its plan`);
  }
  if (workspace.bytes.byteLength < 4 * header.workspaceWords) {
    throw failed(`a workspace of ${workspace.bytes.byteLength} bytes is less than ${header.workspaceWords} words`);
  }
  let visible = 0;
  for (let s = 0; s < word(at.sequences); s++) {
    const record = word(at.sequencesAt) + SEQUENCE_RECORD_WORDS * s;
    visible = Math.max(visible, word(record + 1) + word(record + 2));
  }
  return visible;
}

function failed(message: string): PlumblineError {
  return new PlumblineError('backend_failed', message);
}
