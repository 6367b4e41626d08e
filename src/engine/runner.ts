/**
 * Runs forwards: cuts a batch into calls that fit a plan, makes the successor states, has the plan fill them, and hands
 * back rows. One forward at a time; callers queue.
 *
 * Invariants: states given in are never changed; on any failure or abort every state made for the batch is released and
 * nothing else has changed; how a batch is cut has no influence on any bit (rows do not depend on their neighbours).
 */
import { PlumblineError } from '../errors.js';
import type { Backend, MemoryBlock } from './backends/backend.js';
import type { RowChoice } from './model.js';
import { callBlockBytes, callSizes, cancelCall, fillCallBlock, type CallSequence } from './plan/call-block.js';
import type { CachedPlan } from './plan/cache.js';
import type { PagedState, StateStore } from './state/sequence-state.js';

/** One sequence of a batch. */
export interface RunRequest {
  readonly state: PagedState;
  readonly tokens: Int32Array;
  /** Which of its rows go through the head. */
  readonly outRows: RowChoice;
}

/** One sequence's part of a call: tokens `from` … of request `index`. */
export interface CallPart {
  readonly index: number;
  readonly from: number;
  readonly tokens: Int32Array;
  /** The state before the call; its ids are the history of the new ones. */
  readonly before: PagedState;
  /** First row of the part in the call, and its first selected row. */
  readonly row: number;
  readonly outRow: number;
  readonly outRows: number;
}

export interface CallContext {
  readonly parts: readonly CallPart[];
  /** The float32 words of a plan buffer, at its full capacity. */
  buffer(name: string): Float32Array;
}

export interface RunOptions {
  /** The plan for a call of so many rows, so many of them selected. */
  readonly plan: (rows: number, outRows: number) => CachedPlan;
  readonly signal?: AbortSignal | undefined;
  /** Writes the host-made inputs of a call into the plan's buffers. */
  readonly fillInputs?: ((call: CallContext) => Promise<void> | void) | undefined;
  /** Copies what is wanted out of the plan's buffers when a call is done. */
  readonly collect?: ((call: CallContext) => void) | undefined;
  /** Makes the successor of the state of request `index`; default: the store's `extend` by the part's tokens. */
  readonly successor?: ((index: number) => PagedState) | undefined;
  /** A request is never cut; each must fit into one call. */
  readonly whole?: boolean | undefined;
}

export interface RunnerOptions {
  readonly backend: Backend;
  readonly store: StateStore;
  /** Most rows of a call, and most rows through the head. */
  readonly maxRows: number;
  readonly maxOutRows: number;
  /** Words of the workspace to start with; it grows when a plan needs more. */
  readonly workspaceWords: number;
}

