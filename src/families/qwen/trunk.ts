/**
 * The trunk of a Qwen model at work: the paged trunk of every family, the gathered n-gram rows that its plans are fed, and
 * windows: revocable forwards, and the commit of partly kept ones.
 *
 * Invariants: the gathered n-gram rows of a call depend on token ids alone; a commit leaves what a forward of the kept
 * tokens alone would have left.
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
import type { PlanKey } from '../../engine/plan/cache.js';
import type { GatePolicy } from '../../engine/plan/phase.js';
import type { WeightTable } from '../../engine/plan/weight-table.js';
import type { CallContext } from '../../engine/runner.js';
import type { PagedState, StateLimits } from '../../engine/state/sequence-state.js';
import type { RowTable } from '../../weights/gather.js';
import { PagedTrunk } from '../paged-trunk.js';
import type { BoundQwen } from './bind.js';
import type { QwenConfig } from './config-types.js';
import { phaseLowering } from './laws.js';
import type { NgramHash } from './ngram.js';
import { pleInput } from './plan-buffers.js';
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

/** Most tokens of a revocable forward, and of any in a fused phase: a draft window, or a copied block with its primary. */
export const MAX_WINDOW = 25;

/** What the recurrences of a window were fed: its rows of every stash buffer, one buffer after the other. */
class StashedWindow implements VerifiedWindow {
  constructor(
    readonly tokens: number,
    readonly rows: Float32Array,
  ) {}
}

/** Groups of plan keys beside `trunk`. */
const REVOCABLE = 'revocable';
const COMMIT = 'commit';

export class QwenTrunk extends PagedTrunk {
  readonly #stashed: ReturnType<typeof stashBuffers>;

  constructor(options: TrunkOptions) {
    const { config, state } = options;
    const streams = config.family === 'qwen4_exp' ? config.hyperConnections.streams : 1;
    super({
      ...options,
      layout: state.layout,
      shape: {
        vocabSize: config.vocabSize,
        hiddenSize: config.hiddenSize,
        hiddenWidth: streams * config.hiddenSize,
        layerCount: config.layerCount,
      },
      lowering: phaseLowering,
      build: (key) => buildPlan(options, key),
      fillInputs: (call, signal) => gatherNgrams(options.pleTables, call, signal),
    });
    this.#stashed = stashBuffers(config);
  }

  override async forward(batch: readonly ForwardRequest[], options: ForwardOptions): Promise<ForwardResult[]> {
    const revocable = batch.some((request) => request.revocable === true);
    const window = revocable || phaseLowering(options.phase) === 'fused';
    if (window && batch.some(({ tokens }) => tokens.length > MAX_WINDOW)) {
      throw new PlumblineError('internal_error', `a window has at most ${MAX_WINDOW} tokens`);
    }
    if (!revocable) return super.forward(batch, options);
    const windows = new Map<number, VerifiedWindow>();
    const results = await super.forward(batch, options, {
      group: REVOCABLE,
      whole: true,
      collect: (call) => {
        for (const { index, row, tokens } of call.parts) {
          if (batch[index]!.revocable === true) windows.set(index, this.#stash(call, row, tokens.length));
        }
      },
    });
    return results.map((result, index) => ({ ...result, window: windows.get(index) }));
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
    return this.run(requests, {
      signal,
      whole: true,
      successor: (index) => {
        const { before, after, keep } = batch[index]!;
        return this.store.truncate(after as PagedState, before.length + keep);
      },
      plan: (rows) => this.plan({ group: COMMIT, lowering: 'standalone', rows, outRows: 0 }),
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

  #stash(call: CallContext, row: number, count: number): StashedWindow {
    const rows = new Float32Array(count * this.#stashed.reduce((sum, { width }) => sum + width, 0));
    let at = 0;
    for (const { name, width } of this.#stashed) {
      rows.set(call.buffer(name).subarray(row * width, (row + count) * width), at);
      at += count * width;
    }
    return new StashedWindow(count, rows);
  }
}

function buildPlan({ config, bound, weights, state, plan }: TrunkOptions, key: PlanKey): Plan {
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
  return key.group === COMMIT ? buildCommitPlan(options, weights) : buildQwenPlan(options, weights);
}

async function gatherNgrams(
  tables: readonly PleTable[],
  call: CallContext,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (const { layer, hash, table } of tables) {
    const out = call.buffer(pleInput(layer));
    const width = hash.heads * table.width;
    for (const { before, tokens, row } of call.parts) {
      const ids = hash.rows(tokens, ngramHistory(before, hash.emptyHistory()));
      await table.gather(ids, out.subarray(row * width, (row + tokens.length) * width), signal);
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
