/** Turns of sessions over a real scheduler, with everything noted that identity is judged by. */
import { createHash } from 'node:crypto';
import type { TestContext } from 'node:test';
import { resolveOptions } from '../../src/config.js';
import type { LanguageModel, SequenceState } from '../../src/engine/model.js';
import type { GatePolicy } from '../../src/engine/plan/phase.js';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import { openBackend } from '../../src/engine/backends/open-backend.js';
import { loadModel, type LoadedModel } from '../../src/families/load.js';
import { isPagedModel, type PagedModel } from '../../src/families/paged-model.js';
import type { SequenceStart } from '../../src/generate/boundary.js';
import { createSequence, laneOf } from '../../src/generate/choose-sequence.js';
import { samplerOf, speculationSettings } from '../../src/http/request-sampler.js';
import type { GenerationUsage, SamplingOptions, SpeculationMode } from '../../src/schedule/request.js';
import { Scheduler } from '../../src/schedule/scheduler.js';
import { Sessions } from '../../src/schedule/session-turn.js';
import { Bank } from '../../src/sessions/bank.js';
import { SessionFolder } from '../../src/sessions/checkpoints/session-folder.js';
import { CheckpointStore } from '../../src/sessions/checkpoints/store.js';
import { NO_FENCES } from '../../src/sessions/fence-view.js';
import type { Capture } from '../../src/sessions/types.js';
import { goldenFolder, type GoldenCase } from './golden.js';
import { plantHead, type RandomHead } from './planted-head.js';
import { EMBEDDED_MODEL } from './repository.js';
import { ROOMY } from './session-store.js';

export interface SessionModelOptions {
  readonly checkpoint: GoldenCase | 'plumbline-tiny';
  /** Gives a checkpoint without a draft head a made-up one. */
  readonly head?: RandomHead | undefined;
  readonly gatePolicy: GatePolicy;
  readonly dtype: string;
}

export interface OpenedSessionModel {
  readonly loaded: LoadedModel;
  readonly model: PagedModel & LanguageModel;
}

const CHUNK = 48;

/** A model with room for kept states, on a backend of its own. */
export async function openSessionModel(t: TestContext, options: SessionModelOptions): Promise<OpenedSessionModel> {
  const { checkpoint, head, gatePolicy, dtype } = options;
  const { backend } = await openBackend('cpu', 2);
  t.after(() => backend.close());
  const dir = checkpoint === 'plumbline-tiny' ? EMBEDDED_MODEL : goldenFolder(t, checkpoint);
  if (head) plantHead(dir, head);
  const draftHead = checkpoint === 'plumbline-tiny' || head !== undefined;
  const common = { id: checkpoint, backend, dtype, gatePolicy, maxRows: 64, sequences: 8, draftHead };
  const loaded = await loadModel({ dir, contextLength: 256, keptStateBytes: 256 << 20, ...common });
  t.after(() => loaded.model.close());
  if (!isPagedModel(loaded.model)) throw new TypeError(`${checkpoint} is no paged model`);
  return { loaded, model: loaded.model };
}

export interface RunRequest {
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  readonly speculation: SpeculationMode;
  readonly sampling: SamplingOptions;
  readonly session: string;
  readonly stablePrefix?: number;
}

/** What a run keeps, and how it forwards prompts. */
export interface RunKeeps {
  readonly ram?: boolean;
  readonly folder?: string;
  /** Most prompt tokens in a forward; default 48. */
  readonly chunk?: number;
}

/** What a turn brought. Its end is held until `release`. */
export interface TurnRecord {
  readonly tokens: readonly number[];
  /** Hash of every row of logits that a token could come from, in order. */
  readonly rows: readonly string[];
  readonly end: Capture<SequenceState>;
  /** Hash of every part of the end. */
  readonly parts: Readonly<Record<string, string>>;
  readonly usage: GenerationUsage;
  release(): void;
}

function fingerprint({ tokens, trunk, head, hidden }: Capture<SequenceState>): Record<string, string> {
  const parts = [...(trunk as PagedState).snapshot(), ...((head as PagedState | undefined)?.snapshot() ?? [])];
  return {
    ...Object.fromEntries(parts.map(([name, bytes]) => [name, hash(bytes)])),
    tokens: hash(tokens),
    hidden: hidden ? hash(hidden) : '',
    lengths: `${trunk.length} ${head?.length ?? 'none'}`,
  };
}

function hash(bytes: ArrayBufferView): string {
  return createHash('sha256')
    .update(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength))
    .digest('hex');
}

export class SessionRun {
  readonly #opened: OpenedSessionModel;
  readonly #bank: Bank<SequenceState> | undefined;
  readonly #folder: string | undefined;
  #chunk: number;
  #store: CheckpointStore<SequenceState> | undefined;
  readonly #records: TurnRecord[] = [];

