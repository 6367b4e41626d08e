/**
 * What warm sessions are worth: the time to the first token of a turn, cold, from memory and from disk; and what the disk
 * does for it (session-disk.ts).
 *
 * Invariant: a warm turn stands beside its own new tokens forwarded from a state that was at hand all the time, in the same
 * round.
 */
import { performance } from 'node:perf_hooks';
import { withBackend } from '../../engine/backends/open-backend.js';
import type { LanguageModel, SequenceState, StateCodecs } from '../../engine/model.js';
import { PlumblineError } from '../../errors.js';
import { loadSynthetic, type SyntheticSize } from '../../families/synthetic.js';
import { AutoregressiveSequence } from '../../generate/autoregressive.js';
import { createSampler, samplingRules } from '../../sample/sampler.js';
import { Bank } from '../../sessions/bank.js';
import { NO_FENCES } from '../../sessions/fence-view.js';
import type { Capture } from '../../sessions/types.js';
import { against, spread, withLimit, type Figure, type PartReport } from '../figures.js';
import {
  candidateOf,
  readPlainly,
  restored,
  SESSION,
  STAMP,
  withScratchStore,
  type ScratchStore,
} from '../scratch-store.js';
import { PREFILL_CHUNK, type BenchContext } from '../session.js';
import { promptOf } from '../token-run.js';
import { measureRestore, measureWriting } from './session-disk.js';

/** How much is measured, by the size of the model. */
interface Extent {
  /** Tokens of the conversation before the measured turn. */
  readonly lengths: readonly number[];
  /** New tokens of that turn. */
  readonly turnTokens: number;
  readonly restoreBytes: number;
  readonly scriptedTurns: number;
  readonly scriptedTurnTokens: number;
}

const EXTENTS: Readonly<Record<SyntheticSize, Extent>> = {
  standard: {
    lengths: [1024, 4096, 16_384 - 128],
    turnTokens: 128,
    restoreBytes: 2 ** 30,
    scriptedTurns: 100,
    scriptedTurnTokens: 160,
  },
  tiny: {
    lengths: [128, 512],
    turnTokens: 64,
    restoreBytes: 2 ** 28,
    scriptedTurns: 100,
    scriptedTurnTokens: 160,
  },
};

const WARM_LIMIT = 1.05;
const BUFFER_BYTES = 2 ** 26;
export async function benchSessions(context: BenchContext, threads: number): Promise<PartReport> {
  const { quick, size } = context;
  const all = EXTENTS[size];
  const extent = quick ? { ...all, lengths: all.lengths.slice(0, 1), restoreBytes: all.restoreBytes / 4 } : all;
  return withBackend(context.backend, threads, async ({ backend }) => {
    const { model } = await loadSynthetic({
      size,
      seed: 2,
      id: 'synthetic',
      backend,
      dtype: 'bf16',
      contextLength: Math.max(...extent.lengths) + extent.turnTokens + 16,
      gatePolicy: 'strict',
      maxRows: PREFILL_CHUNK,
      sequences: 3,
      signal: context.signal,
      progress: ({ loadedBytes, totalBytes }) =>
        context.progress(`making weights ${Math.floor((100 * loadedBytes) / totalBytes)} %`),
    });
    try {
      const { stateCodecs: codecs } = model;
      if (codecs === undefined) throw new PlumblineError('internal_error', 'the synthetic model keeps no states');
      const turns = await measureTurns(context, model, codecs, extent);
      const written = await measureWriting(context, backend, codecs, extent);
      const restores = await measureRestore(context, backend, extent.restoreBytes);
      return {
        part: 'sessions',
        figures: [...turns, ...restores.figures, ...written.figures],
        notes: [...restores.notes, ...written.notes],
      };
    } finally {
      await model.close();
    }
  });
}

// ---- the first token of a turn ----

