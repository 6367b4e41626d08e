/**
 * The autoregressive loop of one sequence, as a machine that says which forward it needs next and takes its result: all
 * prompt tokens but the last in chunks without logits, the last one with one row (phase `prefill`), then token by token
 * (phase `decode`): row check, id, append, stop or length test, forward.
 *
 * Invariants: the machine holds exactly one reference, to its newest state; `accept` gives the older one back; `release`
 * gives the last one back, once, on every path. An id comes from the sampler alone, whose law judges its row. Who runs the
 * forwards, alone or among other sequences, cannot change an id.
 */
import { PlumblineError } from '../errors.js';
import type { ForwardResult, LanguageModel, SequenceState } from '../engine/model.js';
import type { RequestSampler } from '../sample/sampler.js';
import type { TokenId } from '../sample/token-id.js';
import { promptBoundary, startOf, tokensOf, type BoundaryOptions, type SequenceStart } from './boundary.js';
import { DEFAULT_PREFILL_CHUNK, nextPromptChunk } from './prompt-chunk.js';
import {
  turnEnd,
  type SpeculationReport,
  type Step,
  type TokenSequence,
  type Work,
  type WorkResult,
} from './sequence.js';

export interface AutoregressiveOptions extends BoundaryOptions {
  /** At least one id. The first ones are already in the state that the sequence starts from, not all. */
  readonly promptTokens: readonly number[];
  /** At least 1. */
  readonly maxTokens: number;
  /** Ids that end the turn; a stop token is the last token of the sequence. */
  readonly stopTokenIds: readonly number[];
  readonly sampler: RequestSampler;
  /** Most prompt tokens in one forward, at least 1; default {@link DEFAULT_PREFILL_CHUNK}. */
  readonly prefillChunk?: number | undefined;
  /**
   * One more forward, of the last token, when the turn has ended: only then does the state cover every token and may be
   * kept for the next turn. Its row is judged as the law says, and decides nothing. Default false.
   */
  readonly closingForward?: boolean | undefined;
  /** Why a request that asked for speculation is decoded plainly; for the report. */
  readonly speculationDeclined?: string | undefined;
}

type Stage =
  /** The prompt is not yet forwarded. */
  | { readonly at: 'prompt' }
  /** `last` is emitted and not yet forwarded. */
  | { readonly at: 'decode'; readonly last: TokenId }
  /** The turn has ended; with `last` one closing forward is due. */
  | { readonly at: 'ended'; readonly last?: TokenId | undefined };

export class AutoregressiveSequence implements TokenSequence {
  /** Prompt tokens that the given state held already. */
  readonly cachedTokens: number;
  readonly #options: AutoregressiveOptions;
  readonly #stopTokenIds: ReadonlySet<number>;
  #state: SequenceState | undefined;
  #stage: Stage = { at: 'prompt' };
  readonly #completion: number[] = [];

  /** @param start the sequence takes over the caller's reference, also when this throws. */
  constructor(start: SequenceState | SequenceStart, options: AutoregressiveOptions) {
    const state = startOf(start).trunk;
    this.#state = state;
    this.cachedTokens = state.length;
    this.#options = options;
    this.#stopTokenIds = new Set(options.stopTokenIds);
    const { promptTokens, maxTokens, prefillChunk = DEFAULT_PREFILL_CHUNK } = options;
    const missing = promptTokens.length - this.cachedTokens;
    if (missing >= 1 && maxTokens >= 1 && prefillChunk >= 1) return;
    this.release();
    throw new PlumblineError(
      'internal_error',
      `a sequence has ${missing} prompt tokens to forward, ${maxTokens} to make and chunks of ${prefillChunk}; each must be at least 1`,
    );
  }

  /** Completion tokens so far, a stop token included. */
  get completionTokens(): number {
    return this.#completion.length;
  }

  get speculation(): SpeculationReport | undefined {
    const { speculationDeclined: reason } = this.#options;
    return reason === undefined ? undefined : { mode: 'off', reason };
  }

  /** The next forward, or undefined when there is nothing more to do. Asking twice gives the same. */
  get work(): Extract<Work, { kind: 'forward' }> | undefined {
    const state = this.#state;
    if (state === undefined) return undefined;
    const stage = this.#stage;
    if (stage.at === 'prompt') {
      const { promptTokens, prefillChunk, stablePrefix } = this.#options;
      const request = nextPromptChunk(state, promptTokens, prefillChunk, stablePrefix);
      return { kind: 'forward', request, phase: 'prefill' };
    }
    if (stage.last === undefined) return undefined;
    return { kind: 'forward', request: { state, tokens: [stage.last], logits: 'last' }, phase: 'decode' };
  }

