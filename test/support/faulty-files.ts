/**
 * A file layer that lets a test stand at every step of what is written: it numbers and names the steps, and at a chosen
 * one an error is thrown, a write is cut short, or everything ends as if the process had been killed there.
 *
 * A step is an operation that changes the folder: `create`, `write`, `sync`, `rename`, `link`, `remove`, `sync-folder`,
 * `make-folder`; its name is the operation and the kind of file (`rename checkpoint`, `sync-folder segments`). Reads and
 * looks are steps of their own kind, under `reads`.
 */
import { existsSync, statSync, truncateSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { FileLayer, OpenFile } from '../../src/sessions/checkpoints/file-layer.js';

/** What happens at the chosen step. `kill`: it and everything after it fails, and nothing is changed any more. */
export type Fault =
  | { readonly kind: 'error'; readonly code: string }
  /** Only half of a write arrives, then the process ends; other steps end before they happen. */
  | { readonly kind: 'kill' }
  /** The step happens, and then the process ends. */
  | { readonly kind: 'kill-after' }
  | { readonly kind: 'call'; readonly act: () => void | Promise<void> };

export interface FaultPlan {
  /** The step at which the fault comes, by number from 0 or by what its name and number say. */
  readonly at: (step: string, index: number) => boolean;
  readonly fault: Fault;
  /** Whether it comes again at every later step that `at` chooses; default once. */
  readonly always?: boolean;
}

export class Killed extends Error {
  readonly code = 'EKILLED';
}

const failure = (code: string, step: string): Error => Object.assign(new Error(`${code}: at ${step}`), { code });

/** The kind of file that a path names. */
function kindOf(path: string): string {
  const staged = basename(dirname(path)) === 'staging' ? 'staged ' : '';
  const name = basename(path);
  if (name.endsWith('.pages')) return `${staged}segment`;
  if (name.endsWith('.state')) return `${staged}checkpoint`;
  if (name.endsWith('.json')) return `${staged}${basename(dirname(path)) === 'fences' ? 'fence' : 'json'}`;
  return name.replace(/[0-9a-f]{8,}|\d+/g, '*');
}

export class FaultyFiles implements FileLayer {
  readonly #inner: FileLayer;
  readonly steps: string[] = [];
  /** Set by a test before the steps it is about. */
  plan: FaultPlan | undefined;
  #dead = false;
  #struck = false;
  /** Files whose bytes are not synced yet. */
  readonly unsynced = new Set<string>();

  constructor(inner: FileLayer, plan?: FaultPlan) {
    this.#inner = inner;
    this.plan = plan;
  }

  /** Whether a `kill` has come. */
  get dead(): boolean {
    return this.#dead;
  }

  /** What a machine that lost its power may have kept of files that were never synced: half of each. */
  loseUnsynced(): void {
    for (const path of this.unsynced) {
      if (existsSync(path)) truncateSync(path, statSync(path).size >> 1);
    }
  }

  /** A look or a read: it fails only once everything has ended. */
  #look<T>(act: () => T): T {
    if (this.#dead) throw new Killed('the process has ended');
    return act();
  }

  #struckBy(step: string): Fault | undefined {
    if (this.#dead) throw new Killed('the process has ended');
    const index = this.steps.push(step) - 1;
    const { plan } = this;
    if (plan === undefined || (this.#struck && plan.always !== true) || !plan.at(step, index)) return undefined;
    this.#struck = true;
    return plan.fault;
  }

  #now<T>(step: string, act: () => T): T {
    const fault = this.#struckBy(step);
    if (fault?.kind === 'error') throw failure(fault.code, step);
    if (fault?.kind === 'kill') this.#end(step);
    if (fault?.kind === 'call') void fault.act();
    const result = act();
    if (fault?.kind === 'kill-after') this.#end(step);
    return result;
  }

  async #later(step: string, act: () => Promise<void>, half?: () => Promise<void>): Promise<void> {
    const fault = this.#struckBy(step);
    if (fault?.kind === 'error') {
      await half?.();
      throw failure(fault.code, step);
    }
    if (fault?.kind === 'kill') {
      await half?.();
      this.#end(step);
    }
    if (fault?.kind === 'call') await fault.act();
    await act();
    if (fault?.kind === 'kill-after') this.#end(step);
  }

  #end(step: string): never {
    this.#dead = true;
    throw new Killed(`the process ended at ${step}`);
  }

  makeFolder(path: string): void {
    this.#now(`make-folder ${basename(path)}`, () => this.#inner.makeFolder(path));
  }

  list(path: string) {
    return this.#look(() => this.#inner.list(path));
  }

  names(path: string) {
    return this.#look(() => this.#inner.names(path));
  }

  open(path: string, mode: 'read' | 'create'): OpenFile {
    if (mode === 'read') return this.#look(() => this.#inner.open(path, mode));
    const kind = kindOf(path);
    const file = this.#now(`create ${kind}`, () => this.#inner.open(path, mode));
    this.unsynced.add(path);
    const later = (step: string, act: () => Promise<void>, half?: () => Promise<void>) => this.#later(step, act, half);
    return {
      byteLength: file.byteLength,
      read: (into, at) => this.#look(() => file.read(into, at)),
      readSummed: (into, at, checksum, before) => this.#look(() => file.readSummed(into, at, checksum, before)),
      readAll: (into, at) => this.#look(() => file.readAll(into, at)),
      writeAll: (from, at) =>
        later(
          `write ${kind}`,
          () => file.writeAll(from, at),
          async () => {
            const [first] = from;
            if (first) await file.writeAll([first.subarray(0, first.byteLength >> 1)], at);
          },
        ),
      sync: () =>
        later(`sync ${kind}`, async () => {
          await file.sync();
          this.unsynced.delete(path);
        }),
      close: () => file.close(),
    };
  }

  rename(from: string, to: string): void {
    this.#now(`rename ${kindOf(to)}`, () => this.#inner.rename(from, to));
    if (this.unsynced.delete(from)) this.unsynced.add(to);
  }

  link(from: string, to: string): void {
    this.#now(`link ${kindOf(to)}`, () => this.#inner.link(from, to));
  }

  async remove(path: string): Promise<void> {
    await this.#later(`remove ${kindOf(path)}`, () => this.#inner.remove(path));
  }

  removeNow(path: string): void {
    this.#now(`remove ${kindOf(path)}`, () => this.#inner.removeNow(path));
  }

  async syncFolder(path: string): Promise<void> {
    await this.#later(`sync-folder ${basename(path)}`, () => this.#inner.syncFolder(path));
  }

  freeBytes(path: string): number {
    return this.#look(() => this.#inner.freeBytes(path));
  }

  identity(path: string): string | undefined {
    return this.#look(() => this.#inner.identity(path));
  }
}
