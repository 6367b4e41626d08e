/**
 * Puts one model together from its parts: backend, weights, tokenizer, chat format, scheduler. What comes out is the
 * `ServedModel` that the wire formats work with, whether behind a server or in a command.
 *
 * Invariants: cheap checks come before expensive ones (tokenizer before weights); on a failure everything that was opened
 * is closed again; `close` gives everything back, once.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ServedModel } from '../api/served-model.js';
import { ChatFormat, loadTemplate } from '../chat/chat-format.js';
import type { ChatDialect } from '../chat/dialects/dialect.js';
import { chatDialect } from '../chat/dialects/index.js';
import { fromKnownText } from '../chat/known-text.js';
import type { Options } from '../config.js';
import { openBackend, type OpenedBackend } from '../engine/backends/open-backend.js';
import type { LanguageModel } from '../engine/model.js';
import { PlumblineError } from '../errors.js';
import { loadModel, type FamilyLoadOptions, type LoadedModel } from '../families/load.js';
import type { LiveFigures } from '../observe/metrics.js';
import { createSequence, speculationObstacle } from '../generate/choose-sequence.js';
import { samplingRules } from '../sample/sampler.js';
import { Scheduler } from '../schedule/scheduler.js';
import { TextPrefixes } from '../sessions/text-prefixes.js';
import type { TokenBytes } from '../tokens/detokenizer.js';
import { TextAssembler } from '../tokens/text-assembler.js';
import { Tokenizer } from '../tokens/tokenizer.js';
import type { DeclinedPath, ModelHealth } from './health.js';
import type { ModelSpec } from './model-specs.js';
import { openSessions, type OpenedSessions, type SessionSeams } from './open-sessions.js';
import { packageVersion } from './package-info.js';
import { sessionFigures } from './session-figures.js';
import { declinedSpeculation, hookedClosing, samplerOf, speculationSettings, type RowHook } from './request-sampler.js';

/** Told while a model opens, so that a terminal or a log can show it. */
export interface OpenObserver
  extends Pick<FamilyLoadOptions, 'onMemoryPlan' | 'progress' | 'signal'>, Pick<SessionSeams, 'log' | 'onContainment'> {
  readonly onBackend?: ((opened: OpenedBackend) => void) | undefined;
}

/**
 * What only tests can reach: no flag, variable or public function leads here.
 */
export interface TestSeams extends Pick<SessionSeams, 'files' | 'containmentPoint'> {
  readonly rowHook?: RowHook | undefined;
}

export interface OpenedModel {
  readonly served: ServedModel;
  readonly loaded: LoadedModel;
  readonly backend: OpenedBackend;
  readonly folder: string;
  readonly sessions: OpenedSessions;
  health(): ModelHealth;
  live(): LiveFigures;
  /** Whether a failure has made the process unusable until it is started again. */
  isBroken(): boolean;
  /** Ends what runs (after at most `drainMs`) and gives everything back. */
  close(drainMs: number): Promise<void>;
}

