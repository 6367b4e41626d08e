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
import { Runner, type CallContext } from '../../engine/runner.js';
import { StateStore, stateLimits, type PagedState } from '../../engine/state/sequence-state.js';
import type { RowTable } from '../../weights/gather.js';
import type { BoundQwen } from './bind.js';
import type { QwenConfig } from './config-types.js';
import { phaseLowering, qwenLaws } from './laws.js';
import type { NgramHash } from './ngram.js';
import { buildQwenPlan, HEAD_INPUT, LOGITS, tapName } from './plan-builder.js';
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
    const maxOutRows = maxHeadRows(config.vocabSize, options.maxRows);
    this.#runner = new Runner({
      backend,
      store: this.#store,
      maxRows: options.maxRows,
      maxOutRows,
      vocabSize: config.vocabSize,
      workspaceWords: options.workspaceWords,
      logits: LOGITS,
    });
  }

  newState(): SequenceState {
    return this.#store.empty();
  }

  forward(batch: readonly ForwardRequest[], options: ForwardOptions): Promise<ForwardResult[]> {
    return this.#forward(batch, options, false, undefined);
  }

  /** A forward of one sequence, all rows, that also returns the residual before every layer. For verification. */
  async forwardWithTaps(
    request: Omit<ForwardRequest, 'logits'>,
    options: ForwardOptions,
  ): Promise<{ readonly result: ForwardResult; readonly taps: Taps }> {
    const rows = request.tokens.length;
    const parts: Float32Array[][] = Array.from({ length: this.config.layerCount + 1 }, () => []);
    const inspect = (call: CallContext): void => {
      parts.forEach((list, layer) => {
        const name = layer < this.config.layerCount ? tapName(layer) : HEAD_INPUT;
        const buffer = call.buffer(name);
        list.push(buffer.slice(0, call.rows * this.#width(layer)));
      });
    };
    const [result] = await this.#forward([{ ...request, logits: 'all' }], options, true, inspect);
    const joined = parts.map((list, layer) => join(list, rows * this.#width(layer)));
    return { result: result!, taps: { layers: joined.slice(0, -1), headInput: joined[joined.length - 1]! } };
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

  #forward(
    batch: readonly ForwardRequest[],
    { phase, signal }: ForwardOptions,
    taps: boolean,
    inspect: ((call: CallContext) => void) | undefined,
  ): Promise<ForwardResult[]> {
    for (const { state, tokens } of batch) this.#checkTokens(state, tokens);
    const lowering = phaseLowering(phase);
    return this.#runner.forward(batch, {
      signal,
      inspect,
      plan: (rows, outRows) =>
        this.#plans.get(
          this.planKey(
            lowering,
            bucket(rows, this.#o.maxRows),
            bucket(outRows, maxHeadRows(this.vocabSize, this.#o.maxRows)),
            taps,
          ),
        ),
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
      let from = 0;
      for (const { before, tokens } of call.parts) {
        const ids = hash.rows(tokens, ngramHistory(before, hash.emptyHistory()));
        const width = hash.heads * table.width;
        await table.gather(ids, out.subarray(from * width, (from + tokens.length) * width), signal);
        from += tokens.length;
      }
    }
  }

  #width(layer: number): number {
    const { config } = this;
    const streams = config.family === 'qwen4_exp' && layer < config.layerCount ? config.hyperConnections.streams : 1;
    return streams * config.hiddenSize;
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

function join(parts: readonly Float32Array[], length: number): Float32Array {
  const whole = new Float32Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
