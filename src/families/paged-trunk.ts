/**
 * The trunk of a model at work, whatever its family: plans by key, sequence states, and forwards over them.
 *
 * Invariants: the phase of a forward picks the lowering class, which is part of the plan key; rows and states are the same
 * whatever the batch, the chunking and the thread count. What a plan is made of is the family's (`build`).
 */
import type { Backend } from '../engine/backends/backend.js';
import type { ForwardOptions, ForwardRequest, ForwardResult } from '../engine/model.js';
import type { ActivationLaw, Plan } from '../engine/plan/builder.js';
import { PlanCache, type CachedPlan, type PlanKey } from '../engine/plan/cache.js';
import type { GateLowering, GatePolicy, Phase } from '../engine/plan/phase.js';
import type { WeightTable } from '../engine/plan/weight-table.js';
import { copyRows, Runner, type CallContext, type RunOptions, type RunRequest } from '../engine/runner.js';
import type { StateLayout } from '../engine/state/layout.js';
import { StateStore, type PagedState, type StateLimits } from '../engine/state/sequence-state.js';
import { HEAD_INPUT, LOGITS, RESIDUAL, tapName } from './plan-buffers.js';

export interface TrunkShape {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  /** Elements of the residual of one token: all streams. */
  readonly hiddenWidth: number;
  readonly layerCount: number;
}

export interface PagedTrunkOptions {
  readonly shape: TrunkShape;
  readonly backend: Backend;
  readonly law: ActivationLaw;
  readonly gatePolicy: GatePolicy;
  readonly weights: WeightTable;
  readonly layout: StateLayout;
  readonly limits: StateLimits;
  /** Most rows of one plan. */
  readonly maxRows: number;
  /** Workspace of the largest plan. */
  readonly workspaceWords: number;
  /** The lowering class of a phase. */
  readonly lowering: (phase: Phase) => GateLowering;
  /** The plan of a key; equal keys give equal plans. */
  readonly build: (key: PlanKey) => Plan;
  /** Writes the host-made inputs of a forward into the plan's buffers. */
  readonly fillInputs?: ((call: CallContext, signal: AbortSignal | undefined) => Promise<void>) | undefined;
}

/** Residual before every layer (R rows each), then the head's input (M rows), for verification. */
export interface Taps {
  readonly layers: readonly Float32Array[];
  readonly headInput: Float32Array;
}

/** How a family runs a forward otherwise than plainly. */
export interface ForwardVariant {
  /** The group in the plan key; default `trunk`. */
  readonly group?: string | undefined;
  /** No request is cut. */
  readonly whole?: boolean | undefined;
  /** Sees every call when it is done. */
  readonly collect?: ((call: CallContext) => void) | undefined;
}

/** A call by what its plan depends on. */
export interface PlanCall {
  readonly group: string;
  readonly lowering: GateLowering;
  readonly rows: number;
  readonly outRows: number;
  readonly taps?: boolean;
}

const HEAD_BYTES = 64 << 20;

/** Most rows that may go through the head at once: their logits stay within 64 MiB, 32 rows in any case. */
export function maxHeadRows(vocabSize: number, maxRows: number): number {
  return Math.min(maxRows, Math.max(32, Math.floor(HEAD_BYTES / (4 * vocabSize))));
}

export class PagedTrunk {
  readonly shape: TrunkShape;
  readonly store: StateStore;
  readonly #o: PagedTrunkOptions;
  readonly #plans: PlanCache;
  readonly #runner: Runner;

  constructor(options: PagedTrunkOptions) {
    const { shape, backend, maxRows, layout, limits, workspaceWords } = options;
    this.#o = options;
    this.shape = shape;
    this.store = new StateStore(backend, layout, limits);
    this.#plans = new PlanCache(backend, options.build);
    const maxOutRows = maxHeadRows(shape.vocabSize, maxRows);
    this.#runner = new Runner({ backend, store: this.store, maxRows, maxOutRows, workspaceWords });
  }

  newState(): PagedState {
    return this.store.empty();
  }

