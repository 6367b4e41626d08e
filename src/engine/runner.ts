/**
 * Runs forwards: cuts a batch into calls that fit a plan, makes the successor states, has the plan fill them, and hands
 * back rows. One forward at a time; callers queue.
 *
 * Invariants: states given in are never changed; on any failure or abort every state made for the batch is released and
 * nothing else has changed; how a batch is cut has no influence on any bit (rows do not depend on their neighbours).
 */
import { PlumblineError } from '../errors.js';
import type { Backend, MemoryBlock } from './backends/backend.js';
import type { ForwardRequest, ForwardResult } from './model.js';
import { callBlockBytes, callSizes, cancelCall, fillCallBlock, type CallSequence } from './plan/call-block.js';
import type { CachedPlan } from './plan/cache.js';
import type { PagedState, StateStore } from './state/sequence-state.js';

/** One sequence's part of a call. */
export interface CallPart {
  /** The state before the call; its ids are the history of the new ones. */
  readonly before: PagedState;
  readonly tokens: Int32Array;
}

export interface RunnerOptions {
  readonly backend: Backend;
  readonly store: StateStore;
  /** Most rows of a call, and most rows through the head. */
  readonly maxRows: number;
  readonly maxOutRows: number;
  readonly vocabSize: number;
  /** Words of the largest workspace that `plan` may need, when known in advance. */
  readonly workspaceWords: number;
  /** Buffer name of the logits. */
  readonly logits: string;
}

export interface RunOptions {
  /** The plan for this forward's phase. */
  readonly plan: (rows: number, outRows: number) => CachedPlan;
  readonly signal?: AbortSignal | undefined;
  /** Writes the host-made inputs of a call (gathered table rows) into the plan's buffers. */
  readonly fillInputs?: ((call: CallContext) => Promise<void>) | undefined;
  /** Reads other buffers of the call when it is done. */
  readonly inspect?: ((call: CallContext) => void) | undefined;
}

export interface CallContext {
  readonly parts: readonly CallPart[];
  readonly rows: number;
  readonly outRows: number;
  /** The float32 words of a plan buffer. */
  buffer(name: string): Float32Array;
}

interface Progress {
  state: PagedState;
  done: number;
  readonly logits: Float32Array[];
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

  /** One forward over a batch; results in the order of the requests. */
  forward(batch: readonly ForwardRequest[], options: RunOptions): Promise<ForwardResult[]> {
    const run = this.#tail.then(() => this.#forward(batch, options));
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

  async #forward(batch: readonly ForwardRequest[], options: RunOptions): Promise<ForwardResult[]> {
    if (this.#closed) throw new PlumblineError('shutting_down', 'the model is closed');
    const progress = batch.map((request): Progress => {
      const state = request.state as PagedState;
      return { state: state.retain(), done: 0, logits: [] };
    });
    try {
      for (;;) {
        const pieces = this.#nextPieces(batch, progress);
        if (pieces.length === 0) break;
        await this.#runCall(batch, progress, pieces, options);
      }
    } catch (error) {
      for (const { state } of progress) state.release();
      throw error;
    }
    return progress.map(({ state, logits }) => ({ state, logits }));
  }

  /** The next tokens of each sequence that fit into one call, in batch order. */
  #nextPieces(batch: readonly ForwardRequest[], progress: readonly Progress[]): Piece[] {
    const pieces: Piece[] = [];
    let rows = this.#o.maxRows;
    let outRows = this.#o.maxOutRows;
    batch.forEach((request, index) => {
      const left = request.tokens.length - progress[index]!.done;
      const room = request.logits === 'all' ? Math.min(rows, outRows) : outRows > 0 ? rows : 0;
      const count = Math.min(left, room);
      if (count <= 0) return;
      const ends = count === left;
      const outs = request.logits === 'all' ? count : request.logits === 'last' && ends ? 1 : 0;
      pieces.push({ index, count, outs });
      rows -= count;
      outRows -= outs;
    });
    return pieces;
  }

  async #runCall(
    batch: readonly ForwardRequest[],
    progress: readonly Progress[],
    pieces: readonly Piece[],
    options: RunOptions,
  ): Promise<void> {
    throwIfAborted(options.signal);
    const parts: CallPart[] = [];
    const successors: PagedState[] = [];
    try {
      for (const { index, count } of pieces) {
        const { state, done } = progress[index]!;
        const tokens = Int32Array.from(batch[index]!.tokens.slice(done, done + count));
        parts.push({ before: state, tokens });
        successors.push(this.#o.store.extend(state, tokens));
      }
      const sequences = pieces.map(({ count, outs }, i): CallSequence => ({
        tokens: parts[i]!.tokens,
        startPosition: parts[i]!.before.length,
        fixedIn: parts[i]!.before.fixed.address,
        fixedOut: successors[i]!.fixed.address,
        pages: successors[i]!.pages.map((page) => page.slab.address),
        outRows: Array.from({ length: outs }, (_, row) => count - outs + row),
      }));
      const context = await this.#execute(sequences, parts, options);
      let outRow = 0;
      const logits = context.buffer(this.#o.logits);
      pieces.forEach(({ index, outs }) => {
        for (let i = 0; i < outs; i++, outRow++) {
          progress[index]!.logits.push(logits.slice(outRow * this.#o.vocabSize, (outRow + 1) * this.#o.vocabSize));
        }
      });
      options.inspect?.(context);
    } catch (error) {
      for (const state of successors) state.release();
      throw error;
    }
    pieces.forEach(({ index, count }, i) => {
      const entry = progress[index]!;
      entry.state.release();
      entry.state = successors[i]!;
      entry.done += count;
    });
  }

  async #execute(
    sequences: readonly CallSequence[],
    parts: readonly CallPart[],
    options: RunOptions,
  ): Promise<CallContext> {
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
      rows: sizes.rows,
      outRows: sizes.outRows,
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
      if (outcome === 'cancelled') throwIfAborted(options.signal);
    } finally {
      options.signal?.removeEventListener('abort', cancel);
    }
    return context;
  }

  #atLeast(block: MemoryBlock, byteLength: number, purpose: string): MemoryBlock {
    if (block.bytes.byteLength >= byteLength) return block;
    const larger = this.#o.backend.allocate(byteLength, purpose);
    block.free();
    return larger;
  }
}

interface Piece {
  readonly index: number;
  readonly count: number;
  readonly outs: number;
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new PlumblineError('request_cancelled', 'the request was cancelled while it was computed');
}
