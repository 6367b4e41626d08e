/**
 * The draft head at work: its plans, its own sequence states, and forwards over them.
 *
 * Invariants: row t of a head state pairs the hidden stream of token t with token t + 1, so its length is the number of
 * such pairs; all gates are standalone; the head never touches a trunk state.
 */
import { PlumblineError } from '../../errors.js';
import type { Backend } from '../../engine/backends/backend.js';
import type { DraftRequest, DraftResult, DraftStep } from '../../engine/model.js';
import type { Plan, PlanOptions } from '../../engine/plan/builder.js';
import { PlanCache, type PlanKey } from '../../engine/plan/cache.js';
import type { WeightTable } from '../../engine/plan/weight-table.js';
import { copyRows, Runner, type CallContext, type RunRequest } from '../../engine/runner.js';
import { PagedStateCodec } from '../../engine/state/codec.js';
import { StateStore, type PagedState, type StateLimits } from '../../engine/state/sequence-state.js';
import type { StateLayout } from '../../engine/state/layout.js';
import type { BoundQwen } from './bind.js';
import type { Qwen4Config } from './config-types.js';
import {
  buildDraftPlan,
  draftIds,
  draftLogits,
  draftStream,
  draftWorkspaceWords,
  HIDDEN_INPUT,
  type DraftLink,
  type DraftPlanOptions,
} from './plan-mtp.js';
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
/** Most rows of a chain. */
export const MOST_LINKS = 3;
const FIRST_ROW: DraftLink = { link: 0, links: 1 };

/** What a link of a chain made of one sequence. */
interface DraftRow {
  readonly logits: Float32Array;
  readonly hidden: Float32Array;
  /** What it went on with; the first was told. */
  readonly token?: number | undefined;
}

export class DraftHead {
  readonly #o: DraftHeadOptions;
  readonly #store: StateStore;
  readonly #plans: PlanCache;
  readonly #runner: Runner;
  readonly codec: PagedStateCodec;
  readonly #width: number;
  /** What the plans of a key's group put out. */
  readonly #outputs = new Map<string, 'cache' | DraftLink>();