/** @throws what tokenizer, backend and checkpoint throw; nothing stays open then. */
export async function openModel(
  { id, folder }: ModelSpec,
  options: Options,
  observer: OpenObserver = {},
  seams: TestSeams = {},
): Promise<OpenedModel> {
  const opened: (() => Promise<void>)[] = [];
  const closeAll = async (): Promise<void> => {
    for (const close of opened.splice(0).reverse()) await close();
  };
  try {
    if (!existsSync(join(folder, 'config.json'))) {
      throw new PlumblineError('checkpoint_not_found', `${folder} is no checkpoint folder: it has no config.json`);
    }
    const tokenizer = await Tokenizer.load(folder);
    const template = await loadTemplate(folder, tokenizer);
    const backend = await openBackend(options.backend, options.threads);
    opened.push(async () => backend.backend.close());
    observer.onBackend?.(backend);
    const loaded = await loadModel({
      dir: folder,
      id,
      backend: backend.backend,
      dtype: options.dtype,
      contextLength: options.context,
      gatePolicy: options.gatePolicy,
      draftHead: options.draftDepth > 0,
      maxRows: Math.max(options.prefillChunk, options.parallel),
      sequences: options.parallel,
      keptStateBytes: keptStateBytes(options),
      storesStates: options.sessions === 'on' && options.sessionDir !== undefined,
      onMemoryPlan: observer.onMemoryPlan,
      progress: observer.progress,
      signal: observer.signal,
    });
    opened.push(async () => loaded.model.close());
    requireKnownIds(tokenizer, loaded.model);
    const sessions = await openSessions(loaded, options, { ...observer, ...seams }, promptFormatOf(folder));
    opened.push(async () => sessions.close());
    const dialect = chatDialect(loaded.model.laws.chat);
    const chat = new ChatFormat(tokenizer, template, { dialect });
    const texts = textPrefixes(loaded.model, sessions, tokenizer, dialect);
    const scheduler = new Scheduler({
      model: loaded.model,
      createSampler: (request) => samplerOf(request, loaded, options, tokenizer.vocabSize, seams.rowHook),
      sessions: sessions.turns,
      createSequence: (model, request, sampler, prefillChunk, { start, ...boundaries }) => {
        const { promptTokens, maxTokens, stopTokenIds } = request;
        const speculationDeclined = declinedSpeculation(request, loaded, options);
        const sequence = createSequence(
          model,
          { promptTokens, maxTokens, stopTokenIds, sampler, prefillChunk, speculationDeclined, ...boundaries },
          speculationSettings(options),
          start,
        );
        return seams.rowHook ? hookedClosing(sequence, request, seams.rowHook) : sequence;
      },
      maxParallel: options.parallel,
      maxQueue: options.maxQueue,
      prefillChunk: options.prefillChunk,
    });
    return {
      served: servedModel(loaded, backend, tokenizer, chat, scheduler, sessions, texts, options),
      loaded,
      backend,
      folder,
      sessions,
      health: () => modelHealth(loaded, backend, chat, scheduler, sessions, options),
      live: () => {
        const { running, queued } = scheduler.stats();
        const figures = sessionFigures(loaded.model.id, sessions.health());
        return { running, waiting: queued, containment: sessions.figures(), sessions: figures && [figures] };
      },
      isBroken: () => scheduler.stats().mode === 'broken',
      close: async (drainMs) => {
        await scheduler.shutdown({ drainMs });
        await closeAll();
      },
    };
  } catch (thrown) {
    await closeAll();
    throw thrown;
  }
}

/** By what a conversation becomes tokens, as far as files say it. */
function promptFormatOf(folder: string): string {
  const hash = createHash('sha256');
  for (const name of ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja']) {
    const path = join(folder, name);
    if (existsSync(path)) hash.update(`${name}\0`).update(readFileSync(path));
  }
  return hash.digest('hex');
}

function keptStateBytes({ sessions, sessionRamMib }: Options): number | 'auto' {
  if (sessions === 'off') return 0;
  return sessionRamMib === undefined ? 'auto' : sessionRamMib * 2 ** 20;
}

function requireKnownIds(tokenizer: Tokenizer, model: LanguageModel): void {
  if (tokenizer.vocabSize <= model.vocabSize) return;
  throw new PlumblineError(
    'tokenizer_invalid',
    `tokenizer.json has ids up to ${tokenizer.vocabSize - 1}, the model a vocabulary of ${model.vocabSize}`,
  );
}

function servedModel(
  { model, generation, eosTokenIds }: LoadedModel,
  { backend }: OpenedBackend,
  tokenizer: Tokenizer,
  chat: ChatFormat,
  scheduler: Scheduler,
  { committed }: OpenedSessions,
  texts: TextPrefixes | undefined,
  options: Options,
): ServedModel {
  const { eos, pad } = tokenizer.namedTokens;
  const named = [eos, pad].flatMap((token) => (token === undefined ? [] : (tokenizer.addedTokenId(token) ?? [])));
  const endIds = [...new Set([...eosTokenIds, ...generation.eosTokenIds, ...named])];
  const turnEnds = endIds.map((id) => ({ id, text: Buffer.from(tokenizer.tokenBytes(id) ?? []).toString() }));
  const padId = generation.padTokenId === undefined ? [] : [generation.padTokenId];
  return {
    id: model.id,
    aliases: model.laws.modelAliases,
    family: model.family,
    createdAt: Math.floor(Date.now() / 1000),
    vocabSize: model.vocabSize,
    contextLength: model.contextLength,
    defaultMaxTokens: options.maxTokens,
    timeoutMs: options.requestTimeoutS > 0 ? options.requestTimeoutS * 1000 : undefined,
    samplingRules: samplingRules(model.laws.sampler),
    stopTokenIds: [...new Set([...eosTokenIds, ...generation.eosTokenIds, ...padId, ...named])],
    build: { version: packageVersion(), backend: backend.name, activationLaw: model.activationLaw },
    encode: (text) =>
      tokenizer.encode(text, { addSpecialTokens: true, limit: { tokens: model.contextLength, param: 'prompt' } }),
    ...(texts && {
      knownText: (plain: readonly number[], session?: string, answerTokens = 1) =>
        fromKnownText(plain, { texts, session, mostTokens: model.contextLength - answerTokens }, (text) =>
          tokenizer.encode(text),
        ),
    }),
    tokenBytes: (id) => tokenizer.tokenBytes(id),
    textSink: (stop) => new TextAssembler(shownTokens(tokenizer, chat), { stop }),
    chat: {
      readsThinking: chat.readsThinking,
      prepare: (conversation, session, wish) =>
        chat.prepare(conversation, model.contextLength, { session, committed, turnEnds, texts, ...wish }),
    },
    submit: (request) => scheduler.submit(request),
  };
}

