/**
 * The text sink of a generation: ids through the detokenizer, its text through the stop matcher.
 *
 * Invariants: the emitted text is the decoding of all pushed ids up to the first complete stop string, whatever the ids'
 * boundaries; every step's text is final. One assembler serves one request.
 */
import type { SinkStep, TextSink } from '../schedule/request.js';
import { Detokenizer, type DetokenizerOptions, type TokenBytes } from './detokenizer.js';
import { StopMatcher } from './stop-matcher.js';

export interface TextAssemblerOptions extends DetokenizerOptions {
  /** Stop strings, none of them empty; the match itself is not part of the text. */
  readonly stop?: readonly string[] | undefined;
}

export class TextAssembler implements TextSink {
  readonly #detokenizer: Detokenizer;
  readonly #matcher: StopMatcher;
  #stopped = false;

  constructor(tokenizer: TokenBytes, options: TextAssemblerOptions = {}) {
    this.#detokenizer = new Detokenizer(tokenizer, options);
    this.#matcher = new StopMatcher(options.stop ?? []);
  }

  push(tokenId: number): SinkStep {
    return this.#match(this.#detokenizer.push(tokenId));
  }

  flush(): SinkStep {
    if (this.#stopped) return { text: '' };
    const last = this.#match(this.#detokenizer.flush());
    return last.stop === undefined ? { text: last.text + this.#matcher.flush() } : last;
  }

  #match(text: string): SinkStep {
    const step = this.#matcher.push(text);
    this.#stopped = step.stop !== undefined;
    return step;
  }
}
