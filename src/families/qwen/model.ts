/**
 * A loaded Qwen model: the plan cache, the state store and the runner under the `LanguageModel` contract.
 *
 * Invariants: the phase of a forward picks the lowering class, which is part of the plan key; the gathered n-gram rows of
 * a call depend on token ids alone; rows and states are the same whatever the batch, the chunking and the thread count.
 */
import { PlumblineError } from '../../errors.js';
import type { Backend } from '../../engine/backends/backend.js';
import type {
  FamilyLaws,
  ForwardOptions,
  ForwardRequest,
  ForwardResult,
  LanguageModel,
  SequenceState,
} from '../../engine/model.js';
import type { ActivationLaw } from '../../engine/plan/builder.js';
import { PlanCache, type CachedPlan, type PlanKey } from '../../engine/plan/cache.js';
import type { GateLowering, GatePolicy } from '../../engine/plan/phase.js';
import type { WeightTable } from '../../engine/plan/weight-table.js';
import { copyRows, Runner, type CallContext, type RunOptions } from '../../engine/runner.js';
import { StateStore, stateLimits, type PagedState } from '../../engine/state/sequence-state.js';
import type { RowTable } from '../../weights/gather.js';
import type { BoundQwen } from './bind.js';
import type { QwenConfig } from './config-types.js';
import { phaseLowering, qwenLaws } from './laws.js';
import type { NgramHash } from './ngram.js';
import { buildQwenPlan, HEAD_INPUT, LOGITS, RESIDUAL, tapName } from './plan-builder.js';
import { pleInput } from './plan-residual.js';
import { qwenStateLayout, type QwenStateLayout } from './state-layout.js';

/** The hash and the table of one PLE layer. */
export interface PleTable {
  readonly layer: number;
  readonly hash: NgramHash;
  readonly table: RowTable;
}

export interface QwenModelOptions {
  readonly id: string;
  readonly config: QwenConfig;
  readonly backend: Backend;
  readonly law: ActivationLaw;
  readonly gatePolicy: GatePolicy;
  readonly bound: BoundQwen;
  readonly weights: WeightTable;
  readonly pleTables: readonly PleTable[];
  readonly contextLength: number;
  /** Most rows of one plan. */
  readonly maxRows: number;
  /** Most sequences that hold a state at a time. */
  readonly sequences: number;
  /** Workspace of the largest plan. */
  readonly workspaceWords: number;
  /** What else to give back on close. */
  readonly release: () => void;
}

/** Residual before every layer (R rows each), then the head's input (M rows), for verification. */
export interface Taps {
  readonly layers: readonly Float32Array[];
  readonly headInput: Float32Array;
}

const HEAD_BYTES = 64 << 20;

/** Most rows that may go through the head at once: their logits stay within 64 MiB, 32 rows in any case. */
export function maxHeadRows(vocabSize: number, maxRows: number): number {
  return Math.min(maxRows, Math.max(32, Math.floor(HEAD_BYTES / (4 * vocabSize))));
}

export class QwenModel implements LanguageModel {
  readonly family: string;
  readonly id: string;
  readonly vocabSize: number;
  readonly contextLength: number;
  readonly laws: FamilyLaws;
  readonly activationLaw: string;
  readonly gatePolicy: GatePolicy;
  readonly config: QwenConfig;
  readonly #o: QwenModelOptions;
  readonly #state: QwenStateLayout;
  readonly #store: StateStore;
  readonly #plans: PlanCache;
  readonly #runner: Runner;

