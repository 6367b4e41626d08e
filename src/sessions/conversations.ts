/**
 * Which session a request belongs to: the one that it names, else the conversation that its prompt goes on with.
 *
 * Invariants: an inferred session is never one that a client named; the same prompts in the same order give the same
 * sessions; a conversation that failed stays findable as long as its fence says that it is cold.
 */
import { createHash } from 'node:crypto';
import type { FenceView } from './fence-view.js';
import { TokenTrie } from './token-trie.js';

export type SessionSource = 'header' | 'prompt_cache_key' | 'inferred';

export interface SessionName {
  readonly id: string;
  readonly source: SessionSource;
}

/** Conversations that are remembered; the one that was not heard of for the longest time is forgotten first. */
const MOST_CONVERSATIONS = 10_000;
const PREFIX = 'auto-';

export class Conversations {
  readonly #fences: FenceView;
  readonly #trie = new TokenTrie<string>();
  /** The last stable prompt of every inferred session, in the order of their last turns. */
  readonly #prompts = new Map<string, Int32Array>();

  constructor(fences: FenceView) {
    this.#fences = fences;
  }

  /**
   * The session whose whole last stable prompt this prompt begins with, the longest one; a new one when there is none.
   * @param stablePrefix so many tokens will begin the prompts of later turns
   * @param stored sessions that a store on a disk has for prompts that begin this one, longest last
   */
  infer(prompt: readonly number[], stablePrefix: number, stored: readonly string[] = []): SessionName {
    const stable = Int32Array.from(prompt.slice(0, stablePrefix));
    const known = this.#fences.sessionOfPrompt(prompt) ?? this.#longest(prompt) ?? stored.filter(isInferred).at(-1);
    const id = known ?? PREFIX + createHash('sha256').update(new Uint8Array(stable.buffer)).digest('hex').slice(0, 20);
    this.#remember(id, stable);
    return { id, source: 'inferred' };
  }

  /** Forgets a conversation; its fence alone may still know it. */
  drop(session: string): number {
    const prompt = this.#prompts.get(session);
    if (prompt === undefined) return 0;
    this.#prompts.delete(session);
    this.#trie.remove(prompt, session);
    return 1;
  }

  get size(): number {
    return this.#prompts.size;
  }

  #longest(prompt: readonly number[]): string | undefined {
    let found: string | undefined;
    for (const { depth, values } of this.#trie.along(prompt)) if (depth > 0) found = [...values].at(-1);
    return found;
  }

  #remember(session: string, prompt: Int32Array): void {
    this.drop(session);
    this.#prompts.set(session, prompt);
    this.#trie.add(prompt, session);
    if (this.#prompts.size > MOST_CONVERSATIONS) {
      const [oldest] = this.#prompts.keys();
      if (oldest !== undefined) this.drop(oldest);
    }
  }
}

/** Whether an id is one that was made up here. */
export function isInferred(session: string): boolean {
  return session.startsWith(PREFIX);
}
