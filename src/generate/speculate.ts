/**
 * The speculative loop of one sequence: primary, drafts, one verify forward, acceptance, commit, and again.
 *
 * Between rounds the trunk holds n tokens, `hidden` is the stream of the last of them, and either `pending` is a token
 * already emitted but not yet forwarded, or `frontier` is the row that the next primary comes from. The draft head holds
 * the rows up to n - 1, row t pairing the stream of token t with token t + 1, but for the last few: those are `owed`, and
 * go into the head with the first draft of the next round. A partly accepted window is committed together with that
 * draft: the head does not need the trunk, so neither waits for the other. Behind a chunk of the prompt the head holds all
 * n - 1 rows, and none of a token that is still to be forwarded: so a state that is kept there does not depend on what
 * follows it.
 *
 * Invariants: states are values, so a refused draft leaves no trace; a round that raises has emitted nothing but a primary
 * from its own valid row; every row is checked before an id is made from it; all references are held in one place and
 * given back once.
 */
import { PlumblineError } from '../errors.js';
import type { DraftHead, ForwardResult, SequenceState } from '../engine/model.js';
import type { SampledToken } from '../sample/sampler.js';
import type { DraftChoice, SpeculativeSampler, TokenOrigin, WindowOutcome } from '../sample/speculation.js';
import type { TokenId } from '../sample/token-id.js';
import type { AutoregressiveOptions } from './autoregressive.js';
import { promptBoundary, requireWholeStart, startOf, tokensOf, type SequenceStart } from './boundary.js';
import type { ContextCopy } from './context-copy.js';
import type { DepthPolicy } from './depth-policy.js';
import { HeldStates } from './held-states.js';
import { OwedRows } from './owed-rows.js';
import {
  turnEnd,
  type SpeculationStats,
  type Step,
  type TokenSequence,
  type Work,
  type WorkResult,
} from './sequence.js';
import { RoundCounts } from './round-counts.js';
import { chooseDrafts } from './speculative-drafts.js';
import { draftOf, forwardOf, wrongKind, type DueCommit, type Round, type Stage } from './speculative-stage.js';
import { commitOf, workOf } from './speculative-work.js';

export interface SpeculativeOptions extends Omit<AutoregressiveOptions, 'sampler'> {
  readonly sampler: SpeculativeSampler;
  /** Absent: only copied blocks are proposed. */
  readonly head: DraftHead | undefined;
  readonly depthPolicy: DepthPolicy;
  /** Absent: nothing is copied from the prompt. */
  readonly contextCopy: ContextCopy | undefined;
  /** Most tokens of a verify forward. */
  readonly maxWindow: number;
}

export class SpeculativeSequence implements TokenSequence {
  readonly #o: SpeculativeOptions;
  readonly #stops: ReadonlySet<number>;
  readonly #held: HeldStates;
  readonly #counts: RoundCounts;
  #stage: Stage = { at: 'prompt' };
  readonly #completion: number[] = [];
  #pending: TokenId | undefined;
  #frontier: Float32Array | undefined;
  #hidden: Float32Array | undefined;
  /** The partly accepted window that the trunk is still to be committed to. */
  #due: DueCommit | undefined;
  readonly #owed = new OwedRows();
  #ended = false;

