/**
 * Where the newest words of a text stood before in its prompt: an index of the prompt's 6-grams.
 *
 * Invariants: only grams that another prompt token follows are indexed; grams are compared token by token, so a hash
 * collision changes nothing; a look-up visits at most 32 places, whatever the prompt; building is linear.
 */

/** Tokens that must match. */
export const SHORTEST_MATCH = 6;
/** Tokens that are compared at most. */
export const LONGEST_MATCH = 10;
/** Places of a gram that are looked at, newest first. */
export const PLACES = 32;

const NONE = -1;

export interface PromptMatch {
  /** Index of the prompt token behind the match: in [6, prompt length). */
  readonly next: number;
  /** Tokens that match before it: 6 to 10. */
  readonly length: number;
}

export class PromptNgrams {
  /** By hash of a gram, with linear probing: where it stands last in the prompt. */
  private readonly newest: Int32Array;
  /** By start of a gram: where the same gram stands before that. */
  private readonly before: Int32Array;

  constructor(private readonly prompt: readonly number[]) {
    const grams = Math.max(0, prompt.length - SHORTEST_MATCH);
    // At most half of the slots are taken, so probing ends.
    this.newest = new Int32Array(2 ** Math.ceil(Math.log2(2 * grams + 2))).fill(NONE);
    this.before = new Int32Array(grams);
    for (let start = 0; start < grams; start++) {
      const slot = this.slotOf(prompt, start);
      this.before[start] = this.newest[slot]!;
      this.newest[slot] = start;
    }
  }

  /** The longest match of the end of `text`, and of equally long ones the last in the prompt. */
  longestMatch(text: readonly number[]): PromptMatch | undefined {
    const from = text.length - SHORTEST_MATCH;
    if (from < 0) return undefined;
    let best: PromptMatch | undefined;
    let start = this.newest[this.slotOf(text, from)]!;
    for (let visited = 0; start !== NONE && visited < PLACES; visited++, start = this.before[start]!) {
      let length = SHORTEST_MATCH;
      while (length < LONGEST_MATCH && this.agree(start, text, from, length - SHORTEST_MATCH + 1)) length++;
      if (best === undefined || length > best.length) best = { next: start + SHORTEST_MATCH, length };
      if (length === LONGEST_MATCH) break;
    }
    return best;
  }

  /** Whether prompt and text have the same token `back` tokens before their grams. */
  private agree(start: number, text: readonly number[], from: number, back: number): boolean {
    return start >= back && from >= back && this.prompt[start - back] === text[from - back];
  }

  /** The slot of the gram at tokens[from …]: the one that holds it, or the free one where it belongs. */
  private slotOf(tokens: readonly number[], from: number): number {
    const mask = this.newest.length - 1;
    let hash = 0;
    for (let i = 0; i < SHORTEST_MATCH; i++) hash = Math.imul(hash ^ tokens[from + i]!, 0x9e3779b1) + (hash >>> 15);
    let slot = (hash ^ (hash >>> 16)) & mask;
    for (let held = this.newest[slot]!; held !== NONE; held = this.newest[slot]!) {
      if (this.sameGram(held, tokens, from)) break;
      slot = (slot + 1) & mask;
    }
    return slot;
  }

  private sameGram(start: number, tokens: readonly number[], from: number): boolean {
    for (let i = 0; i < SHORTEST_MATCH; i++) if (this.prompt[start + i] !== tokens[from + i]) return false;
    return true;
  }
}
