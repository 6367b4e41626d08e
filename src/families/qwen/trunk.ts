/**
 * The trunk of a Qwen model at work: plans by key, sequence states, forwards, and the commit of partly kept windows.
 *
 * Invariants: the phase of a forward picks the lowering class, which is part of the plan key; the gathered n-gram rows of
 * a call depend on token ids alone; rows and states are the same whatever the batch, the chunking and the thread count.
 */
import { PlumblineError } from '../../errors.js';
import type { Backend } from '../../engine/backends/backend.js';
import type {
  CommitRequest,
  ForwardOptions,
  ForwardRequest,
  ForwardResult,
  VerifiedWindow,
} from '../../engine/model.js';
import type { ActivationLaw, Plan, PlanOptions } from '../../engine/plan/builder.js';
import { PlanCache, type PlanKey } from '../../engine/plan/cache.js';
import type { GateLowering, GatePolicy } from '../../engine/plan/phase.js';
import type { WeightTable } from '../../engine/plan/weight-table.js';
import { copyRows, Runner, type CallContext, type RunOptions } from '../../engine/runner.js';
import { StateStore, type PagedState, type StateLimits } from '../../engine/state/sequence-state.js';
import type { RowTable } from '../../weights/gather.js';
import type { BoundQwen } from './bind.js';
import type { QwenConfig } from './config-types.js';
import { phaseLowering } from './laws.js';
import type { NgramHash } from './ngram.js';
import { HEAD_INPUT, LOGITS, pleInput, RESIDUAL, tapName } from './plan-buffers.js';
import { buildQwenPlan } from './plan-builder.js';
import { buildCommitPlan, stashBuffers } from './plan-commit.js';
import type { QwenStateLayout } from './state-layout.js';

/** The hash and the table of one PLE layer. */
export interface PleTable {
  readonly layer: number;
  readonly hash: NgramHash;
  readonly table: RowTable;
}

export interface TrunkOptions {
  readonly config: QwenConfig;
  readonly backend: Backend;
  readonly law: ActivationLaw;
  readonly gatePolicy: GatePolicy;
  readonly bound: BoundQwen;
  readonly weights: WeightTable;
  readonly pleTables: readonly PleTable[];
  readonly state: QwenStateLayout;
  readonly limits: StateLimits;
  /** Plan options but for the capacities. */
  readonly plan: Omit<PlanOptions, 'rowCapacity' | 'outCapacity'>;
  /** Most rows of one plan. */
  readonly maxRows: number;
  /** Workspace of the largest plan. */
  readonly workspaceWords: number;
}

/** Residual before every layer (R rows each), then the head's input (M rows), for verification. */
export interface Taps {
  readonly layers: readonly Float32Array[];
  readonly headInput: Float32Array;
}

/** Most tokens of a revocable forward, and of any in a fused phase: a draft window, or a copied block with its primary. */
export const MAX_WINDOW = 25;

const HEAD_BYTES = 64 << 20;

/** Most rows that may go through the head at once: their logits stay within 64 MiB, 32 rows in any case. */
export function maxHeadRows(vocabSize: number, maxRows: number): number {
  return Math.min(maxRows, Math.max(32, Math.floor(HEAD_BYTES / (4 * vocabSize))));
}

/** Which part of the model a plan runs. */
type Group = 'trunk' | 'revocable' | 'commit';

/** What the recurrences of a window were fed: its rows of every stash buffer, one buffer after the other. */
class StashedWindow implements VerifiedWindow {
  constructor(
    readonly tokens: number,
    readonly rows: Float32Array,
  ) {}
}

export class QwenTrunk {
  readonly #o: TrunkOptions;
  readonly #store: StateStore;
  readonly #plans: PlanCache;
  readonly #runner: Runner;
  readonly #stashed: ReturnType<typeof stashBuffers>;
  /** Elements of the residual of one token: all streams. */
  readonly hiddenWidth: number;

