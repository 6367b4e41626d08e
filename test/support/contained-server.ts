/**
 * Servers whose rows can be spoiled at a named place, whose sessions can be looked into, and whose saves can be held back.
 */
import assert from 'node:assert/strict';
import { createHash, type Hash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { GivenOptions } from '../../src/config.js';
import { PagedState } from '../../src/engine/state/sequence-state.js';
import type { TestSeams } from '../../src/http/open-model.js';
import type { SessionBlock } from '../../src/api/session-block.js';
import { diskFiles } from '../../src/sessions/checkpoints/file-layer.js';
import type { ContainmentReceipt } from '../../src/sessions/containment/receipts.js';
import { embeddedServer, MODEL, type EmbeddedServer } from './embedded-server.js';
import { FaultyFiles } from './faulty-files.js';
import { readEvents } from './http-app.js';

export const VOCABULARY = 4096;

export const PLANTS = [
  { name: 'R1', fill: (row: Float32Array) => row.fill(NaN), nan: VOCABULARY, inf: 0 },
  { name: 'R2', fill: (row: Float32Array) => row.fill(Infinity, 7, 8), nan: 0, inf: 1 },
  { name: 'R3', fill: (row: Float32Array) => row.fill(NaN, 9, 10), nan: 1, inf: 0 },
  { name: 'R4', fill: (row: Float32Array) => row.fill(-Infinity), nan: 0, inf: VOCABULARY },
] as const;
export type Plant = (typeof PLANTS)[number];

/** The nth row, from 0, that a request hands over at a site. */
export interface Target {
  readonly site: string;
  readonly nth: number;
  /**
   * Makes the rows of the request say its own prompt again, so that a place is reached for certain: `agree`: drafts and
   * verify rows say the same; `differ`: the drafts say something else.
   */
  readonly steer?: 'agree' | 'differ' | undefined;
}

/** The place in a prompt from which a steered request says it again. */
const STEERED_FROM = 4;

type Fill = (row: Float32Array) => void;

interface Aim extends Target {
  /** undefined: any. */
  readonly session: string | undefined;
  readonly fill: Fill;
  /** Rows of its site that were seen. */
  count: number;
}

/** Spoils one row of the requests of a session, or of each of several. */
export class RowSpoiler {
  #aims: Aim[] = [];
  /** Sites of the requests that are aimed at, in order. */
  seen: string[] = [];
  #watched: Hash | undefined;

  aim(session: string | undefined, target: Target, { fill }: { readonly fill: Fill }): void {
    this.#aims = [];
    this.seen = [];
    this.alsoAim(session, target, { fill });
  }

  alsoAim(session: string | undefined, target: Target, { fill }: { readonly fill: Fill }): void {
    this.#aims.push({ ...target, session, fill: (row) => void fill(row), count: 0 });
  }

  /** The same, whatever session a request names. */
  aimAtAll(target: Target, plant: { readonly fill: Fill }): void {
    this.aim(undefined, target, plant);
  }

  rest(): void {
    this.#aims = [];
  }

  /** Begins a digest of every row that is handed over, with its place. */
  watch(): void {
    this.#watched = createHash('sha256');
  }

  /** The digest of the rows since `watch`. */
  watched(): string {
    const digest = this.#watched?.digest('hex') ?? '';
    this.#watched = undefined;
    return digest;
  }

  readonly hook: NonNullable<TestSeams['rowHook']> = (row, { site, step }, { session, promptTokens }) => {
    this.#watched?.update(`${site} ${step}`).update(new Uint8Array(row.buffer, row.byteOffset, row.byteLength));
    const aims = this.#aims.filter((aim) => aim.session === undefined || aim.session === session?.id);
    if (aims.length > 0) this.seen.push(site);
    for (const aim of aims) {
      if (aim.steer !== undefined) {
        row.fill(-20);
        const said = promptTokens[STEERED_FROM + step]!;
        row[site === 'draft' && aim.steer === 'differ' ? (said + 1) % row.length : said] = 20;
      }
      if (site === aim.site && aim.count++ === aim.nth) aim.fill(row);
    }
  };
}

/** Holds back the writing of checkpoints until it is opened. */
export class SaveGate {
  readonly files = new FaultyFiles(diskFiles);
  #open: (() => void) | undefined;

  shut(): void {
    const opened = new Promise<void>((resolve) => (this.#open = resolve));
    this.files.plan = {
      at: (step) => step.startsWith('sync staged checkpoint'),
      fault: { kind: 'call', act: () => opened },
      always: true,
    };
  }

  open(): void {
    this.files.plan = undefined;
    this.#open?.();
  }
}

export interface Message {
  readonly role: 'user' | 'assistant';
  readonly content: string;
}

export interface Outcome {
  readonly status: number;
  readonly text: string;
  readonly error: ErrorObject | undefined;
  readonly errors: number;
  readonly done: boolean;
  readonly finish: string | null;
  readonly session: SessionBlock | undefined;
  readonly cached: number;
  readonly requestId: string | null;
  readonly shouldRetry: string | null;
  /** Whether anything stands behind the error. */
  readonly lastIsError: boolean;
}

export interface ErrorObject {
  readonly code: string;
  readonly type: string;
  readonly message: string;
  readonly param: unknown;
  readonly plumbline: { readonly census: Readonly<Record<string, unknown>>; readonly retryable: boolean };
}

interface Chunk {
  readonly error?: ErrorObject;
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string };
    readonly message?: { readonly content: string };
    readonly finish_reason: string | null;
  }[];
  readonly usage?: { readonly prompt_tokens_details: { readonly cached_tokens: number } } | null;
  readonly plumbline?: { readonly session?: SessionBlock };
}

export class ContainedServer {
  private constructor(
    readonly server: EmbeddedServer,
    readonly spoiler: RowSpoiler,
    readonly gate: SaveGate,
    readonly folder: string | undefined,
  ) {}

  static async open(options: GivenOptions, folder?: string, seams: TestSeams = {}): Promise<ContainedServer> {
    const spoiler = new RowSpoiler();
    const gate = new SaveGate();
    const kept = { sessionRamMib: 256, sessionMinFreeMib: 0, ...(folder && { sessionDir: folder }) };
    const server = await embeddedServer(
      { ...kept, ...options },
      { rowHook: spoiler.hook, files: gate.files, ...seams },
    );
    return new ContainedServer(server, spoiler, gate, folder);
  }

  /** One turn. @param session undefined: the request names none */
  async ask(session: string | undefined, messages: readonly Message[], more: object = {}): Promise<Outcome> {
    const headers: Record<string, string> = session === undefined ? {} : { 'x-session-id': session };
    const body = { model: MODEL, messages, seed: 11, max_tokens: 10, ...more };
    const response = await this.server.post('/v1/chat/completions', body, { headers });
    const head = {
      status: response.status,
      requestId: response.headers.get('x-request-id'),
      shouldRetry: response.headers.get('x-should-retry'),
    };
    const streamed = (response.headers.get('content-type') ?? '').startsWith('text/event-stream');
    const { events, done } = streamed
      ? await readEvents(response)
      : { events: [await response.json()], done: response.status === 200 };
    const chunks = events as Chunk[];
    const errors = chunks.flatMap(({ error }) => error ?? []);
    const choices = chunks.flatMap((chunk) => chunk.choices ?? []);
    return {
      ...head,
      text: choices.map(({ delta, message }) => delta?.content ?? message?.content ?? '').join(''),
      error: errors[0],
      errors: errors.length,
      done,
      finish: choices.map(({ finish_reason: reason }) => reason).find((reason) => reason !== null) ?? null,
      session: chunks.flatMap(({ plumbline }) => plumbline?.session ?? []).at(-1),
      cached: chunks.flatMap(({ usage }) => usage?.prompt_tokens_details.cached_tokens ?? []).at(-1) ?? 0,
      lastIsError: chunks.at(-1)?.error !== undefined,
    };
  }

  get sessions() {
    const { containment, bank, store, turns, committed } = this.server.models[0]!.sessions;
    assert.ok(containment && turns);
    return { containment, bank, store, turns, committed };
  }

  async flush(): Promise<void> {
    await this.sessions.store?.flush(10_000);
  }

  receipt(): ContainmentReceipt {
    const receipt = this.sessions.containment.receipts.all[0];
    assert.ok(receipt);
    return receipt;
  }

  /** Every trace of a session below its living epoch, wherever one can lie. */
  traces(session: string): string[] {
    const { bank, store, containment } = this.sessions;
    const epoch = containment.fences.epochOf(session);
    const isOld = (pair: { session: string; epoch: number }): boolean => pair.session === session && pair.epoch < epoch;
    return [
      ...(bank?.entries() ?? []).flatMap(({ lineage, capture }) =>
        lineage.some(isOld) ? [`bank ${capture.kind}`] : [],
      ),
      ...(store?.entries() ?? []).flatMap(({ lineage, kind }) => (lineage.some(isOld) ? [`disk ${kind}`] : [])),
    ];
  }

  /** Hashes of all that is kept of a session: entries in memory, rows of the index, files. */
  fingerprint(session: string): string {
    const hash = createHash('sha256');
    const { bank, store } = this.sessions;
    for (const { session: owner, lane, lineage, capture } of bank?.entries() ?? []) {
      if (owner !== session) continue;
      hash.update(JSON.stringify([lane, lineage, capture.kind, [...capture.tokens]]));
      for (const state of [capture.trunk, capture.head]) {
        if (!(state instanceof PagedState)) continue;
        for (const [name, bytes] of state.snapshot()) hash.update(name).update(bytes);
      }
      if (capture.hidden) hash.update(new Uint8Array(capture.hidden.buffer));
    }
    for (const { id, session: owner, lineage, segments } of store?.entries() ?? []) {
      if (owner !== session || store === undefined) continue;
      hash.update(JSON.stringify([id, lineage]));
      hash.update(readFileSync(store.folder.checkpointPath(id)));
      for (const segment of segments) hash.update(readFileSync(store.folder.segmentPath(segment.id)));
    }
    return hash.digest('hex');
  }

  staging(): string[] {
    return this.folder === undefined ? [] : readdirSync(join(this.folder, 'staging'));
  }

  async close(): Promise<void> {
    this.gate.open();
    await this.server.close(0);
  }
}
