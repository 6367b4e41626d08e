/** A family where processes cannot be listed: the process group, of which only is known whether any of it lives. */
import { sendSignal, type Family } from './family.js';

export class GroupFamily implements Family {
  readonly reach = 'group';
  readonly #leader: number;
  #alive = true;

  constructor(leader: number) {
    this.#leader = leader;
  }

  look(): number {
    this.#alive = sendSignal(-this.#leader, 0);
    return this.#alive ? 1 : 0;
  }

  memory(): undefined {
    return undefined;
  }

  signal(name: NodeJS.Signals): void {
    if (this.#alive) sendSignal(-this.#leader, name);
  }

  get pids(): readonly number[] {
    return this.#alive ? [this.#leader] : [];
  }
}