  constructor(opened: OpenedSessionModel, keeps: RunKeeps = {}) {
    this.#opened = opened;
    this.#bank = keeps.ram === true ? new Bank<SequenceState>(128 << 20, NO_FENCES) : undefined;
    this.#folder = keeps.folder;
    this.#chunk = keeps.chunk ?? CHUNK;
  }

  turn(request: RunRequest): Promise<TurnRecord> {
    return this.#one(request, undefined);
  }

  /** Turns that run beside each other, their tokens in common forwards. */
  turns(requests: readonly RunRequest[]): Promise<TurnRecord[]> {
    return this.#run(requests, undefined);
  }

  /** A turn that goes on from the very values that another ended with. */
  goOn({ end }: TurnRecord, request: RunRequest): Promise<TurnRecord> {
    return this.#one(request, end);
  }

  /** The same run; what comes is forwarded in other chunks. */
  inChunksOf(tokens: number): this {
    this.#chunk = tokens;
    return this;
  }

  async flush(): Promise<void> {
    if ((await this.#store?.flush(60_000)) === false) throw new Error('the store was not written in time');
  }

  async close(): Promise<void> {
    for (const record of this.#records) record.release();
    this.#bank?.clear();
    await this.#store?.close();
    this.#store = undefined;
  }

  async #disk(): Promise<CheckpointStore<SequenceState> | undefined> {
    if (this.#folder === undefined || this.#store) return this.#store;
    const { stateCodecs, stateIdentity } = this.#opened.model;
    this.#store = await CheckpointStore.open<SequenceState>({
      folder: await SessionFolder.open(this.#folder),
      codecs: stateCodecs,
      knownGatePolicies: stateIdentity!.knownGatePolicies,
      fences: NO_FENCES,
      budget: ROOMY,
    });
    return this.#store;
  }

  async #one(request: RunRequest, from: SequenceStart | undefined): Promise<TurnRecord> {
    const [record] = await this.#run([request], from);
    return record!;
  }

  async #run(requests: readonly RunRequest[], from: SequenceStart | undefined): Promise<TurnRecord[]> {
    const { loaded, model } = this.#opened;
    const options = resolveOptions({ draftDepth: model.speculation?.head ? 3 : 0 });
    const rows = requests.map((): string[] => []);
    const disk = await this.#disk();
    const ends = new Map<number, Capture<SequenceState>>();
    const scheduler = new Scheduler({
      model,
      prefillChunk: this.#chunk,
      maxParallel: requests.length,
      sessions: new Sessions({
        stamp: (lane) => model.stateIdentity!.stamp(lane),
        laneOf: (sampler) => laneOf(model, sampler),
        fences: NO_FENCES,
        bank: this.#bank,
        disk,
      }),
      createSampler: (wanted) =>
        samplerOf(
          wanted,
          loaded,
          options,
          model.vocabSize,
          (row) => void rows[Number(wanted.requestId)]!.push(hash(row)),
        ),
      createSequence: (_, wanted, sampler, prefillChunk, { start, onBoundary, ...boundaries }) => {
        from?.trunk.retain();
        from?.head?.retain();
        const sequence = {
          promptTokens: wanted.promptTokens,
          maxTokens: wanted.maxTokens,
          stopTokenIds: wanted.stopTokenIds,
          sampler,
          prefillChunk,
          ...boundaries,
          onBoundary: (capture: Capture<SequenceState>) => {
            if (capture.kind === 'turn') {
              const { trunk, head } = capture;
              ends.set(Number(wanted.requestId), { ...capture, trunk: trunk.retain(), head: head?.retain() });
            }
            onBoundary?.(capture);
          },
        };
        return createSequence(model, sequence, speculationSettings(options), start ?? from);
      },
    });
    const said = await Promise.all(requests.map((request, index) => follow(scheduler, request, index)));
    await scheduler.shutdown({ drainMs: 0 });
    return said.map(({ tokens, usage }, index) => {
      const end = ends.get(index);
      if (!end || !usage) throw new Error('the turn was not closed');
      const { trunk, head } = end;
      let held = true;
      const record: TurnRecord = {
        tokens,
        rows: rows[index]!,
        end,
        parts: fingerprint(end),
        usage,
        release() {
          if (!held) return;
          held = false;
          trunk.release();
          head?.release();
        },
      };
      this.#records.push(record);
      return record;
    });
  }
}

/** @param index names the request */
async function follow(scheduler: Scheduler, request: RunRequest, index: number) {
  const tokens: number[] = [];
  let usage: GenerationUsage | undefined;
  const events = scheduler.submit({
    requestId: String(index),
    promptTokens: request.prompt,
    maxTokens: request.maxTokens,
    sampling: request.sampling,
    speculation: request.speculation,
    session: { id: request.session, source: 'header', stablePrefix: request.stablePrefix },
    stopTokenIds: [],
    text: { push: () => ({ text: '' }), flush: () => ({ text: '' }) },
  });
  for await (const event of events) {
    if (event.type === 'token') tokens.push(event.tokenId);
    if (event.type === 'finish') usage = event.usage;
  }
  return { tokens, usage };
}