  take(result: WorkResult): readonly Step[] {
    if (result.kind !== 'forward') {
      throw new PlumblineError('internal_error', `a plain sequence was given the result of a ${result.kind}`);
    }
    return [this.accept(result.result)];
  }

  /**
   * Takes the result of the current work and the reference in it.
   * @throws NonFiniteLogitsError for an invalid row: no token was made, and the sequence can only be released.
   */
  accept(result: ForwardResult): Step {
    this.#replaceState(result.state);
    const { promptTokens, onBoundary } = this.#options;
    const processed = result.state.length;
    const stage = this.#stage;
    if (stage.at === 'prompt' && processed < promptTokens.length) {
      onBoundary?.(promptBoundary(this.#options, { trunk: result.state }));
      return { kind: 'prompt', processed, total: promptTokens.length };
    }
    const row = onlyRow(result);
    const step = this.#completion.length;
    if (stage.at === 'ended') {
      this.#options.sampler.check(row, { site: 'closing_forward', phase: 'decode', step });
      this.#stage = { at: 'ended' };
      onBoundary?.({ kind: 'turn', tokens: tokensOf(promptTokens, this.#completion), trunk: result.state });
      return { kind: 'closed' };
    }
    const token = this.#options.sampler.next(
      row,
      stage.at === 'prompt'
        ? { site: 'prefill_frontier', phase: 'prefill', step }
        : { site: 'ar_step', phase: 'decode', step },
    );
    this.#completion.push(token.tokenId);
    const end = turnEnd(this.#completion, this.#stopTokenIds, this.#options.maxTokens);
    this.#stage = { at: 'decode', last: token.tokenId };
    if (end !== undefined) this.stop();
    return { kind: 'token', token, end };
  }

  /** Ends the turn behind the newest token: a stop string, or a caller that needs no more. */
  stop(): void {
    if (this.#stage.at === 'ended') return;
    const last = this.#stage.at === 'decode' ? this.#stage.last : undefined;
    this.#stage = this.#options.closingForward === true ? { at: 'ended', last } : { at: 'ended' };
  }

  /** Hands the reference to the newest state to the caller; the sequence is over. */
  takeState(): SequenceState | undefined {
    const state = this.#state;
    this.#state = undefined;
    return state;
  }

  /** Gives the reference back. May be called at any time but while a forward of this sequence runs, and again. */
  release(): void {
    this.takeState()?.release();
  }

  #replaceState(newer: SequenceState): void {
    const older = this.#state;
    if (older === undefined) {
      newer.release();
      throw new PlumblineError('internal_error', 'a result came for a sequence that was released');
    }
    this.#state = newer;
    older.release();
  }
}

function onlyRow({ logits }: ForwardResult): Float32Array {
  const [row] = logits;
  if (row === undefined || logits.length !== 1) {
    throw new PlumblineError(
      'internal_error',
      `a forward that was asked for one row of logits returned ${logits.length}`,
    );
  }
  return row;
}

export interface GenerateOptions extends AutoregressiveOptions {
  /** Checked before every forward, and stops the running one. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Runs one sequence alone: every step, in order. Ending the iteration early ends the turn.
 * @param state the generator takes over the caller's reference when it is first asked; default: the empty state.
 * @throws NonFiniteLogitsError, `request_cancelled`, and what the model's forward throws.
 */
export async function* generate(
  model: LanguageModel,
  options: GenerateOptions,
  state?: SequenceState,
): AsyncGenerator<Step, void, undefined> {
  const { signal } = options;
  const sequence = new AutoregressiveSequence(state ?? model.newState(), options);
  try {
    for (let work = sequence.work; work !== undefined; work = sequence.work) {
      if (signal?.aborted === true) throw new PlumblineError('request_cancelled', 'the request was cancelled');
      const [result] = await model.forward([work.request], { phase: work.phase, signal });
      if (result === undefined)
        throw new PlumblineError('internal_error', 'a forward of one sequence returned no result');
      yield sequence.accept(result);
    }
  } finally {
    sequence.release();
  }
}