  /** One forward over a batch; `LanguageModel.forward` has the contract. */
  async forward(
    batch: readonly ForwardRequest[],
    options: ForwardOptions,
    variant: ForwardVariant = {},
  ): Promise<ForwardResult[]> {
    const { vocabSize, hiddenWidth } = this.shape;
    const rows = batch.map(() => ({ logits: [] as Float32Array[], hidden: [] as Float32Array[] }));
    const states = await this.#forward(batch, options, variant, false, (call) => {
      for (const { index, row, tokens, outRow, outRows } of call.parts) {
        rows[index]!.logits.push(...copyRows(call.buffer(LOGITS), vocabSize, outRow, outRows));
        if ((batch[index]!.hidden ?? 'none') !== 'none') {
          rows[index]!.hidden.push(...copyRows(call.buffer(RESIDUAL), hiddenWidth, row, tokens.length));
        }
      }
      variant.collect?.(call);
    });
    return states.map((state, index) => {
      const { logits, hidden } = rows[index]!;
      const wanted = batch[index]!.hidden ?? 'none';
      return { state, logits, hidden: wanted === 'none' ? undefined : wanted === 'last' ? hidden.slice(-1) : hidden };
    });
  }

  /** A forward of one sequence, all rows, that also returns the residual before every layer. For verification. */
  async forwardWithTaps(
    request: Omit<ForwardRequest, 'logits'>,
    options: ForwardOptions,
  ): Promise<{ readonly result: ForwardResult; readonly taps: Taps }> {
    const { layerCount, hiddenSize, hiddenWidth, vocabSize } = this.shape;
    const layers: Float32Array[][] = Array.from({ length: layerCount }, () => []);
    const headInput: Float32Array[] = [];
    const logits: Float32Array[] = [];
    const [state] = await this.#forward([{ ...request, logits: 'all' }], options, {}, true, (call) => {
      const rows = call.parts[0]!.tokens.length;
      layers.forEach((list, layer) => list.push(...copyRows(call.buffer(tapName(layer)), hiddenWidth, 0, rows)));
      headInput.push(...copyRows(call.buffer(HEAD_INPUT), hiddenSize, 0, rows));
      logits.push(...copyRows(call.buffer(LOGITS), vocabSize, 0, rows));
    });
    return {
      result: { state: state!, logits },
      taps: { layers: layers.map(joinRows), headInput: joinRows(headInput) },
    };
  }

  /** Runs any of the family's plans over the trunk's states. */
  run(requests: readonly RunRequest[], options: RunOptions): Promise<PagedState[]> {
    return this.#runner.run(requests, options);
  }

  /** The loaded plan that runs such a call. */
  plan(call: PlanCall): CachedPlan {
    return this.#plans.get(this.planKey(call));
  }

  buildPlan(key: PlanKey): Plan {
    return this.#o.build(key);
  }

  /** The key of the plan of a forward in this phase. */
  phaseKey(phase: Phase, rows: number, outRows: number): PlanKey {
    return this.planKey({ group: 'trunk', lowering: this.#o.lowering(phase), rows, outRows });
  }

  /** The key of the plan that runs a call of so many rows: capacities are rounded up to powers of two. */
  planKey(call: PlanCall): PlanKey {
    const { law, backend, gatePolicy, maxRows } = this.#o;
    return {
      group: call.group,
      lowering: call.lowering,
      gatePolicy,
      law: law.name,
      floatLaw: backend.floatLaw,
      rowCapacity: bucket(call.rows, maxRows),
      outCapacity: bucket(call.outRows, maxHeadRows(this.shape.vocabSize, maxRows)),
      taps: call.taps ?? false,
    };
  }

  /** Name of an entry of the weight table, for printed plans. */
  weightName(index: number): string {
    return this.#o.weights.name(index);
  }

  stateUsage(): { readonly allocated: number; readonly used: number } {
    return this.store.usage();
  }

  async close(): Promise<void> {
    await this.#runner.close();
    this.#plans.close();
    this.store.close();
  }

  #forward(
    batch: readonly ForwardRequest[],
    { phase, signal }: ForwardOptions,
    { group = 'trunk', whole }: ForwardVariant,
    taps: boolean,
    collect: (call: CallContext) => void,
  ): Promise<PagedState[]> {
    const lowering = this.#o.lowering(phase);
    const requests = batch.map(({ state, tokens, logits }) => ({
      state: state as PagedState,
      tokens: Int32Array.from(tokens),
      outRows: logits,
    }));
    return this.#runner.run(requests, {
      signal,
      collect,
      whole,
      plan: (rows, outRows) => this.plan({ group, lowering, rows, outRows, taps }),
      fillInputs: (call) => this.#o.fillInputs?.(call, signal),
    });
  }
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