export class Runner {
  readonly #o: RunnerOptions;
  #workspace: MemoryBlock;
  #call: MemoryBlock;
  #tail: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(options: RunnerOptions) {
    this.#o = options;
    this.#workspace = options.backend.allocate(4 * options.workspaceWords, 'activations');
    this.#call = options.backend.allocate(64 * 1024, 'call table');
  }

  /** One forward over a batch; the new states in the order of the requests, one reference each. */
  run(batch: readonly RunRequest[], options: RunOptions): Promise<PagedState[]> {
    for (const { state } of batch) state.retain();
    const run = this.#tail
      .then(() => this.#run(batch, options))
      .finally(() => {
        for (const { state } of batch) state.release();
      });
    this.#tail = run.catch(() => undefined); // a failed forward must not block the next one
    return run;
  }

  /** Waits for the running forward, then gives the memory back. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#tail;
    this.#workspace.free();
    this.#call.free();
  }

  async #run(batch: readonly RunRequest[], options: RunOptions): Promise<PagedState[]> {
    if (this.#closed) throw new PlumblineError('shutting_down', 'the model is closed');
    const states = batch.map(({ state }) => state.retain());
    try {
      for (let done = batch.map(() => 0); ;) {
        const parts = this.#nextParts(batch, states, done, options.whole ?? false);
        if (parts.length === 0) return states;
        const successors = await this.#runCall(parts, options);
        parts.forEach(({ index }, i) => {
          states[index]!.release();
          states[index] = successors[i]!;
        });
        done = done.map((count, index) => count + (parts.find((part) => part.index === index)?.tokens.length ?? 0));
      }
    } catch (error) {
      for (const state of states) state.release();
      throw error;
    }
  }

  /** The next tokens of each sequence that fit into one call, in batch order. */
  #nextParts(
    batch: readonly RunRequest[],
    states: readonly PagedState[],
    done: readonly number[],
    whole: boolean,
  ): CallPart[] {
    const { maxRows, maxOutRows } = this.#o;
    const parts: CallPart[] = [];
    let row = 0;
    let outRow = 0;
    batch.forEach((request, index) => {
      const from = done[index]!;
      const left = request.tokens.length - from;
      const outRoom = maxOutRows - outRow;
      const room = request.outRows === 'all' ? Math.min(maxRows - row, outRoom) : outRoom > 0 ? maxRows - row : 0;
      const count = Math.min(left, room);
      if (count <= 0 || (whole && count < left)) return;
      const ends = count === left;
      const outRows = request.outRows === 'all' ? count : request.outRows === 'last' && ends ? 1 : 0;
      const tokens = request.tokens.subarray(from, from + count);
      parts.push({ index, from, tokens, before: states[index]!, row, outRow, outRows });
      row += count;
      outRow += outRows;
    });
    return parts;
  }

  async #runCall(parts: readonly CallPart[], options: RunOptions): Promise<PagedState[]> {
    throwIfAborted(options.signal);
    const successors: PagedState[] = [];
    try {
      for (const part of parts) {
        successors.push(options.successor?.(part.index) ?? this.#o.store.extend(part.before, part.tokens));
      }
      await this.#execute(parts, successors, options);
    } catch (error) {
      for (const state of successors) state.release();
      throw error;
    }
    return successors;
  }

  async #execute(parts: readonly CallPart[], successors: readonly PagedState[], options: RunOptions): Promise<void> {
    const sequences = parts.map(({ tokens, before, outRows }, i): CallSequence => ({
      tokens,
      startPosition: before.length,
      fixedIn: before.fixed.address,
      fixedOut: successors[i]!.fixed.address,
      pages: successors[i]!.pages.map((page) => page.slab.address),
      outRows: Array.from({ length: outRows }, (_, row) => tokens.length - outRows + row),
    }));
    const sizes = callSizes(sequences);
    const { plan, loaded } = options.plan(sizes.rows, sizes.outRows);
    this.#workspace = this.#atLeast(this.#workspace, 4 * plan.workspaceWords, 'activations');
    this.#call = this.#atLeast(this.#call, callBlockBytes(sizes), 'call table');
    const call = this.#call;
    fillCallBlock(call, sequences);
    const { bytes } = this.#workspace;
    const words = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 2);
    const context: CallContext = {
      parts,
      buffer(name) {
        const buffer = plan.buffers.get(name);
        if (!buffer) throw new PlumblineError('plan_invalid', `the plan has no buffer ${name}`);
        const capacity = buffer.rows === 'R' ? plan.options.rowCapacity : plan.options.outCapacity;
        return words.subarray(buffer.offset, buffer.offset + buffer.width * capacity);
      },
    };
    await options.fillInputs?.(context);
    throwIfAborted(options.signal);
    const cancel = (): void => cancelCall(call);
    options.signal?.addEventListener('abort', cancel, { once: true });
    try {
      const outcome = await this.#o.backend.execute({ plan: loaded, workspace: this.#workspace, call });
      if (outcome === 'cancelled') throw cancelled();
    } finally {
      options.signal?.removeEventListener('abort', cancel);
    }
    options.collect?.(context);
  }

  #atLeast(block: MemoryBlock, byteLength: number, purpose: string): MemoryBlock {
    if (block.bytes.byteLength >= byteLength) return block;
    const larger = this.#o.backend.allocate(byteLength, purpose);
    block.free();
    return larger;
  }
}

/** Rows `first` … `first + count - 1` of a buffer of rows, as copies. */
export function copyRows(buffer: Float32Array, width: number, first: number, count: number): Float32Array[] {
  return Array.from({ length: count }, (_, i) => buffer.slice((first + i) * width, (first + i + 1) * width));
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw cancelled();
}

function cancelled(): PlumblineError {
  return new PlumblineError('request_cancelled', 'the request was cancelled while it was computed');
}