/** Where states are known by their text; undefined where they are known by their tokens alone, or none are kept. */
function textPrefixes(
  { laws }: LanguageModel,
  { kept }: OpenedSessions,
  tokenizer: Tokenizer,
  dialect: ChatDialect | undefined,
): TextPrefixes | undefined {
  if (laws.prefixKey !== 'text' || kept === undefined) return undefined;
  const tokenBytes = (id: number): Uint8Array | undefined => tokenizer.tokenBytes(id);
  return new TextPrefixes({ ...kept, tokenBytes, visibleTexts: (text) => dialect?.visibleTexts(text) ?? [] });
}

/** The tokenizer's bytes, without the special tokens that are no text of an answer. */
function shownTokens(tokenizer: Tokenizer, chat: ChatFormat): TokenBytes {
  return { tokenBytes: (id) => tokenizer.tokenBytes(id), isSpecial: (id) => chat.isHidden(id) };
}

function modelHealth(
  { model, memory, report, generation }: LoadedModel,
  { backend, reason, declined }: OpenedBackend,
  chat: ChatFormat,
  scheduler: Scheduler,
  sessions: OpenedSessions,
  options: Options,
): ModelHealth {
  const { mode, running, queued, totals } = scheduler.stats();
  const paths: DeclinedPath[] = declined.map((passed) => ({
    path: `backend ${passed.backend}`,
    reason: passed.reason,
  }));
  if (backend.mapFile === undefined) {
    paths.push({ path: 'mapped weights', reason: `the ${backend.name} backend cannot map files; weights were read` });
  }
  if (chat.usesLayout) {
    paths.push({ path: 'chat template', reason: 'the checkpoint has none; prompts follow the layout of its family' });
  }
  const { temperature, topP, topK } = generation;
  if (
    !samplingRules(model.laws.sampler).generationConfig &&
    [temperature, topP, topK].some((value) => value !== undefined)
  ) {
    paths.push({
      path: 'sampling of generation_config.json',
      reason: 'the sampler law of the model has its own defaults',
    });
  }
  const { speculation } = options;
  if (speculation !== 'off') {
    const settings = speculationSettings(options);
    const obstacle = speculationObstacle(model, settings);
    if (obstacle !== undefined) paths.push({ path: `speculation ${speculation}`, reason: obstacle });
    else if (settings.draftDepth > 0 && model.speculation?.head === undefined) {
      paths.push({ path: 'draft head', reason: 'the checkpoint has none; only context copy proposes tokens' });
    }
  }
  for (const [part, bytes] of Object.entries(report.unservedBytes)) {
    if (bytes > 0) paths.push({ path: part, reason: 'the checkpoint has it; it was not loaded' });
  }
  return {
    id: model.id,
    family: model.family,
    context_length: model.contextLength,
    activation_law: model.activationLaw,
    backend: { name: backend.name, isa: backend.isa, threads: backend.threads, reason },
    memory: {
      plan: memory.lines.map(({ name, bytes, counted }) => ({ name, bytes, counted })),
      needed_bytes: memory.neededBytes,
      available_bytes: memory.availableBytes,
      allocated_bytes: backend.memory().allocated,
      mapped_bytes: backend.memory().mapped,
    },
    queue: { mode, running, waiting: queued, parallel: options.parallel, max_queue: options.maxQueue, totals },
    sessions: sessions.health(),
    declined: [...paths, ...sessions.declined()],
  };
}
