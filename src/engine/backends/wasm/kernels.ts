/**
 * The compiled kernels: where they are, how a thread gets its own instance, and the control words through which
 * JavaScript and the threads talk (wasm/assembly/sync.ts).
 *
 * Invariants: the module has no data of its own, so instances on one memory do not disturb each other; the addresses of
 * the control words come from the module's exports, so that they are written down once.
 */
import { readFile } from 'node:fs/promises';
import { PlumblineError } from '../../../errors.js';
import { webAssembly, type WasmExports, type WasmGlobal, type WasmMemory, type WasmModule } from './web-assembly.js';

/** Built by scripts/build-wasm.mjs. */
const KERNELS = new URL('../../../../wasm/kernels.wasm', import.meta.url);

const WORDS = ['EPOCH', 'FAILED', 'QUIT', 'THREADS', 'SPINS', 'CODE', 'WEIGHTS', 'WORKSPACE', 'CALL', 'SCRATCH', 'SCRATCH_STRIDE', 'SHARED_WORK', 'END'] as const; // prettier-ignore
type Word = (typeof WORDS)[number];

/** How a plan ended, or that the thread has to. */
export type PlanStatus = 'done' | 'cancelled' | 'ended';

interface KernelExports {
  readonly nextPlan: () => number;
  readonly helpOut: (thread: number) => number;
  readonly scratchBytes: (code: number, visible: number) => number;
  readonly endAll: () => void;
  readonly spinWhile: (address: number, value: number, looks: number) => number;
  readonly DONE: WasmGlobal;
  readonly CANCELLED: WasmGlobal;
  readonly SHARED_WORK: WasmGlobal;
}

/** A shared memory as the kernels import it: one page, up to 4 GiB. */
export function kernelMemory(): WasmMemory {
  return new webAssembly.Memory({ initial: 1, maximum: 65536, shared: true });
}

/** Compiles the kernels. Throws backend_unavailable when they are not there or this Node cannot run them. */
export async function compileKernels(): Promise<WasmModule> {
  try {
    return await webAssembly.compile(await readFile(KERNELS));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new PlumblineError(
      'backend_unavailable',
      `the wasm backend has no kernels (${why}); build them with npm run build:wasm, or use --backend cpu`,
      { cause },
    );
  }
}

/** One thread's instance. */
export class Kernels {
  /** Bytes at the start of the memory that belong to the control words. */
  readonly reserved: number;
  readonly #exports: KernelExports;
  readonly #words: Int32Array;
  readonly #at: Readonly<Record<Word, number>>;

  constructor(module: WasmModule, memory: WasmMemory) {
    const { exports } = new webAssembly.Instance(module, { env: { memory } });
    this.#exports = exports as unknown as KernelExports; // their types are those of wasm/assembly/index.ts
    this.reserved = controlAddress(exports, 'END');
    this.#words = new Int32Array(memory.buffer, 0, this.reserved / 4);
    this.#at = Object.fromEntries(WORDS.map((word) => [word, controlAddress(exports, word) / 4])) as Record<Word, number>;
  }

  /** Thread 0: waits for a plan and runs it. Blocks: never on the main thread. */
  nextPlan(): PlanStatus {
    const { nextPlan, DONE, CANCELLED } = this.#exports;
    const status = nextPlan();
    if (status === DONE.value) return 'done';
    return status === CANCELLED.value ? 'cancelled' : 'ended';
  }

  /** Every other thread: waits for an op and does its share. False when the thread has to end. Blocks. */
  helpOut(thread: number): boolean {
    return this.#exports.helpOut(thread) !== 0;
  }

  /** Bytes of private memory that a thread needs for the program at `code`, when rows see at most `visible` tokens. */
  scratchBytes(code: number, visible: number): number {
    return this.#exports.scratchBytes(code, visible) >>> 0;
  }

  /** Makes every thread end: `FAILED` wherever it is, `QUIT` once no plan runs. */
  end(why: 'FAILED' | 'QUIT'): void {
    this.set(why, 1);
    this.#exports.endAll();
  }

  /** The least work of an op that threads share, unless told otherwise. */
  get sharedWork(): number {
    return this.#exports.SHARED_WORK.value as number;
  }

  set(word: Exclude<Word, 'EPOCH' | 'END'>, value: number): void {
    Atomics.store(this.#words, this.#at[word], value);
  }

  /** Wakes thread 0 for the plan that the other words describe. */
  nextEpoch(): void {
    Atomics.add(this.#words, this.#at.EPOCH, 1);
    Atomics.notify(this.#words, this.#at.EPOCH);
  }

  /** How often a waiting thread must look to spin for about `microseconds`, measured here: the fastest of a few rounds. */
  looksFor(microseconds: number): number {
    const looks = 50_000;
    let fastest = Number.POSITIVE_INFINITY;
    for (let round = 0; round < 8; round++) {
      const start = performance.now();
      this.#exports.spinWhile(4 * this.#at.QUIT, 0, looks);
      fastest = Math.min(fastest, performance.now() - start);
    }
    return Math.max(1, Math.round((looks * microseconds) / 1000 / Math.max(fastest, 1e-3)));
  }
}

function controlAddress(exports: WasmExports, word: Word): number {
  return (exports[`CONTROL_${word}`] as WasmGlobal).value as number;
}
