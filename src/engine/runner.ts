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
import {
  callBlockBytes,
  callSizes,
  cancelCall,
  fillCallBlock,
  type CallSequence,
  type CallSizes,
} from './plan/call-block.js';
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
  /** Which link of a chain; 0 for a call by itself. */
  readonly link: number;
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

/** One call of a chain. */
export interface ChainLink {
  /** How many sequences of the batch take part, from its start; no link has more than the one before it. */
  readonly sequences: number;
  readonly plan: RunOptions['plan'];
}

/** `fillInputs` is for the first link, `collect` is called for each when all are done. */
export interface ChainOptions extends Pick<RunOptions, 'signal' | 'fillInputs' | 'collect'> {
  readonly links: readonly ChainLink[];
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
  /** The first for every call, the others for the further calls of a chain. */
  readonly #calls: MemoryBlock[] = [];
  #tail: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(options: RunnerOptions) {
    this.#o = options;
    this.#workspace = options.backend.allocate(4 * options.workspaceWords, 'activations');
    this.#calls.push(options.backend.allocate(64 * 1024, 'call table'));
  }

  /** One forward over a batch; the new states in the order of the requests, one reference each. */
  run(batch: readonly RunRequest[], options: RunOptions): Promise<PagedState[]> {
    return this.#inTurn(batch, () => this.#run(batch, options));
  }

  /**
   * Calls that follow each other without coming back in between; each makes one more token of its sequences, which its
   * plan chooses by itself. The first runs the requests as they are, whole: they must fit into one call.
   * @returns per link the new states of its sequences, one reference each; the last ids of all but the first are still
   * to be named.
   */
  chain(batch: readonly RunRequest[], options: ChainOptions): Promise<PagedState[][]> {
    return this.#inTurn(batch, () => this.#runChain(batch, options));
  }

  #inTurn<Result>(batch: readonly RunRequest[], work: () => Promise<Result>): Promise<Result> {
    for (const { state } of batch) state.retain();
    const run = this.#tail.then(work).finally(() => {
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
    for (const call of this.#calls) call.free();
  }

  async #run(batch: readonly RunRequest[], options: RunOptions): Promise<PagedState[]> {
    if (this.#closed) throw new PlumblineError('shutting_down', 'the model is closed');
    const states = batch.map(({ state }) => state.retain());
    try {
      for (let done = batch.map(() => 0); ;) {
        const parts = this.#nextParts(batch, states, done, options.whole ?? false);
        if (parts.length === 0) {
          if (batch.every(({ tokens }, index) => tokens.length === done[index])) return states;
          throw new PlumblineError(
            'internal_error',
            'a request that must not be cut has more tokens than a call has rows',
          );
        }
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
    const successors: PagedState[] = [];
    try {
      for (const part of parts) {
        successors.push(options.successor?.(part.index) ?? this.#o.store.extend(part.before, part.tokens));
      }
      await this.#execute([plannedCall(parts, successors, options.plan)], options);
    } catch (error) {
      for (const state of successors) state.release();
      throw error;
    }
    return successors;
  }

  async #runChain(batch: readonly RunRequest[], { links, ...options }: ChainOptions): Promise<PagedState[][]> {
    if (this.#closed) throw new PlumblineError('shutting_down', 'the model is closed');
    const made: PagedState[][] = [];
    try {
      const calls: PlannedCall[] = [];
      for (const [at, { sequences, plan }] of links.entries()) {
        let row = 0;
        const parts = batch.slice(0, sequences).map((request, index): CallPart => {
          const before = at === 0 ? request.state : made[at - 1]![index]!;
          const tokens = at === 0 ? request.tokens : UNKNOWN_TOKEN;
          row += tokens.length;
          return { index, from: 0, tokens, before, row: row - tokens.length, outRow: index, outRows: 1 };
        });
        const successors: PagedState[] = [];
        made.push(successors);
        for (const { before, tokens } of parts) successors.push(this.#o.store.extend(before, tokens));
        calls.push(plannedCall(parts, successors, plan));
      }
      await this.#execute(calls, options);
    } catch (error) {
      for (const state of made.flat()) state.release();
      throw error;
    }
    return made;
  }

  /** Executes calls in turn, without a word between them; the inputs are those of the first. */
  async #execute(calls: readonly PlannedCall[], options: Omit<RunOptions, 'plan'>): Promise<void> {
    throwIfAborted(options.signal);
    const words = Math.max(...calls.map(({ cached }) => cached.plan.workspaceWords));
    this.#workspace = this.#atLeast(this.#workspace, 4 * words, 'activations');
    const blocks = calls.map(({ sequences, sizes }, at) => {
      this.#calls[at] = this.#atLeast(this.#calls[at], callBlockBytes(sizes), 'call table');
      fillCallBlock(this.#calls[at], sequences, sizes);
      return this.#calls[at];
    });
    const { bytes } = this.#workspace;
    const memory = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 2);
    const contexts = calls.map((call, at) => contextOf(call, at, memory));
    await options.fillInputs?.(contexts[0]!);
    throwIfAborted(options.signal);
    const cancel = (): void => {
      for (const block of blocks) cancelCall(block);
    };
    options.signal?.addEventListener('abort', cancel, { once: true });
    try {
      // All must have ended before anything that they use is given back.
      const ended = await Promise.allSettled(
        calls.map(({ cached }, at) =>
          this.#o.backend.execute({
            plan: cached.loaded,
            workspace: this.#workspace,
            call: blocks[at]!,
            followed: at + 1 < calls.length,
          }),
        ),
      );
      for (const result of ended) if (result.status === 'rejected') throw result.reason;
      if (ended.some((result) => result.status === 'fulfilled' && result.value === 'cancelled')) throw cancelled();
    } finally {
      options.signal?.removeEventListener('abort', cancel);
    }
    for (const context of contexts) options.collect?.(context);
  }

  #atLeast(block: MemoryBlock | undefined, byteLength: number, purpose: string): MemoryBlock {
    if (block && block.bytes.byteLength >= byteLength) return block;
    const larger = this.#o.backend.allocate(byteLength, purpose);
    block?.free();
    return larger;
  }
}

