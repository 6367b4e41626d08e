/**
 * The kept sessions of all models of a server as one list.
 *
 * Invariants: each model keeps its own; an id that several have is shown, exported or taken in for one only when the request
 * says which, and taken away from all unless it does.
 */
import { PlumblineError } from '../errors.js';
import { sumDropped } from './containment/receipts.js';
import {
  notFound,
  type KeptSessions,
  type Removal,
  type SessionAdmin,
  type SessionDetails,
  type SessionSummary,
} from './admin.js';

/** undefined when no model keeps sessions. */
export function allSessions(admins: readonly SessionAdmin[]): KeptSessions | undefined {
  return admins.length === 0 ? undefined : new AllSessions(admins);
}

class AllSessions implements KeptSessions {
  constructor(private readonly admins: readonly SessionAdmin[]) {}

  list(model?: string): readonly SessionSummary[] {
    return this.#ofModel(model).flatMap((admin) => admin.list());
  }

  show(session: string, model?: string): SessionDetails {
    return this.#one(this.#keepers(session, model)).show(session);
  }

  async remove(session: string, model?: string): Promise<Removal> {
    const removals = await Promise.all(this.#keepers(session, model).map(async (admin) => admin.remove(session)));
    return {
      dropped: sumDropped(removals.map(({ dropped }) => dropped)),
      errors: removals.flatMap(({ errors }) => errors),
    };
  }

  async collect(model?: string): Promise<{ readonly files: number; readonly owed: number }> {
    const swept = await Promise.all(this.#ofModel(model).map(async (admin) => admin.collect()));
    return {
      files: swept.reduce((sum, { files }) => sum + files, 0),
      owed: swept.reduce((sum, { owed }) => sum + owed, 0),
    };
  }

  async exportSession(session: string, model?: string): Promise<AsyncIterable<Uint8Array>> {
    return this.#one(this.#keepers(session, model)).exportSession(session);
  }

  async importSession(
    file: AsyncIterable<Uint8Array>,
    model?: string,
  ): Promise<{ readonly session: string; readonly bytes: number }> {
    return this.#one(this.#ofModel(model)).importSession(file);
  }

  /** At least one. */
  #keepers(session: string, model: string | undefined): readonly SessionAdmin[] {
    const keepers = this.#ofModel(model).filter((admin) => admin.list().some((kept) => kept.session === session));
    if (keepers.length === 0) throw notFound();
    return keepers;
  }

  /** At least one. */
  #ofModel(model: string | undefined): readonly SessionAdmin[] {
    if (model === undefined) return this.admins;
    const found = this.admins.filter((admin) => admin.model === model);
    if (found.length > 0) return found;
    throw new PlumblineError('invalid_request', `no model '${model}' keeps sessions here; ${this.#names()}`, {
      param: 'model',
    });
  }

  #one([first, second]: readonly SessionAdmin[]): SessionAdmin {
    if (first !== undefined && second === undefined) return first;
    throw new PlumblineError(
      'invalid_request',
      `say which model is meant (?model=, or --of of the command); ${this.#names()}`,
      {
        param: 'model',
      },
    );
  }

  #names(): string {
    return `sessions are kept of ${this.admins.map(({ model }) => `'${model}'`).join(', ')}`;
  }
}
