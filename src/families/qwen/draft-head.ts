/**
 * The draft head at work: its plans, its own sequence states, and forwards over them.
 *
 * Invariants: row t of a head state pairs the hidden stream of token t with token t + 1, so its length is the number of
 * such pairs; all gates are standalone; the head never touches a trunk state.
 */
import { PlumblineError } from '../../errors.js';
import type { Backend } from '../../engine/backends/backend.js';
import type { DraftRequest, DraftResult } from '../../engine/model.js';
import type { Plan, PlanOptions } from '../../engine/plan/builder.js';
import { PlanCache, type PlanKey } from '../../engine/plan/cache.js';
import type { WeightTable } from '../../engine/plan/weight-table.js';
import { copyRows, Runner, type CallContext } from '../../engine/runner.js';
import { StateStore, type PagedState, type StateLimits } from '../../engine/state/sequence-state.js';
import type { StateLayout } from '../../engine/state/layout.js';
import { LOGITS } from '../plan-buffers.js';
import type { BoundQwen } from './bind.js';
import type { Qwen4Config } from './config-types.js';
import { buildDraftPlan, draftWorkspaceWords, DRAFT_STREAM, HIDDEN_INPUT, type DraftPlanOptions } from './plan-mtp.js';
import type { AttentionOffsets, QwenStateLayout } from './state-layout.js';

export interface DraftHeadOptions {
  readonly config: Qwen4Config;
  readonly backend: Backend;
  readonly bound: BoundQwen;
  readonly weights: WeightTable;
  readonly trunkState: QwenStateLayout;
  readonly layout: StateLayout;
  readonly head: AttentionOffsets;
  readonly limits: StateLimits;
  readonly maxRows: number;
  /** Plan options but for the capacities. */
  readonly plan: Omit<PlanOptions, 'rowCapacity' | 'outCapacity'>;
  /** The parts of the plan key that the model fixes. */
  readonly key: Pick<PlanKey, 'gatePolicy' | 'law' | 'floatLaw'>;
}

/** Most sequences whose last rows go through the head's output map in one call. */
const MAX_OUT_ROWS = 32;

export class DraftHead {
  readonly #o: DraftHeadOptions;
  readonly #store: StateStore;
  readonly #plans: PlanCache;
  readonly #runner: Runner;

  constructor(options: DraftHeadOptions) {
    this.#o = options;
    const { backend, maxRows } = options;
    this.#store = new StateStore(backend, options.layout, options.limits);
    this.#plans = new PlanCache(backend, (key) =>
      buildDraftPlan(this.#planOptions(key.group === 'draft-row' ? 'row' : 'cache', key.rowCapacity), options.weights),
    );
    this.#runner = new Runner({
      backend,
      store: this.#store,
      maxRows,
      maxOutRows: MAX_OUT_ROWS,
      workspaceWords: draftWorkspaceWords(this.#planOptions('cache', maxRows)),
    });
  }

  newState(): PagedState {
    return this.#store.empty();
  }

  async forward(batch: readonly DraftRequest[], signal: AbortSignal | undefined): Promise<DraftResult[]> {
    const { hyperConnections, hiddenSize, vocabSize } = this.#o.config;
    const width = hyperConnections.streams * hiddenSize;
    const [output] = new Set(batch.map((request) => request.output));
    if (
      !output ||
      batch.some((request) => request.output !== output || request.hidden.length !== request.tokens.length)
    ) {
      throw new PlumblineError(
        'internal_error',
        'a draft batch needs one kind of output, and a hidden row for every token',
      );
    }
    const rows = batch.map((): { logits?: Float32Array; hidden?: Float32Array } => ({}));
    const requests = batch.map(({ state, tokens }) => ({
      state: state as PagedState,
      tokens: Int32Array.from(tokens),
      outRows: output,
    }));
    const states = await this.#runner.run(requests, {
      signal,
      plan: (rowCount) => this.#plans.get(this.#key(output, rowCount)),
      fillInputs: (call: CallContext) => {
        const input = call.buffer(HIDDEN_INPUT);
        for (const { index, from, tokens, row } of call.parts) {
          for (let i = 0; i < tokens.length; i++) input.set(batch[index]!.hidden[from + i]!, (row + i) * width);
        }
      },
      collect: (call) => {
        for (const { index, row, tokens, outRow, outRows } of call.parts) {
          if (outRows === 0) continue;
          rows[index]!.logits = copyRows(call.buffer(LOGITS), vocabSize, outRow, 1)[0]!;
          rows[index]!.hidden = copyRows(call.buffer(DRAFT_STREAM), width, row + tokens.length - 1, 1)[0]!;
        }
      },
    });
    return states.map((state, index) => ({ state, ...rows[index] }));
  }

  /** The plans of one row, for printing and for tests. */
  plans(): Plan[] {
    return (['none', 'last'] as const).map((output) => this.#plans.get(this.#key(output, 1)).plan);
  }

  stateUsage(): { readonly allocated: number; readonly used: number } {
    return this.#store.usage();
  }

  async close(): Promise<void> {
    await this.#runner.close();
    this.#plans.close();
    this.#store.close();
  }

  #key(output: 'none' | 'last', rows: number): PlanKey {
    let rowCapacity = 1;
    while (rowCapacity < rows) rowCapacity *= 2;
    return {
      ...this.#o.key,
      group: output === 'last' ? 'draft-row' : 'draft-cache',
      lowering: 'standalone',
      rowCapacity: Math.min(rowCapacity, this.#o.maxRows),
      outCapacity: Math.min(MAX_OUT_ROWS, rowCapacity),
      taps: false,
    };
  }

  #planOptions(output: 'cache' | 'row', rowCapacity: number): DraftPlanOptions {
    const { config, bound, trunkState, head, plan, key } = this.#o;
    return {
      config,
      bound,
      state: trunkState,
      head,
      output,
      plan: { ...plan, rowCapacity, outCapacity: Math.min(MAX_OUT_ROWS, rowCapacity) },
      lowering: 'standalone',
      gatePolicy: key.gatePolicy,
      taps: false,
    };
  }
}
