/**
 * Tool calls as they are written, for whoever cannot wait: a name, then the text of its arguments in pieces. Together the
 * pieces are the text that `argumentsText` makes of the same members, but for a name that comes twice, which stands in them
 * twice: the last one counts, as for JSON.parse.
 *
 * Invariant: what was taken is final; a piece is made only when nothing that may follow changes it.
 */
import { partialMarks } from '../partial-mark.js';
import { guardMark } from './dialect.js';

export type CallPiece =
  { readonly kind: 'call'; readonly name: string } | { readonly kind: 'arguments'; readonly text: string };

export class CallPieces {
  #pieces: CallPiece[] = [];
  #members = 0;
  /** How far the string that is being written was given out; undefined outside strings. */
  #given: number | undefined;

  open(name: string): void {
    this.#pieces.push({ kind: 'call', name });
    this.#members = 0;
  }

  close(): void {
    this.#arguments(this.#members > 0 ? '}' : '{}');
  }

  /** A member whose value is known. */
  member(name: string, source: string): void {
    this.#arguments(`${this.#begin(name)}${source}`);
  }

  /** A member whose value is a string that begins at `at` of the text of the block. */
  openString(name: string, at: number): void {
    this.#arguments(`${this.#begin(name)}"`);
    this.#given = at;
  }

  /**
   * The string goes on: `text` is the block as far as it is known, `mark` ends the value, and the guarded form of it is text.
   */
  string(text: string, mark: string): void {
    if (this.#given === undefined) return;
    const held = partialMarks(text.slice(this.#given), [mark, guardMark(mark, mark)]);
    this.#stringUpTo(text, text.length - held, mark);
  }

  /** The string ends at `end`. */
  closeString(text: string, end: number, mark: string): void {
    this.#stringUpTo(text, end, mark);
    this.#given = undefined;
    this.#arguments('"');
  }

  /** Whether a string is being written. */
  get inString(): boolean {
    return this.#given !== undefined;
  }

  /** What came since this was last asked. */
  take(): readonly CallPiece[] {
    return this.#pieces.splice(0);
  }

  #stringUpTo(text: string, end: number, mark: string): void {
    if (this.#given === undefined || end <= this.#given) return;
    const plain = text.slice(this.#given, end).replaceAll(guardMark(mark, mark), mark);
    this.#given = end;
    this.#arguments(JSON.stringify(plain).slice(1, -1));
  }

  #begin(name: string): string {
    return `${this.#members++ > 0 ? ', ' : '{'}${JSON.stringify(name)}: `;
  }

  #arguments(text: string): void {
    const last = this.#pieces.at(-1);
    if (last?.kind !== 'arguments') this.#pieces.push({ kind: 'arguments', text });
    else this.#pieces[this.#pieces.length - 1] = { kind: 'arguments', text: last.text + text };
  }
}