async function measureTurns(
  context: BenchContext,
  model: LanguageModel,
  codecs: StateCodecs,
  { lengths, turnTokens }: Extent,
): Promise<Figure[]> {
  const conversation = promptOf(Math.max(...lengths) + turnTokens, model.vocabSize);
  const bank = new Bank<SequenceState>(2 ** 40, NO_FENCES);
  return withScratchStore(codecs, 2 ** 40, async (scratch) => {
    const figures: Figure[] = [];
    const buffer = new Uint8Array(BUFFER_BYTES);
    let state = model.newState();
    try {
      for (const length of lengths) {
        context.progress(`sessions: a conversation of ${length} tokens`);
        const prompt = conversation.slice(0, length + turnTokens);
        const cold = await timed(() => firstToken(context, model, model.newState(), prompt));
        const [grown] = await model.forward(
          [{ state, tokens: conversation.slice(state.length, length), logits: 'none' }],
          { phase: 'prefill', signal: context.signal },
        );
        state.release();
        state = grown!.state;
        const capture: Capture<SequenceState> = {
          kind: 'turn',
          tokens: Int32Array.from(conversation.slice(0, length)),
          trunk: state,
        };
        bank.put(capture, { session: SESSION, lane: 'ar', lineage: [{ session: SESSION, epoch: 0 }] });
        await scratch.save(capture, STAMP);
        figures.push(...(await measureTurn(context, model, { bank, scratch, state, prompt, cold, buffer })));
      }
    } finally {
      state.release();
      bank.clear();
    }
    return figures;
  });
}

interface TurnSetting {
  readonly bank: Bank<SequenceState>;
  readonly scratch: ScratchStore;
  /** Of all tokens of the prompt but the new ones. */
  readonly state: SequenceState;
  readonly prompt: readonly number[];
  readonly cold: number;
  readonly buffer: Uint8Array;
}

async function measureTurn(
  context: BenchContext,
  model: LanguageModel,
  { bank, scratch, state, prompt, cold, buffer }: TurnSetting,
): Promise<Figure[]> {
  const alone: number[] = [];
  const ram: number[] = [];
  const disk: number[] = [];
  const aloneAndRead: number[] = [];
  await firstToken(context, model, state.retain(), prompt); // builds the plans
  for (let round = 0; round < (context.quick ? 1 : 5); round++) {
    const before = await timed(() => firstToken(context, model, state.retain(), prompt));
    ram.push(
      await timed(async () => {
        const found = bank.match(prompt, 'ar', SESSION);
        if (found.kind !== 'found') throw new PlumblineError('internal_error', 'the bank has lost a conversation');
        await firstToken(context, model, found.entry.capture.trunk.retain(), prompt);
      }),
    );
    const candidate = candidateOf(scratch, prompt);
    disk.push(
      await timed(async () => {
        const { trunk } = await restored(scratch, candidateOf(scratch, prompt));
        await firstToken(context, model, trunk, prompt);
      }),
    );
    const after = await timed(() => firstToken(context, model, state.retain(), prompt));
    alone.push((before + after) / 2);
    aloneAndRead.push((before + after) / 2 + readPlainly(scratch.filesOf(candidate), buffer).ms);
  }
  const name = `first token of a turn behind ${state.length} tokens`;
  const warm = (place: string, values: readonly number[], bounds: readonly number[], what: string): Figure => {
    const figure = against(`  from ${place}`, 'ms', values, bounds, what);
    return withLimit(figure, figure.bound.share.median, WARM_LIMIT, `within 5 % of ${what}`);
  };
  return [
    { name: `${name}, cold`, unit: 'ms', value: spread([cold]) },
    warm('memory', ram, alone, 'its new tokens alone'),
    warm('disk', disk, aloneAndRead, 'its new tokens alone, and reading the files'),
  ];
}

/** Runs a sequence up to its first token. Takes the state over. */
async function firstToken(
  { signal }: BenchContext,
  model: LanguageModel,
  state: SequenceState,
  promptTokens: readonly number[],
): Promise<void> {
  const sampler = createSampler(
    model.laws.sampler,
    { ...samplingRules(model.laws.sampler).defaults, temperature: 0, seed: 0n },
    { vocabSize: model.vocabSize, rowDtype: 'bf16' },
  );
  const options = { promptTokens, maxTokens: 1, stopTokenIds: [], sampler, prefillChunk: PREFILL_CHUNK };
  const sequence = new AutoregressiveSequence(state, options);
  try {
    for (let { work } = sequence; work !== undefined; { work } = sequence) {
      const [result] = await model.forward([work.request], { phase: work.phase, signal });
      sequence.accept(result!);
    }
  } finally {
    sequence.release();
  }
}

async function timed(work: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}