  constructor(options: TrunkOptions) {
    const { config, backend, maxRows } = options;
    this.#o = options;
    this.#stashed = stashBuffers(config);
    this.hiddenWidth = (config.family === 'qwen4_exp' ? config.hyperConnections.streams : 1) * config.hiddenSize;
    this.#store = new StateStore(backend, options.state.layout, options.limits);
    this.#plans = new PlanCache(backend, (key) => this.buildPlan(key));
    this.#runner = new Runner({
      backend,
      store: this.#store,
      maxRows,
      maxOutRows: maxHeadRows(config.vocabSize, maxRows),
      workspaceWords: options.workspaceWords,
    });
  }

  newState(): PagedState {
    return this.#store.empty();
  }

  async forward(batch: readonly ForwardRequest[], options: ForwardOptions): Promise<ForwardResult[]> {
    const { vocabSize } = this.#o.config;
    const revocable = batch.some((request) => request.revocable === true);
    const window = revocable || phaseLowering(options.phase) === 'fused';
    if (window && batch.some(({ tokens }) => tokens.length > MAX_WINDOW)) {
      throw new PlumblineError('internal_error', `a window has at most ${MAX_WINDOW} tokens`);
    }
    const rows = batch.map(() => ({ logits: [] as Float32Array[], hidden: [] as Float32Array[] }));
    const windows = new Map<number, VerifiedWindow>();
    const states = await this.#run(
      batch,
      options,
      { group: revocable ? 'revocable' : 'trunk', taps: false },
      (call) => {
        for (const { index, row, tokens, outRow, outRows } of call.parts) {
          rows[index]!.logits.push(...copyRows(call.buffer(LOGITS), vocabSize, outRow, outRows));
          if ((batch[index]!.hidden ?? 'none') !== 'none') {
            rows[index]!.hidden.push(...copyRows(call.buffer(RESIDUAL), this.hiddenWidth, row, tokens.length));
          }
          if (batch[index]!.revocable === true) windows.set(index, this.#stash(call, row, tokens.length));
        }
      },
    );
    return states.map((state, index) => {
      const { logits, hidden } = rows[index]!;
      const wanted = batch[index]!.hidden ?? 'none';
      return {
        state,
        logits,
        hidden: wanted === 'none' ? undefined : wanted === 'last' ? hidden.slice(-1) : hidden,
        window: windows.get(index),
      };
    });
  }

  /** A forward of one sequence, all rows, that also returns the residual before every layer. For verification. */
  async forwardWithTaps(
    request: Omit<ForwardRequest, 'logits'>,
    options: ForwardOptions,
  ): Promise<{ readonly result: ForwardResult; readonly taps: Taps }> {
    const { layerCount, hiddenSize, vocabSize } = this.#o.config;
    const layers: Float32Array[][] = Array.from({ length: layerCount }, () => []);
    const headInput: Float32Array[] = [];
    const logits: Float32Array[] = [];
    const [state] = await this.#run(
      [{ ...request, logits: 'all' }],
      options,
      { group: 'trunk', taps: true },
      (call) => {
        const rows = call.parts[0]!.tokens.length;
        layers.forEach((list, layer) => list.push(...copyRows(call.buffer(tapName(layer)), this.hiddenWidth, 0, rows)));
        headInput.push(...copyRows(call.buffer(HEAD_INPUT), hiddenSize, 0, rows));
        logits.push(...copyRows(call.buffer(LOGITS), vocabSize, 0, rows));
      },
    );
    return {
      result: { state: state!, logits },
      taps: { layers: layers.map(joinRows), headInput: joinRows(headInput) },
    };
  }

  /** The states after the kept tokens of windows; `Speculation.commit` has the contract. */
  commit(batch: readonly CommitRequest[], signal: AbortSignal | undefined): Promise<PagedState[]> {
    const requests = batch.map(({ before, after, window, keep }) => {
      const from = before.length;
      if (!(window instanceof StashedWindow) || keep < 1 || keep >= window.tokens || after.length < from + keep) {
        throw new PlumblineError('internal_error', `a window of ${window.tokens} tokens cannot keep ${keep}`);
      }
      const tokens = Int32Array.from({ length: keep }, (_, i) => (after as PagedState).token(from + i));
      return { state: before as PagedState, tokens, outRows: 'none' as const };
    });
    return this.#runner.run(requests, {
      signal,
      whole: true,
      successor: (index) => {
        const { before, after, keep } = batch[index]!;
        return this.#store.truncate(after as PagedState, before.length + keep);
      },
      plan: (rows) => this.#plans.get(this.planKey({ group: 'commit', lowering: 'standalone', rows, outRows: 0 })),
      fillInputs: (call) => {
        let before = 0; // words of a token in the buffers before
        for (const { name, width } of this.#stashed) {
          const buffer = call.buffer(name);
          for (const { index, row, tokens } of call.parts) {
            const { rows, tokens: count } = batch[index]!.window as StashedWindow;
            buffer.set(rows.subarray(count * before, count * before + tokens.length * width), row * width);
          }
          before += width;
        }
      },
    });
  }

  buildPlan(key: PlanKey): Plan {
    const { config, bound, weights, state, plan } = this.#o;
    const options = {
      config,
      bound,
      state,
      plan: { ...plan, rowCapacity: key.rowCapacity, outCapacity: key.outCapacity },
      lowering: key.lowering,
      gatePolicy: key.gatePolicy,
      taps: key.taps,
      stash: key.group !== 'trunk',
    };
    return key.group === 'commit' ? buildCommitPlan(options, weights) : buildQwenPlan(options, weights);
  }

  /** The key of the plan that runs a call of so many rows: capacities are rounded up to powers of two. */
  planKey(call: {
    readonly group: Group;
    readonly lowering: GateLowering;
    readonly rows: number;
    readonly outRows: number;
    readonly taps?: boolean;
  }): PlanKey {
    const { law, backend, gatePolicy, maxRows, config } = this.#o;
    return {
      group: call.group,
      lowering: call.lowering,
      gatePolicy,
      law: law.name,
      floatLaw: backend.floatLaw,
      rowCapacity: bucket(call.rows, maxRows),
      outCapacity: bucket(call.outRows, maxHeadRows(config.vocabSize, maxRows)),
      taps: call.taps ?? false,
    };
  }

  /** Name of an entry of the weight table, for printed plans. */
  weightName(index: number): string {
    return this.#o.weights.name(index);
  }

  stateUsage(): { readonly allocated: number; readonly used: number } {
    return this.#store.usage();
  }

  async close(): Promise<void> {
    await this.#runner.close();
    this.#plans.close();
    this.#store.close();
  }

  #run(
    batch: readonly ForwardRequest[],
    { phase, signal }: ForwardOptions,
    { group, taps }: { readonly group: Group; readonly taps: boolean },
    collect: RunOptions['collect'],
  ): Promise<PagedState[]> {
    const lowering = phaseLowering(phase);
    const requests = batch.map(({ state, tokens, logits }) => ({
      state: state as PagedState,
      tokens: Int32Array.from(tokens),
      outRows: logits,
    }));
    return this.#runner.run(requests, {
      signal,
      collect,
      whole: group === 'revocable',
      plan: (rows, outRows) => this.#plans.get(this.planKey({ group, lowering, rows, outRows, taps })),
      fillInputs: (call) => this.#gatherNgrams(call, signal),
    });
  }

  #stash(call: CallContext, row: number, count: number): StashedWindow {
    const rows = new Float32Array(count * this.#stashed.reduce((sum, { width }) => sum + width, 0));
    let at = 0;
    for (const { name, width } of this.#stashed) {
      rows.set(call.buffer(name).subarray(row * width, (row + count) * width), at);
      at += count * width;
    }
    return new StashedWindow(count, rows);
  }

  async #gatherNgrams(call: CallContext, signal: AbortSignal | undefined): Promise<void> {
    for (const { layer, hash, table } of this.#o.pleTables) {
      const out = call.buffer(pleInput(layer));
      const width = hash.heads * table.width;
      for (const { before, tokens, row } of call.parts) {
        const ids = hash.rows(tokens, ngramHistory(before, hash.emptyHistory()));
        await table.gather(ids, out.subarray(row * width, (row + tokens.length) * width), signal);
      }
    }
  }
}

/** The ids before the new ones, as far back as `empty` is long; before its first token a sequence holds `empty`. */
function ngramHistory(before: PagedState, empty: Int32Array): Int32Array {
  return empty.map((eos, i) => {
    const position = before.length - empty.length + i;
    return position < 0 ? eos : before.token(position);
  });
}

/** The smallest power of two that holds `count`, at least 1, at most `limit`. */
function bucket(count: number, limit: number): number {
  let size = 1;
  while (size < count) size *= 2;
  return Math.min(size, limit);
}

function joinRows(rows: readonly Float32Array[]): Float32Array {
  const whole = new Float32Array(rows.reduce((sum, row) => sum + row.length, 0));
  let at = 0;
  for (const row of rows) {
    whole.set(row, at);
    at += row.length;
  }
  return whole;
}