  constructor(options: DraftHeadOptions) {
    this.#o = options;
    const { backend, config, maxRows } = options;
    this.#width = config.hyperConnections.streams * config.hiddenSize;
    this.#store = new StateStore(backend, options.layout, options.limits);
    this.codec = new PagedStateCodec(this.#store);
    this.#plans = new PlanCache(backend, (key) =>
      buildDraftPlan(
        this.#planOptions(this.#outputs.get(key.group)!, key.rowCapacity, key.outCapacity),
        options.weights,
      ),
    );
    this.#runner = new Runner({
      backend,
      store: this.#store,
      maxRows,
      maxOutRows: MAX_OUT_ROWS,
      workspaceWords: draftWorkspaceWords(this.#planOptions('cache', maxRows, MAX_OUT_ROWS)),
    });
  }

  newState(): PagedState {
    return this.#store.empty();
  }

  async forward(batch: readonly DraftRequest[], signal: AbortSignal | undefined): Promise<DraftResult[]> {
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
    const rows = batch.reduce((sum, { tokens }) => sum + tokens.length, 0);
    const fits = rows <= this.#o.maxRows && batch.length <= MAX_OUT_ROWS;
    return output === 'last' && fits ? this.#chain(batch, signal) : this.#single(batch, output, signal);
  }

  /** One row a sequence at most, the batch cut into calls as it must be. */
  async #single(
    batch: readonly DraftRequest[],
    output: 'none' | 'last',
    signal: AbortSignal | undefined,
  ): Promise<DraftResult[]> {
    const rows = batch.map((): Partial<DraftRow> => ({}));
    const states = await this.#runner.run(batch.map(runRequest), {
      signal,
      plan: (rowCount, outRows) =>
        this.#plans.get(this.#key(output === 'none' ? 'cache' : FIRST_ROW, rowCount, outRows)),
      fillInputs: (call) => this.#fillHidden(batch, call),
      collect: (call) => {
        for (const part of call.parts) if (part.outRows > 0) rows[part.index] = this.#rowOf(call, part.outRow);
      },
    });
    return states.map((state, index) => ({ state, ...rows[index] }));
  }

  /** All rows of a batch that fits into one call, the sequences that want most of them in front. */
  async #chain(batch: readonly DraftRequest[], signal: AbortSignal | undefined): Promise<DraftResult[]> {
    const wanted = batch.map(({ drafts = 1 }) => Math.min(drafts, MOST_LINKS));
    const order = batch.map((_, index) => index).sort((a, b) => wanted[b]! - wanted[a]!);
    const requests = order.map((index) => batch[index]!);
    const links = wanted[order[0]!]!;
    const outCapacity = powerOfTwo(batch.length);
    const rows = Array.from({ length: links }, (): DraftRow[] => []);
    const states = await this.#runner.chain(requests.map(runRequest), {
      signal,
      links: rows.map((_, link) => ({
        sequences: wanted.filter((count) => count > link).length,
        plan: (rowCount) =>
          this.#plans.get(this.#key({ link, links }, link === 0 ? rowCount : outCapacity, outCapacity)),
      })),
      fillInputs: (call) => this.#fillHidden(requests, call),
      collect: (call) => {
        for (const { outRow } of call.parts) rows[call.link]!.push(this.#rowOf(call, outRow));
      },
    });
    const results: DraftResult[] = [];
    order.forEach((index, place) => {
      const further = states.slice(1).flatMap((made, i): DraftStep[] => {
        const [state, row] = [made[place], rows[i + 1]![place]];
        if (!state || row?.token === undefined) return [];
        this.#store.nameLast(state, row.token);
        return [{ state, token: row.token, logits: row.logits, hidden: row.hidden }];
      });
      const { logits, hidden } = rows[0]![place]!;
      results[index] = { state: states[0]![place]!, logits, hidden, further };
    });
    return results;
  }

  #fillHidden(batch: readonly DraftRequest[], call: CallContext): void {
    const input = call.buffer(HIDDEN_INPUT);
    const width = this.#width;
    for (const { index, from, tokens, row } of call.parts) {
      for (let i = 0; i < tokens.length; i++) input.set(batch[index]!.hidden[from + i]!, (row + i) * width);
    }
  }

  #rowOf(call: CallContext, outRow: number): DraftRow {
    const { link } = call;
    return {
      logits: copyRows(call.buffer(draftLogits(link)), this.#o.config.vocabSize, outRow, 1)[0]!,
      hidden: copyRows(call.buffer(draftStream(link)), this.#width, outRow, 1)[0]!,
      token: link === 0 ? undefined : bitsOf(call.buffer(draftIds(link)))[outRow]!,
    };
  }

  /** The plans of one row, for printing and for tests. */
  plans(): Plan[] {
    const outputs = ['cache', FIRST_ROW, { link: 1, links: 2 }] as const;
    return outputs.map((output) => this.#plans.get(this.#key(output, 1, 1)).plan);
  }

  stateUsage(): { readonly allocated: number; readonly used: number } {
    return this.#store.usage();
  }

  async close(): Promise<void> {
    await this.#runner.close();
    this.#plans.close();
    this.#store.close();
  }

  #key(output: 'cache' | DraftLink, rows: number, outRows: number): PlanKey {
    const group = output === 'cache' ? 'draft-cache' : `draft-${output.link}-of-${output.links}`;
    this.#outputs.set(group, output);
    return {
      ...this.#o.key,
      group,
      lowering: 'standalone',
      rowCapacity: Math.min(powerOfTwo(rows), this.#o.maxRows),
      outCapacity: Math.min(powerOfTwo(outRows), MAX_OUT_ROWS),
      taps: false,
    };
  }

  #planOptions(output: 'cache' | DraftLink, rowCapacity: number, outCapacity: number): DraftPlanOptions {
    const { config, bound, trunkState, head, plan, key } = this.#o;
    return {
      config,
      bound,
      state: trunkState,
      head,
      output,
      plan: { ...plan, rowCapacity, outCapacity },
      lowering: 'standalone',
      gatePolicy: key.gatePolicy,
      taps: false,
    };
  }
}

function runRequest({ state, tokens, output }: DraftRequest): RunRequest {
  return { state: state as PagedState, tokens: Int32Array.from(tokens), outRows: output };
}

function bitsOf(words: Float32Array): Int32Array {
  return new Int32Array(words.buffer, words.byteOffset, words.length);
}

function powerOfTwo(least: number): number {
  let size = 1;
  while (size < least) size *= 2;
  return size;
}
