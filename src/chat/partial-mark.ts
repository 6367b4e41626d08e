/**
 * The end of a text that may still become a mark once more text comes.
 */

/** The longest suffix of `text`, at least `least` long, that is a proper prefix of `mark`: its length, or 0. */
export function partialMark(text: string, mark: string, least = 1): number {
  for (let length = Math.min(mark.length - 1, text.length); length >= least; length--) {
    if (mark.startsWith(text.slice(text.length - length))) return length;
  }
  return 0;
}

/** The longest suffix of `text` that is a proper prefix of one of the marks: its length, or 0. */
export function partialMarks(text: string, marks: readonly string[]): number {
  return Math.max(0, ...marks.map((mark) => partialMark(text, mark)));
}