/** A call with everything that an execution needs but memory. */
interface PlannedCall {
  readonly parts: readonly CallPart[];
  readonly sequences: readonly CallSequence[];
  readonly sizes: CallSizes;
  readonly cached: CachedPlan;
}

/** Stands for the id that a link of a chain chooses. */
const UNKNOWN_TOKEN = Int32Array.of(0);

function plannedCall(
  parts: readonly CallPart[],
  successors: readonly PagedState[],
  plan: RunOptions['plan'],
): PlannedCall {
  const sequences = parts.map(({ tokens, before, outRows }, i): CallSequence => ({
    tokens,
    startPosition: before.length,
    fixedIn: before.fixed.address,
    fixedOut: successors[i]!.fixed.address,
    pages: successors[i]!.pages.map((page) => page.slab.address),
    outRows: Array.from({ length: outRows }, (_, row) => tokens.length - outRows + row),
  }));
  const sizes = callSizes(sequences);
  return { parts, sequences, sizes, cached: plan(sizes.rows, sizes.outRows) };
}

function contextOf({ parts, cached: { plan } }: PlannedCall, link: number, memory: Float32Array): CallContext {
  return {
    link,
    parts,
    buffer(name) {
      const buffer = plan.buffers.get(name);
      if (!buffer) throw new PlumblineError('plan_invalid', `the plan has no buffer ${name}`);
      const capacity = buffer.rows === 'R' ? plan.options.rowCapacity : plan.options.outCapacity;
      return memory.subarray(buffer.offset, buffer.offset + buffer.width * capacity);
    },
  };
}

/** Rows `first` … `first + count - 1` of a buffer of rows, as parts of one copy: memory is taken once. */
export function copyRows(buffer: Float32Array, width: number, first: number, count: number): Float32Array[] {
  const copy = buffer.slice(first * width, (first + count) * width);
  return Array.from({ length: count }, (_, i) => copy.subarray(i * width, (i + 1) * width));
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw cancelled();
}

function cancelled(): PlumblineError {
  return new PlumblineError('request_cancelled', 'the request was cancelled while it was computed');
}