  constructor(options: QwenModelOptions) {
    const { config, backend, law } = options;
    this.#o = options;
    this.family = config.family;
    this.id = options.id;
    this.vocabSize = config.vocabSize;
    this.contextLength = options.contextLength;
    this.laws = qwenLaws(config.family);
    this.activationLaw = law.name;
    this.gatePolicy = options.gatePolicy;
    this.config = config;
    this.#state = qwenStateLayout(config, law);
    const limits = stateLimits(this.#state.layout, options.sequences, options.contextLength);
    this.#store = new StateStore(backend, this.#state.layout, limits);
    this.#plans = new PlanCache(backend, (key) => this.buildPlan(key));
    this.#runner = new Runner({
      backend,
      store: this.#store,
      maxRows: options.maxRows,
      maxOutRows: maxHeadRows(config.vocabSize, options.maxRows),
      workspaceWords: options.workspaceWords,
    });
  }

  /** Elements of the residual of one token: all streams. */
  get hiddenWidth(): number {
    const { config } = this;
    return (config.family === 'qwen4_exp' ? config.hyperConnections.streams : 1) * config.hiddenSize;
  }

  newState(): SequenceState {
    return this.#store.empty();
  }

  async forward(batch: readonly ForwardRequest[], options: ForwardOptions): Promise<ForwardResult[]> {
    const { hiddenWidth } = this;
    const rows = batch.map(() => ({ logits: [] as Float32Array[], hidden: [] as Float32Array[] }));
    const states = await this.#run(batch, options, false, (call) => {
      for (const { index, row, tokens, outRow, outRows } of call.parts) {
        rows[index]!.logits.push(...copyRows(call.buffer(LOGITS), this.vocabSize, outRow, outRows));
        const wanted = batch[index]!.hidden ?? 'none';
        if (wanted === 'none') continue;
        const hidden = copyRows(call.buffer(RESIDUAL), hiddenWidth, row, tokens.length);
        rows[index]!.hidden.push(...hidden);
      }
    });
    return states.map((state, index) => {
      const { logits, hidden } = rows[index]!;
      const wanted = batch[index]!.hidden ?? 'none';
      if (wanted === 'none') return { state, logits };
      return { state, logits, hidden: wanted === 'last' ? hidden.slice(-1) : hidden };
    });
  }

  /** A forward of one sequence, all rows, that also returns the residual before every layer. For verification. */
  async forwardWithTaps(
    request: Omit<ForwardRequest, 'logits'>,
    options: ForwardOptions,
  ): Promise<{ readonly result: ForwardResult; readonly taps: Taps }> {
    const { layerCount, hiddenSize } = this.config;
    const layers: Float32Array[][] = Array.from({ length: layerCount }, () => []);
    const headInput: Float32Array[] = [];
    const logits: Float32Array[] = [];
    const [state] = await this.#run([{ ...request, logits: 'all' }], options, true, (call) => {
      const rows = call.parts[0]!.tokens.length;
      layers.forEach((list, layer) => list.push(...copyRows(call.buffer(tapName(layer)), this.hiddenWidth, 0, rows)));
      headInput.push(...copyRows(call.buffer(HEAD_INPUT), hiddenSize, 0, rows));
      logits.push(...copyRows(call.buffer(LOGITS), this.vocabSize, 0, rows));
    });
    return {
      result: { state: state!, logits },
      taps: { layers: layers.map(joinRows), headInput: joinRows(headInput) },
    };
  }

  /** The plan of a key, for printing. */
  buildPlan(key: PlanKey): CachedPlan['plan'] {
    const { config, bound, law, gatePolicy, weights } = this.#o;
    return buildQwenPlan(
      {
        config,
        bound,
        state: this.#state,
        plan: {
          law,
          pageTokens: this.#state.layout.pageTokens,
          rowCapacity: key.rowCapacity,
          outCapacity: key.outCapacity,
          standaloneTable: bound.standaloneTable,
          fusedTable: bound.fusedTable,
        },
        lowering: key.lowering,
        gatePolicy,
        taps: key.taps,
      },
      weights,
    );
  }

  planKey(lowering: GateLowering, rowCapacity: number, outCapacity: number, taps: boolean): PlanKey {
    const { law, backend, gatePolicy } = this.#o;
    return {
      group: 'trunk',
      lowering,
      gatePolicy,
      law: law.name,
      floatLaw: backend.floatLaw,
      rowCapacity,
      outCapacity,
      taps,
    };
  }

  /** Bytes of sequence states: reserved and in use. */
  stateUsage(): { readonly allocated: number; readonly used: number } {
    return this.#store.usage();
  }

  async close(): Promise<void> {
    await this.#runner.close();
    this.#plans.close();
    this.#store.close();
    this.#o.weights.free();
    this.#o.release();
  }

  #run(
    batch: readonly ForwardRequest[],
    { phase, signal }: ForwardOptions,
    taps: boolean,
    collect: RunOptions['collect'],
  ): Promise<PagedState[]> {
    for (const { state, tokens } of batch) this.#checkTokens(state, tokens);
    const lowering = phaseLowering(phase);
    const outLimit = maxHeadRows(this.vocabSize, this.#o.maxRows);
    const requests = batch.map(({ state, tokens, logits }) => ({
      state: state as PagedState,
      tokens: Int32Array.from(tokens),
      outRows: logits,
    }));
    return this.#runner.run(requests, {
      signal,
      collect,
      plan: (rows, outRows) =>
        this.#plans.get(this.planKey(lowering, bucket(rows, this.#o.maxRows), bucket(outRows, outLimit), taps)),
      fillInputs: (call) => this.#gatherNgrams(call, signal),
    });
  }

  #checkTokens(state: SequenceState, tokens: readonly number[] | Int32Array): void {
    if (tokens.length === 0) throw new PlumblineError('internal_error', 'a forward was asked for no tokens');
    if (state.length + tokens.length > this.contextLength) {
      throw new PlumblineError(
        'context_length_exceeded',
        `${state.length} + ${tokens.length} tokens pass the context of ${this.contextLength}`,
      );
    }
    for (const token of tokens) {
      if (!Number.isInteger(token) || token < 0 || token >= this.vocabSize) {
        throw new PlumblineError('internal_error', `token id ${token} is outside the vocabulary of ${this.vocabSize}`);
      }
    }
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
