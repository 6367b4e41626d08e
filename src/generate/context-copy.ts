/**
 * Context copy: when the newest tokens stood in the prompt before, what followed them there is proposed as drafts.
 *
 * Longer matches earn longer blocks. The lane starts on probation with short ones, keeps a moving average of the accepted
 * share, and suspends itself for a growing number of tokens while that is poor. Invariants: proposals depend on tokens and
 * reports only, never on time; a proposal is at most 24 tokens and never runs past the prompt; token choice is not
 * touched: a proposal is verified like any draft.
 */
import { PlumblineError } from '../errors.js';
import { LONGEST_MATCH, PromptNgrams, SHORTEST_MATCH } from './prompt-ngrams.js';

/** Tokens of a block by how many tokens matched beyond the shortest match. */
const BLOCK_BY_SCORE = [8, 12, 16, 24, 32] as const;
const LONGEST_BLOCK = 24;

const PROBATION_BLOCK = 8;
/** Probation lasts while fewer rounds than this are done, or the average is below the bar. */
const PROBATION_ROUNDS = 2;
const PROBATION_BAR = 0.5;

const AVERAGE_START = 0.5;
const AVERAGE_KEEP = 0.7;

const SUSPEND_ROUNDS = 3;
const SUSPEND_BELOW = 0.35;
const SUSPENSION_START = 64;
const SUSPENSION_MOST = 4096;
/** A round that accepts this share puts the next suspension back to its start. */
const GOOD_SHARE = 0.5;

export class ContextCopy {
  private readonly index: PromptNgrams;
  /** The newest tokens of prompt and completion, as many as a match can compare. */
  private readonly tail: number[];
  private rounds = 0;
  private average = AVERAGE_START;
  private suspension = SUSPENSION_START;
  private suspendedTokens = 0;

  constructor(private readonly prompt: readonly number[]) {
    this.index = new PromptNgrams(prompt);
    this.tail = prompt.slice(-LONGEST_MATCH);
  }

  /** Tokens until proposals are made again; 0: not suspended. */
  get suspendedFor(): number {
    return this.suspendedTokens;
  }

  /** Tells of every completion token, in order, wherever it came from. */
  emitted(tokenId: number): void {
    this.tail.push(tokenId);
    if (this.tail.length > LONGEST_MATCH) this.tail.shift();
    if (this.suspendedTokens > 0) this.suspendedTokens--;
  }

  /**
   * What may follow the newest token; empty when nothing matches or the lane is suspended. Asking twice gives the same.
   * @param primary the newest emitted token, which the verify forward starts with.
   */
  propose(primary: number): readonly number[] {
    if (this.tail.at(-1) !== primary) {
      throw new PlumblineError('internal_error', 'a block was asked for behind a token that is not the newest');
    }
    if (this.suspendedTokens > 0) return [];
    const match = this.index.longestMatch(this.tail);
    if (match === undefined) return [];
    const earned = BLOCK_BY_SCORE[match.length - SHORTEST_MATCH]!;
    const size = Math.min(earned, LONGEST_BLOCK, this.onProbation ? PROBATION_BLOCK : LONGEST_BLOCK);
    return this.prompt.slice(match.next, match.next + size);
  }

  /**
   * What became of a proposed block.
   * @param offered tokens that were verified: at least 1. @param accepted of them, 0 to offered.
   */
  report(offered: number, accepted: number): void {
    const share = accepted / offered;
    this.rounds++;
    this.average = AVERAGE_KEEP * this.average + (1 - AVERAGE_KEEP) * share;
    if (share >= GOOD_SHARE) this.suspension = SUSPENSION_START;
    if (this.rounds < SUSPEND_ROUNDS || this.average >= SUSPEND_BELOW) return;
    this.suspendedTokens = this.suspension;
    this.suspension = Math.min(SUSPENSION_MOST, 2 * this.suspension);
  }

  private get onProbation(): boolean {
    return this.rounds < PROBATION_ROUNDS || this.average < PROBATION_BAR;
  }
}
