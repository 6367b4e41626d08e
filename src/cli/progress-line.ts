/**
 * One line on a terminal that is written over while something goes on. Where stderr is no terminal nothing is shown, so
 * that logs and pipes stay clean.
 */
import type { CliIo } from './io.js';

const CLEAR = '\r\u001b[2K';
/** Often enough for the eye, rarely enough for a slow terminal. */
const INTERVAL_MS = 50;

export class ProgressLine {
  readonly #io: CliIo;
  #shownAt = -Infinity;
  #visible = false;

  constructor(io: CliIo) {
    this.#io = io;
  }

  update(text: string): void {
    const now = performance.now();
    if (!this.#io.errIsTerminal || now - this.#shownAt < INTERVAL_MS) return;
    this.#shownAt = now;
    this.#visible = true;
    this.#io.err(CLEAR + text);
  }

  /** Takes the line away; call it before anything else is written. */
  clear(): void {
    if (this.#visible) this.#io.err(CLEAR);
    this.#visible = false;
  }
}

export const percent = (part: number, whole: number): string =>
  `${whole > 0 ? Math.floor((100 * part) / whole) : 100} %`;
