/**
 * What the disk does for sessions: how fast a large checkpoint comes back, and how much is written for a conversation of
 * many turns.
 *
 * Invariants: a restore stands beside a plain reading of the same files in the same round; bytes written are counted where
 * they enter the file system; states have the sizes of a model's, and bytes that nobody computed.
 */
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import type { Backend } from '../../engine/backends/backend.js';
import type { StateCodecs } from '../../engine/model.js';
import { PagedStateCodec } from '../../engine/state/codec.js';
import { StateLayoutBuilder } from '../../engine/state/layout.js';
import { StateStore, type PagedState } from '../../engine/state/sequence-state.js';
import { PlumblineError } from '../../errors.js';
import { against, spread, withLimit, withShareTarget, type Figure } from '../figures.js';
import { candidateOf, readPlainly, restored, STAMP, withScratchStore } from '../scratch-store.js';
import type { BenchContext } from '../session.js';
import { promptOf } from '../token-run.js';

const RESTORE_SHARE = 0.6;
const PAUSE_LIMIT_MS = 50;
const AMPLIFICATION_LIMIT = 1.3;
/** Larger than the caches, so that a plain reading goes to memory too. */
const BUFFER_BYTES = 2 ** 28;

/** A conversation that is made up. */
export interface Script {
  readonly scriptedTurns: number;
  readonly scriptedTurnTokens: number;
}

/** A checkpoint of so many bytes, restored again and again. */
export async function measureRestore(context: BenchContext, backend: Backend, restoreBytes: number) {
  const layout = new StateLayoutBuilder(64);
  layout.fixed('recurrent', 2 ** 24);
  layout.page('keys', { groups: 8, tokensPerRow: 1, rowBytes: 2 ** 11 });
  const pages = Math.max(1, Math.round(restoreBytes / 2 ** 20) - 16);
  const made = new MadeUpStates(backend, layout, { fixedSlabs: 2, pages: 2 * pages });
  try {
    return await withScratchStore({ trunk: made.codec }, 2 ** 40, async (scratch) => {
      context.progress('sessions: writing a large checkpoint');
      const tokens = promptOf(64 * pages, 30_000);
      const state = made.grow(undefined, tokens);
      await scratch.save({ kind: 'turn', tokens: Int32Array.from(tokens), trunk: state }, STAMP);
      state.release();
      const candidate = candidateOf(scratch, [...tokens, 0]);
      const buffer = new Uint8Array(Math.min(BUFFER_BYTES, restoreBytes)).fill(1);
      const speeds: number[] = [];
      const plain: number[] = [];
      const pauses: number[] = [];
      (await restored(scratch, candidate)).trunk.release(); // touches the memory for the first time
      for (let round = 0; round < (context.quick ? 3 : 9); round++) {
        context.progress(`sessions: restoring a large checkpoint, round ${round + 1}`);
        const { bytes, ms } = readPlainly(scratch.filesOf(candidate), buffer);
        plain.push(bytes / ms / 1e6);
        const delay = monitorEventLoopDelay({ resolution: 1 });
        delay.enable();
        const start = performance.now();
        const { trunk } = await restored(scratch, candidate);
        speeds.push(bytes / (performance.now() - start) / 1e6);
        delay.disable();
        pauses.push(delay.percentile(99) / 1e6);
        trunk.release();
      }
      const size = made.codec.fixedBytes + pages * made.codec.pageBytes;
      const name = `restore of a checkpoint of ${Math.round(size / 2 ** 20)} MiB`;
      const figure = against(name, 'GB/s', speeds, plain, 'reading the same files plainly');
      const pause = spread(pauses);
      return {
        figures: [
          withShareTarget(figure, RESTORE_SHARE),
          withLimit(
            { name: '  99th percentile of waits of the event loop', unit: 'ms', value: pause },
            pause.median,
            PAUSE_LIMIT_MS,
            `within ${PAUSE_LIMIT_MS} ms`,
          ),
        ] satisfies Figure[],
        notes: [`restored into memory that was used before; every byte checked, ${figure.value.rounds} rounds`],
      };
    });
  } finally {
    made.close();
  }
}

