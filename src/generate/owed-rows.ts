/**
 * The pairs that a draft head still lacks: each token with the stream of the token before it. They go into the head's
 * cache together with the first draft of the next round, which saves a forward of their own.
 */
export interface HeadRows {
  readonly tokens: readonly number[];
  readonly hidden: readonly Float32Array[];
}

/** Rounds without drafts may owe the head this many rows before they are appended by themselves. */
const MOST_OWED = 32;

export class OwedRows {
  #rows: HeadRows = { tokens: [], hidden: [] };

  get rows(): HeadRows {
    return this.#rows;
  }

  get isEmpty(): boolean {
    return this.#rows.tokens.length === 0;
  }

  /** Whether they should go in now, draft or not. */
  get isDue(): boolean {
    return this.#rows.tokens.length >= MOST_OWED;
  }

  /** The owed rows and one more. */
  with(token: number, hidden: Float32Array): HeadRows {
    return { tokens: [...this.#rows.tokens, token], hidden: [...this.#rows.hidden, hidden] };
  }

  add({ tokens, hidden }: HeadRows): void {
    this.#rows = { tokens: [...this.#rows.tokens, ...tokens], hidden: [...this.#rows.hidden, ...hidden] };
  }

  /** They are in the head's cache. */
  settle(): void {
    this.#rows = { tokens: [], hidden: [] };
  }
}
