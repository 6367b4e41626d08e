/**
 * How a state value becomes bytes and again a value, without a look at what the bytes mean. Whoever owns the memory of the
 * values implements this; checkpoints are written and read against it.
 *
 * Invariants: what `export` shows stays as it is for as long as the value is held; a page's `identity` is the same object
 * in every value that shares the page, and another one as soon as any of its rows is written again; a reservation is seen by
 * nobody until it is committed.
 */

/** A page all of whose rows are computed. */
export interface FullPage {
  readonly identity: object;
  /** [pageBytes], the memory itself. */
  readonly bytes: Uint8Array;
  /** [pageTokens] ids of its positions. */
  readonly tokens: Int32Array;
}

/** A value as it is written down. */
export interface ExportedState {
  /** Tokens of the value. */
  readonly length: number;
  /** [fixedBytes], the memory itself. */
  readonly fixed: Uint8Array;
  /** ⌊length / pageTokens⌋ pages. */
  readonly pages: readonly FullPage[];
  /** [tailBytes(length)] a copy of the rows of the last, partly filled page whose tokens all lie below `length`. */
  readonly tail: Uint8Array;
  /** [length mod pageTokens] */
  readonly tailTokens: Int32Array;
}

/** Memory for a value that is read in: to be filled, then committed or abandoned, once. */
export interface StateReservation<S> {
  /** [fixedBytes] */
  readonly fixed: Uint8Array;
  /** [⌊length / pageTokens⌋][pageBytes] */
  readonly pages: readonly Uint8Array[];
  /** Puts the rows of the last page in their places. @param rows [tailBytes(length)] */
  setTail(rows: Uint8Array): void;
  /** Makes what can be made before the bytes are there; the ids must be. */
  prepare(): void;
  /** The value, with one holder. */
  commit(): S;
  /** Gives the memory back. */
  abandon(): void;
}

export interface StateCodec<S> {
  readonly fixedBytes: number;
  readonly pageBytes: number;
  readonly pageTokens: number;
  /** Bytes of the rows of the partly filled page of a value of `length` tokens. */
  tailBytes(length: number): number;
  /** @param state held by the caller for as long as the result is in use */
  export(state: S): ExportedState;
  /** The identities of the full pages alone, in order. */
  identities(state: S): readonly object[];
  /** @param tokens ids of the value; read when it is prepared or committed, not before. @throws out_of_memory with nothing taken */
  reserve(tokens: Int32Array): StateReservation<S>;
}
