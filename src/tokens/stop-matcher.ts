/**
 * Stop strings over streamed text.
 *
 * Invariants: the answer ends at the first position where some stop string is complete, so it never depends on how the
 * text was cut into pieces, and no token is asked for that could not change the answer. When several end there, the
 * longest counts. The match and everything behind it are not emitted. Held back is exactly the longest suffix that may
 * still become a stop string; everything before it is emitted at once.
 *
 * Works on code points: a stop string with a lone surrogate matches no half of a pair. Pieces must not cut a pair.
 */
import { PlumblineError } from '../errors.js';

export interface StopStep {
  /** Text that is certain to belong to the answer. */
  readonly text: string;
  /** The stop string that ended the answer. Nothing may be pushed afterwards. */
  readonly stop?: string | undefined;
}

/** One stop string as a Knuth-Morris-Pratt automaton: `matched` code points of it end at the current position. */
interface Pattern {
  readonly text: string;
  readonly points: readonly string[];
  /** failure[i]: length of the longest proper border of the first i + 1 points. */
  readonly failure: readonly number[];
  matched: number;
}

export class StopMatcher {
  /** Longest first, so that at one end position the longest stop string is found first. */
  readonly #patterns: readonly Pattern[];
  /** Code points read but not emitted. */
  #held: string[] = [];
  #stopped = false;

  /** Throws `invalid_request` on an empty stop string, which would match everywhere. */
  constructor(stops: readonly string[]) {
    if (stops.includes(''))
      throw new PlumblineError('invalid_request', 'stop: a stop string must not be empty', { param: 'stop' });
    this.#patterns = [...new Set(stops)].map(compile).sort((a, b) => b.points.length - a.points.length);
  }

  push(piece: string): StopStep {
    if (this.#stopped) throw new PlumblineError('internal_error', 'text was pushed behind a stop string');
    if (this.#patterns.length === 0) return { text: piece };
    for (const point of piece) {
      this.#held.push(point);
      const match = this.#advance(point);
      if (match !== undefined) {
        this.#stopped = true;
        const text = this.#held.slice(0, this.#held.length - match.points.length).join('');
        this.#held = [];
        return { text, stop: match.text };
      }
    }
    const kept = this.#patterns.reduce((longest, pattern) => Math.max(longest, pattern.matched), 0);
    const text = this.#held.splice(0, this.#held.length - kept).join('');
    return { text };
  }

  /** The held-back text, which no more text will turn into a stop string; '' after a match. */
  flush(): string {
    const text = this.#held.join('');
    this.#held = [];
    for (const pattern of this.#patterns) pattern.matched = 0;
    return text;
  }

  /** Moves every automaton by one code point; the longest pattern that is complete now, if any. */
  #advance(point: string): Pattern | undefined {
    let match: Pattern | undefined;
    for (const pattern of this.#patterns) {
      let { matched } = pattern;
      while (matched > 0 && pattern.points[matched] !== point) matched = pattern.failure[matched - 1] ?? 0;
      if (pattern.points[matched] === point) matched++;
      pattern.matched = matched;
      if (matched === pattern.points.length) match ??= pattern;
    }
    return match;
  }
}

function compile(text: string): Pattern {
  const points = [...text];
  const failure = [0];
  for (let i = 1, border = 0; i < points.length; i++) {
    while (border > 0 && points[i] !== points[border]) border = failure[border - 1] ?? 0;
    if (points[i] === points[border]) border++;
    failure.push(border);
  }
  return { text, points, failure, matched: 0 };
}
