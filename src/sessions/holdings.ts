/**
 * Memory that captures keep alive, each piece counted once however many of them share it.
 *
 * Invariant: `bytes` is the sum over the pieces that at least one capture of the set holds.
 */
import type { Capture, Holding, StateValue } from './types.js';

export class Holdings {
  readonly #held = new Map<object, { readonly bytes: number; holders: number }>();
  #bytes = 0;

  get bytes(): number {
    return this.#bytes;
  }

  add(capture: Capture<StateValue>): void {
    for (const { key, bytes } of holdingsOf(capture)) {
      const held = this.#held.get(key);
      if (held) held.holders++;
      else {
        this.#held.set(key, { bytes, holders: 1 });
        this.#bytes += bytes;
      }
    }
  }

  /** Of a capture that was added; its values must still be alive. */
  remove(capture: Capture<StateValue>): void {
    for (const { key } of holdingsOf(capture)) {
      const held = this.#held.get(key);
      if (held === undefined || --held.holders > 0) continue;
      this.#held.delete(key);
      this.#bytes -= held.bytes;
    }
  }
}

function holdingsOf({ trunk, head, hidden, tokens }: Capture<StateValue>): Holding[] {
  const own = [tokens, ...(hidden ? [hidden] : [])].map((array) => ({ key: array, bytes: array.byteLength }));
  return [...trunk.holdings(), ...(head?.holdings() ?? []), ...own];
}