  /** @param begin the sequence takes over the caller's references, also when this throws. */
  constructor(begin: SequenceState | SequenceStart, options: SpeculativeOptions) {
    const start = startOf(begin);
    this.#o = options;
    this.#stops = new Set(options.stopTokenIds);
    this.#held = new HeldStates(start.trunk);
    this.#hidden = start.hidden;
    this.cachedTokens = start.trunk.length;
    this.#counts = new RoundCounts({
      mode: options.sampler.acceptance,
      depthPolicy: options.depthPolicy.name,
      maxDepth: options.depthPolicy.maxDepth,
    });
    try {
      if (start.head ?? options.head) this.#held.set('head', start.head ?? options.head!.newState());
      requireWholeStart(start, options);
    } catch (thrown) {
      this.release(); // no memory for the head's state, say: the trunk's goes back
      throw thrown;
    }
  }

  /** Prompt tokens that the given states held already. */
  readonly cachedTokens: number;

  get speculation(): SpeculationStats {
    return this.#counts.snapshot();
  }

  get work(): Work | undefined {
    if (this.#due && this.#committing) return { kind: 'commit', request: commitOf(this.#held, this.#due) };
    return workOf(this.#stage, {
      options: this.#o,
      held: this.#held,
      owed: this.#owed,
      due: this.#due,
      stream: () => this.#stream(),
    });
  }

  take(result: WorkResult): readonly Step[] {
    const stage = this.#stage;
    if (this.#due && this.#committing) {
      if (result.kind !== 'commit') throw wrongKind(result, 'commit');
      this.#takeCommitted(result.state);
      return stage.at === 'ended' ? this.#closed() : [];
    }
    switch (stage.at) {
      case 'prompt':
        return this.#takePrompt(forwardOf(result));
      case 'append-prompt':
        this.#held.replace('head', draftOf(result).state);
        return this.#promptBoundary();
      case 'draft':
        return this.#takeDraft(stage.round, result);
      case 'verify':
        return this.#takeVerified(stage.round, forwardOf(result));
      case 'append':
        this.#held.replace('head', draftOf(result).state);
        this.#owed.settle();
        return this.#nextRound();
      case 'closing-append':
        this.#held.replace('head', draftOf(result).state);
        this.#owed.settle();
        this.#stage = { at: 'closing-forward', last: stage.last };
        return [];
      case 'closing-forward':
        return this.#takeClosing(forwardOf(result));
      case 'ended':
        throw wrongKind(result, 'nothing');
    }
  }

  stop(): void {
    this.#ended = true;
    // A closing turn still needs the rows owed to the head; a round just begun it does not.
    const closing = this.#o.closingForward === true && this.#stage.at === 'append';
    if (!closing && this.#stage.at !== 'ended') this.#stage = this.#closingStage();
  }

  release(): void {
    this.#stage = { at: 'ended' };
    this.#due = undefined;
    this.#held.release();
  }

  /** Hands the references to the newest trunk and head states to the caller; the sequence is over. */
  takeStates(): { readonly trunk: SequenceState; readonly head: SequenceState | undefined } | undefined {
    const states = this.#held.takeFinal();
    this.release();
    return states;
  }

  // ---- prompt ----

  #takePrompt(result: ForwardResult): readonly Step[] {
    const { promptTokens, head } = this.#o;
    this.#held.replace('trunk', result.state);
    const processed = result.state.length;
    const total = promptTokens.length;
    // The pair of a chunk's last stream is made with the next chunk.
    const before = this.#hidden === undefined ? [] : [this.#hidden];
    const hidden = [...before, ...(result.hidden ?? []).slice(0, -1)];
    const tokens = promptTokens.slice(processed - hidden.length, processed);
    this.#hidden = result.hidden?.at(-1);
    if (processed < total) {
      if (head && tokens.length > 0) this.#stage = { at: 'append-prompt', tokens, hidden };
      else this.#promptBoundary();
      return [{ kind: 'prompt', processed, total }];
    }
    if (head) this.#owed.add({ tokens, hidden });
    this.#frontier = result.logits[0];
    return this.#nextRound();
  }

  #promptBoundary(): readonly Step[] {
    this.#stage = { at: 'prompt' };
    this.#o.onBoundary?.(promptBoundary(this.#o, this.#kept()));
    return [];
  }

  /** The committed states, borrowed, as they are kept: with nothing owed to the head. */
  #kept(): SequenceStart {
    const trunk = this.#held.get('trunk');
    return this.#o.head ? { trunk, head: this.#held.get('head'), hidden: this.#stream() } : { trunk };
  }

  // ---- rounds ----

  /** Emits a fresh primary when none is pending, and starts the next round. */
  #nextRound(): readonly Step[] {
    if (this.#ended) return this.#close();
    if (this.#pending !== undefined) {
      this.#startRound(this.#pending);
      return [];
    }
    const row = this.#frontier;
    if (!row) throw new PlumblineError('internal_error', 'a round has neither a pending token nor a row');
    const first = this.#completion.length === 0;
    const token = this.#o.sampler.next(row, {
      site: first ? 'prefill_frontier' : 'primary',
      phase: first ? 'prefill' : 'verify',
      step: this.#completion.length,
    });
    this.#frontier = undefined;
    this.#pending = token.tokenId;
    const step = this.#emit(token, 'primary');
    if (this.#ended) return [step, ...this.#close()];
    this.#startRound(token.tokenId);
    return [step];
  }

  #startRound(primary: TokenId): void {
    const { head, depthPolicy, contextCopy, sampler, maxWindow, promptTokens } = this.#o;
    const room = Math.min(this.#o.maxTokens - this.#completion.length, maxWindow - 1);
    const block = sampler.penalised || !contextCopy ? [] : contextCopy.propose(primary).slice(0, room);
    if (block.length > 0) {
      const drafts = block.map((tokenId): DraftChoice => ({ tokenId }));
      this.#stage = { at: 'verify', round: { primary, drafts, source: 'context_copy', depth: drafts.length } };
      return;
    }
    const planned = depthPolicy.next();
    const depth = head && promptTokens.length > 0 ? Math.min(planned.depth, room) : 0;
    if (depth === 0) this.#counts.skipped(head ? (room === 0 ? 'no_room' : planned.reason) : 'no_draft_head');
    const round: Round = { primary, drafts: [], source: 'draft_head', depth };
    this.#stage = depth > 0 ? { at: 'draft', round, token: primary, hidden: this.#stream() } : { at: 'verify', round };
  }

  #takeDraft(round: Round, result: WorkResult): readonly Step[] {
    const { state, logits, hidden, further = [] } = draftOf(result);
    if (result.kind === 'draft' && result.committed) this.#takeCommitted(result.committed);
    if (round.drafts.length === 0) {
      this.#held.set('primary-head', state.retain());
      this.#owed.settle();
    }
    this.#held.replace('draft', state);
    const { token, stream } = chooseDrafts(
      this.#o.sampler,
      round,
      { logits, hidden, further },
      {
        step: this.#completion.length,
        keep: (newest) => this.#held.replace('draft', newest),
      },
    );
    this.#stage =
      round.drafts.length < round.depth ? { at: 'draft', round, token, hidden: stream } : { at: 'verify', round };
    return [];
  }

  #takeVerified(round: Round, result: ForwardResult): readonly Step[] {
    const { sampler, head } = this.#o;
    this.#held.set('verified', result.state);
    const hidden = result.hidden ?? [];
    const outcome = sampler.accept({
      drafts: round.drafts,
      row: (index) => result.logits[index]!,
      room: this.#o.maxTokens - this.#completion.length,
      stopTokenIds: this.#stops,
      source: round.source,
      context: { phase: 'verify', step: this.#completion.length },
    });
    this.#count(round, outcome);
    const kept = outcome.accepted.length;
    this.#pending = undefined;
    this.#frontier = result.logits[outcome.frontierRow];
    const stream = this.#hidden;
    this.#hidden = hidden[kept];
    const steps = this.#emitOutcome(round, outcome);
    if (head && stream) this.#oweHead(round, outcome, stream, hidden);
    if (kept === round.drafts.length) {
      this.#held.replace('trunk', this.#held.move('verified'));
      return [...steps, ...this.#appendOrNext()];
    }
    const { window } = result;
    if (!window) throw new PlumblineError('internal_error', 'a verify forward returned no window');
    this.#due = { window, keep: 1 + kept };
    return [...steps, ...this.#appendOrNext()];
  }

  // ---- commit ----

  /** Whether a due commit comes by itself: before all that needs the trunk, and before the end of a closing turn. */
  get #committing(): boolean {
    const { at } = this.#stage;
    return at === 'ended' ? this.#o.closingForward === true : at !== 'draft';
  }

  #takeCommitted(state: SequenceState): void {
    this.#held.replace('trunk', state);
    this.#held.drop('verified');
    this.#due = undefined;
    this.#counts.committed();
  }

  /** The pairs that the head lacks after a round: the primary's, unless a draft forward made it, and the accepted. */
  #oweHead(round: Round, outcome: WindowOutcome, stream: Float32Array, hidden: readonly Float32Array[]): void {
    if (this.#held.has('primary-head')) {
      this.#held.replace('head', this.#held.move('primary-head'));
      this.#held.drop('draft');
    } else {
      this.#owed.add({ tokens: [round.primary], hidden: [stream] });
    }
    const tokens = outcome.accepted.map(({ tokenId }): number => tokenId);
    this.#owed.add({ tokens, hidden: hidden.slice(0, tokens.length) });
  }

  #appendOrNext(): readonly Step[] {
    if (!this.#owed.isDue) return this.#nextRound();
    this.#stage = { at: 'append' };
    return [];
  }

  #emitOutcome(round: Round, { accepted, next }: WindowOutcome): Step[] {
    const origin = round.source === 'context_copy' ? 'context_copy' : 'accepted_draft';
    const steps = accepted.map((token) => this.#emit(token, origin));
    if (next) {
      this.#pending = next.token.tokenId;
      steps.push(this.#emit(next.token, next.origin));
    }
    return steps;
  }

  #emit(token: SampledToken, origin: TokenOrigin): Step {
    this.#completion.push(token.tokenId);
    this.#o.contextCopy?.emitted(token.tokenId);
    const end = turnEnd(this.#completion, this.#stops, this.#o.maxTokens);
    if (end !== undefined) this.#ended = true;
    return { kind: 'token', token, origin, end };
  }

  #count(round: Round, outcome: WindowOutcome): void {
    const offered = round.drafts.length;
    const accepted = outcome.accepted.length;
    this.#counts.window(round, outcome, this.#stops);
    if (round.source === 'context_copy') this.#o.contextCopy?.report(offered, accepted);
    else if (round.depth > 0) this.#o.depthPolicy.report({ depth: round.depth, accepted });
  }

  // ---- the end ----

  #closingStage(): Stage {
    const last = this.#pending;
    if (this.#o.closingForward !== true) return { at: 'ended' };
    if (last !== undefined) return { at: this.#o.head ? 'closing-append' : 'closing-forward', last };
    return this.#owed.isEmpty ? { at: 'ended' } : { at: 'append' };
  }

  /** Goes on to the end of a turn; a turn that is closed already, with no commit due, says so. */
  #close(): readonly Step[] {
    this.#stage = this.#closingStage();
    const closed = this.#stage.at === 'ended' && this.#o.closingForward === true && !this.#due;
    return closed ? this.#closed() : [];
  }

  /** The states cover every token. */
  #closed(): readonly Step[] {
    const { promptTokens, onBoundary } = this.#o;
    onBoundary?.({ kind: 'turn', tokens: tokensOf(promptTokens, this.#completion), ...this.#kept() });
    return [{ kind: 'closed' }];
  }

  #takeClosing(result: ForwardResult): readonly Step[] {
    const row = result.logits[0];
    this.#held.replace('trunk', result.state);
    if (!row) throw new PlumblineError('internal_error', 'a closing forward returned no row');
    this.#o.sampler.check(row, { site: 'final_primary', phase: 'final-primary', step: this.#completion.length });
    this.#pending = undefined;
    this.#hidden = result.hidden?.[0];
    this.#stage = { at: 'ended' };
    return this.#closed();
  }

  #stream(): Float32Array {
    if (!this.#hidden) throw new PlumblineError('internal_error', 'a speculative round has no hidden stream');
    return this.#hidden;
  }
}
