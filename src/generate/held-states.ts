/**
 * The states that a speculative sequence holds, by role; each entry is one reference.
 *
 * Invariants: a role is set, replaced or dropped only here, so every reference is given back exactly once.
 */
import { PlumblineError } from '../errors.js';
import type { SequenceState } from '../engine/model.js';

/**
 * trunk, head: committed. draft: the head behind the newest draft. primary-head: the head behind the primary alone.
 * verified: the trunk behind a whole window.
 */
export type StateRole = 'trunk' | 'head' | 'draft' | 'primary-head' | 'verified';

export class HeldStates {
  readonly #states = new Map<StateRole, SequenceState>();

  /** Takes over the caller's reference. */
  constructor(trunk: SequenceState) {
    this.#states.set('trunk', trunk);
  }

  has(role: StateRole): boolean {
    return this.#states.has(role);
  }

  get(role: StateRole): SequenceState {
    const state = this.#states.get(role);
    if (!state) throw new PlumblineError('internal_error', `a speculative sequence holds no ${role} state`);
    return state;
  }

  /** Puts a state into an empty role. */
  set(role: StateRole, state: SequenceState): void {
    if (this.#states.has(role)) throw new PlumblineError('internal_error', `the ${role} state is already held`);
    this.#states.set(role, state);
  }

  /** Puts a state into a role, giving back what was there. */
  replace(role: StateRole, state: SequenceState): void {
    const before = this.#states.get(role);
    this.#states.set(role, state);
    before?.release();
  }

  /** Takes the reference out of a role. */
  move(role: StateRole): SequenceState {
    const state = this.get(role);
    this.#states.delete(role);
    return state;
  }

  drop(role: StateRole): void {
    this.#states.get(role)?.release();
    this.#states.delete(role);
  }

  /** Takes out the committed states; undefined when they are gone already. */
  takeFinal(): { readonly trunk: SequenceState; readonly head: SequenceState | undefined } | undefined {
    if (!this.has('trunk')) return undefined;
    return { trunk: this.move('trunk'), head: this.has('head') ? this.move('head') : undefined };
  }

  release(): void {
    for (const state of this.#states.values()) state.release();
    this.#states.clear();
  }
}