/** A conversation of many turns, each saved: states of the model's own sizes, without the model's arithmetic. */
export async function measureWriting(
  context: BenchContext,
  backend: Backend,
  { trunk }: StateCodecs,
  { scriptedTurns, scriptedTurnTokens }: Script,
) {
  const layout = new StateLayoutBuilder(trunk.pageTokens);
  layout.fixed('all', trunk.fixedBytes);
  layout.page('all', { groups: 1, tokensPerRow: 1, rowBytes: Math.ceil(trunk.pageBytes / trunk.pageTokens) });
  const pages = Math.ceil((scriptedTurns * scriptedTurnTokens) / trunk.pageTokens);
  const made = new MadeUpStates(backend, layout, { fixedSlabs: 3, pages: pages + 2 });
  try {
    return await withScratchStore({ trunk: made.codec }, 2 ** 31, async (scratch) => {
      const tokens = promptOf(scriptedTurns * scriptedTurnTokens, 30_000);
      const before = scratch.bytesWritten();
      let state: PagedState | undefined;
      try {
        for (let turn = 1; turn <= scriptedTurns; turn++) {
          context.progress(`sessions: writing turn ${turn} of ${scriptedTurns}`);
          if (context.signal?.aborted === true)
            throw new PlumblineError('request_cancelled', 'the measurement was cancelled');
          const grown = made.grow(state, tokens.slice(0, turn * scriptedTurnTokens));
          state?.release();
          state = grown;
          await scratch.save(
            { kind: 'turn', tokens: Int32Array.from(tokens.slice(0, grown.length)), trunk: grown },
            STAMP,
          );
        }
      } finally {
        state?.release();
      }
      const { page_bytes, record_bytes, fixed_bytes } = scratch.store.health().written;
      const written = scratch.bytesWritten() - before;
      const ratio = written / (page_bytes + record_bytes + fixed_bytes);
      const mb = (bytes: number): string => `${(bytes / 1e6).toFixed(2)} MB`;
      return {
        figures: [
          withLimit(
            { name: `bytes written a byte of new state, ${scriptedTurns} turns`, unit: 'x', value: spread([ratio]) },
            ratio,
            AMPLIFICATION_LIMIT,
            `at most ${AMPLIFICATION_LIMIT}`,
          ),
        ],
        notes: [
          `${scriptedTurns} turns of ${scriptedTurnTokens} tokens: ${mb(page_bytes + record_bytes)} of new pages and token ` +
            `records, ${mb(fixed_bytes)} of recurrent state (one copy a turn), ` +
            `${mb(written - page_bytes - record_bytes - fixed_bytes)} of everything else; ` +
            `${(written / tokens.length / 1e3).toFixed(1)} kB written a token`,
        ],
      };
    });
  } finally {
    made.close();
  }
}

/** States of some layout whose bytes nobody computed. */
class MadeUpStates {
  readonly codec: PagedStateCodec;
  readonly #store: StateStore;
  #seed = 1;

  constructor(backend: Backend, layout: StateLayoutBuilder, limits: { fixedSlabs: number; pages: number }) {
    this.#store = new StateStore(backend, layout.finish(), limits);
    this.codec = new PagedStateCodec(this.#store);
  }

  /** The state of `tokens`, grown from a shorter one, which stays the caller's. */
  grow(from: PagedState | undefined, tokens: readonly number[]): PagedState {
    const before = from ?? this.#store.empty();
    const after = this.#store.extend(before, tokens.slice(before.length));
    const firstNew = Math.floor(before.length / this.codec.pageTokens);
    for (const { slab } of after.pages.slice(firstNew)) this.#fill(slab.bytes);
    this.#fill(after.fixed.bytes);
    if (from === undefined) before.release();
    return after;
  }

  close(): void {
    this.#store.close();
  }

  #fill(bytes: Uint8Array): void {
    const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 2);
    for (let i = 0; i < words.length; i++) {
      words[i] = this.#seed = (Math.imul(this.#seed, 1664525) + 1013904223) >>> 0;
    }
  }
}
