/**
 * The threads of one wasm backend, as seen from the main thread: one plan in, its end out.
 *
 * Invariants: at most one plan runs; a thread that dies for any reason fails the pool once and for all, with the reason,
 * and takes the other threads with it; the threads keep the process alive only while a plan runs.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { PlumblineError } from '../../../errors.js';
import type { Kernels } from './kernels.js';
import type { WorkerReport, WorkerSetup } from './worker.js';

const SCRIPT = new URL('./worker.js', import.meta.url);

/** How long a waiting thread looks before it sleeps: as long as waking it would take. */
const SPIN_MICROSECONDS = 30;
/** How long threads may take to end after being told to, before they are ended from outside. */
const QUIT_MILLISECONDS = 2000;

interface Running {
  readonly resolve: (status: 'done' | 'cancelled') => void;
  readonly reject: (reason: PlumblineError) => void;
}

export class WorkerPool {
  readonly #kernels: Kernels;
  readonly #workers: readonly Worker[];
  #running: Running | undefined;
  #failure: PlumblineError | undefined;
  #closing: Promise<void> | undefined;

  private constructor(kernels: Kernels, workers: readonly Worker[]) {
    this.#kernels = kernels;
    this.#workers = workers;
    for (const worker of workers) {
      worker.on('message', (message: WorkerReport) => {
        this.#hear(message);
      });
      worker.on('error', (cause) => {
        this.#fail(`a worker failed: ${cause.message}`, cause);
      });
      worker.on('exit', (code) => {
        if (!this.#closing) this.#fail(`a worker ended by itself, with code ${code}`);
      });
      worker.unref(); // after the listeners: listening to messages refs a worker
    }
  }

  /** Starts the threads and waits until all of them are ready. Throws backend_unavailable. */
  static async start(kernels: Kernels, setup: Omit<WorkerSetup, 'thread'>, threads: number): Promise<WorkerPool> {
    kernels.set('THREADS', threads);
    kernels.set('SPINS', kernels.looksFor(SPIN_MICROSECONDS));
    const workers = Array.from({ length: threads }, (_, thread) => {
      const workerData: WorkerSetup = { ...setup, thread };
      // Without the flags of this process: some, such as --input-type, keep a worker from starting.
      return new Worker(SCRIPT, { name: `plumbline-wasm-${thread}`, workerData, execArgv: [] });
    });
    try {
      await Promise.all(workers.map((worker) => ready(worker)));
    } catch (cause) {
      await Promise.all(workers.map((worker) => worker.terminate()));
      throw new PlumblineError('backend_unavailable', 'the workers of the wasm backend did not start', { cause });
    }
    return new WorkerPool(kernels, workers);
  }

  /** Why no plan can run any more, or undefined. */
  get failure(): PlumblineError | undefined {
    return this.#failure;
  }

  /** Runs the plan that the control words describe. Rejects with backend_failed. */
  run(): Promise<'done' | 'cancelled'> {
    return new Promise((resolve, reject) => {
      if (this.#failure) {
        reject(this.#failure);
        return;
      }
      this.#running = { resolve, reject };
      this.#workers[0]?.ref();
      this.#kernels.nextEpoch();
    });
  }

  /** Ends all threads; those that do not listen are ended from outside. No plan may be running. */
  close(): Promise<void> {
    return (this.#closing ??= this.#end());
  }

  async #end(): Promise<void> {
    this.#kernels.end('QUIT');
    const gone = Promise.all(this.#workers.map((worker) => exited(worker)));
    const timer = setTimeout(() => {
      for (const worker of this.#workers) void worker.terminate();
    }, QUIT_MILLISECONDS);
    await gone;
    clearTimeout(timer);
  }

  #hear(message: WorkerReport): void {
    if (message.kind === 'trapped') {
      this.#fail(`a kernel trapped: ${message.message}`);
      return;
    }
    if (message.kind !== 'ended' || !this.#running) return;
    const { resolve } = this.#running;
    this.#running = undefined;
    this.#workers[0]?.unref();
    resolve(message.status);
  }

  #fail(message: string, cause?: unknown): void {
    this.#failure ??= new PlumblineError('backend_failed', `the wasm backend failed: ${message}`, { cause });
    this.#kernels.end('FAILED');
    const running = this.#running;
    this.#running = undefined;
    this.#workers[0]?.unref();
    running?.reject(this.#failure);
  }
}

/** Resolves at the worker's first message; rejects when it ends without one. */
async function ready(worker: Worker): Promise<void> {
  const ended = new AbortController();
  const onExit = (code: number): void => {
    ended.abort(new PlumblineError('backend_unavailable', `a worker ended with code ${code} before it was ready`));
  };
  worker.once('exit', onExit);
  await once(worker, 'message', { signal: ended.signal });
  worker.off('exit', onExit);
}

/** Resolves when the worker has ended, which may have been before. */
async function exited(worker: Worker): Promise<void> {
  if (worker.threadId === -1) return;
  worker.ref();
  await once(worker, 'exit');
}
