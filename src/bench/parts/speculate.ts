/**
 * Speculation with the draft head: what it gains on the embedded model's own prompts, and what a round costs on a synthetic
 * model whose drafts are made to be accepted, or refused.
 *
 * Invariants: plain and speculative runs of a prompt follow each other, so that the machine's mood weighs on both; texts
 * are compared, and a gain is only told of where they are equal; greedy throughout. The forced drafts of the synthetic
 * model are made one by one, since a head cannot go on by itself from tokens that it would not have chosen.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PlumblineError } from '../../errors.js';
import type { LanguageModel } from '../../engine/model.js';
import { withBackend } from '../../engine/backends/open-backend.js';
import { loadModel } from '../../families/load.js';
import { loadSynthetic } from '../../families/synthetic.js';
import { countEqualDrafts } from '../../families/verify-drafts.js';
import { AutoregressiveSequence } from '../../generate/autoregressive.js';
import { createDepthPolicy } from '../../generate/depth-policy.js';
import { SpeculativeSequence } from '../../generate/speculate.js';
import { embeddedModelFolder } from '../../http/package-info.js';
import { createSampler, createSpeculativeSampler, samplingRules } from '../../sample/sampler.js';
import type { SpeculativeSampler } from '../../sample/speculation.js';
import { against, spread, withLimit, type Figure, type PartReport } from '../figures.js';
import { LENGTHS, type BenchContext } from '../session.js';
import { runTimed, type TimedRun } from '../timed-sequence.js';
import { promptOf } from '../token-run.js';

const MOST_TOKENS = 96;
const DEPTHS = [1, 2, 3] as const;
const GREEDY = { ...samplingRules('mtplx').defaults, temperature: 0, seed: 0n };

interface Prompt {
  readonly kind: string;
  readonly tokens: readonly number[];
}

export async function benchSpeculate(context: BenchContext, threads: number): Promise<PartReport> {
  const embedded = await withBackend(context.backend, threads, async ({ backend }) => {
    const { model, eosTokenIds } = await loadModel({
      dir: embeddedModelFolder(),
      id: 'embedded',
      backend,
      dtype: 'auto',
      gatePolicy: 'uniform',
      maxRows: 256,
      sequences: 2,
      draftHead: true,
    });
    try {
      return await measureEmbedded(context, model, eosTokenIds);
    } finally {
      await model.close();
    }
  });
  const synthetic = await measureSynthetic(context, threads);
  return {
    part: 'speculate',
    figures: [...embedded.figures, ...synthetic.figures],
    notes: [...embedded.notes, ...synthetic.notes],
  };
}

// ---- the embedded model ----

interface KindTotals {
  tokens: number;
  plainMs: number;
  readonly depths: readonly DepthTotals[];
}

interface DepthTotals {
  rounds: number;
  ms: number;
  /** Milliseconds by kind of work. */
  readonly works: Map<string, number>;
}

async function measureEmbedded(context: BenchContext, model: LanguageModel, stopTokenIds: readonly number[]) {
  const prompts = readPrompts().filter((_, i) => !context.quick || i % 10 === 0);
  const totals = new Map<string, KindTotals>();
  const byPosition = DEPTHS.map(() => ({ offered: 0, accepted: 0 }));
  let differing = 0;
  await warmUp(model, prompts[0]!.tokens, MOST_TOKENS, context.signal);
  for (const [i, { kind, tokens }] of prompts.entries()) {
    context.progress(`speculation: prompt ${i + 1} of ${prompts.length}`);
    const total = totals.get(kind) ?? {
      tokens: 0,
      plainMs: 0,
      depths: DEPTHS.map(() => ({ rounds: 0, ms: 0, works: new Map<string, number>() })),
    };
    totals.set(kind, total);
    const options = { promptTokens: tokens, maxTokens: MOST_TOKENS, stopTokenIds };
    const plain = await runTimed(
      model,
      new AutoregressiveSequence(model.newState(), { ...options, sampler: plainSampler(model) }),
      context.signal,
    );
    total.tokens += plain.tokens.length;
    total.plainMs += plain.decodeMs;
    for (const depth of DEPTHS) {
      const sequence = speculative(model, { ...options, sampler: speculativeSampler(model) }, depth);
      const run = await runTimed(model, sequence, context.signal);
      if (run.tokens.join() !== plain.tokens.join()) differing++;
      const own = total.depths[depth - 1]!;
      own.rounds += sequence.speculation.rounds;
      own.ms += run.decodeMs;
      for (const [work, { ms }] of run.works) own.works.set(work, (own.works.get(work) ?? 0) + ms);
    }
    await countByPosition(model, tokens, plain.tokens, byPosition);
  }
  const rates = byPosition.map(({ offered, accepted }) => `${((100 * accepted) / offered).toFixed(1)} %`);
  return {
    figures: [...totals].flatMap(([kind, total]) => DEPTHS.map((depth) => gainFigure(kind, total, depth))),
    notes: [
      `${prompts.length} prompts of acceptance_prompts.jsonl, up to ${MOST_TOKENS} tokens each, greedy, gate policy uniform; ` +
        `texts that differ from plain decoding: ${differing}`,
      `acceptance by depth, given that the depths below were right, at every position of the text: ${rates.join(', ')}`,
      ...[...totals].flatMap(([kind, total]) => DEPTHS.map((depth) => roundNote(kind, total, depth))),
    ],
  };
}

/** The gain, beside that of rounds which cost their verify forward and nothing else. */
function gainFigure(kind: string, { plainMs, depths }: KindTotals, depth: number): Figure {
  const { ms, works } = depths[depth - 1]!;
  const bound = plainMs / (works.get('verify') ?? ms);
  const what = 'if drafts, commits and the loop between the forwards cost nothing';
  return against(`${kind}: speed-up over plain decoding, depth ${depth}`, 'x', [plainMs / ms], [bound], what);
}

function roundNote(kind: string, { tokens, plainMs, depths }: KindTotals, depth: number): string {
  const { rounds, works, ms } = depths[depth - 1]!;
  const cost = (milliseconds: number): string => `${(milliseconds / rounds).toFixed(2)} ms`;
  const parts = ['verify', 'draft', 'commit', 'between'].map((work) => `${work} ${cost(works.get(work) ?? 0)}`);
  return (
    `${kind}, depth ${depth}: ${(tokens / rounds).toFixed(2)} tokens a round of ${cost(ms)} (${parts.join(', ')}); ` +
    `a plain token ${(plainMs / tokens).toFixed(2)} ms`
  );
}

/** Whether the head is right at depths 1 to 3, at every position of a text as the primary of a round. */
async function countByPosition(
  model: LanguageModel,
  inputIds: readonly number[],
  outputIds: readonly number[],
  counts: readonly { offered: number; accepted: number }[],
): Promise<void> {
  const head = model.speculation?.head;
  if (!head) return;
  const positions = Math.max(0, outputIds.length - DEPTHS.length);
  const drafts = Array.from({ length: positions }, (_, i) => outputIds.slice(i + 1, i + 1 + DEPTHS.length));
  const { equalByStep } = await countEqualDrafts(model, head, { inputIds, outputIds, drafts });
  for (const equal of equalByStep) {
    for (const [depth, count] of counts.entries()) {
      if (!equal.slice(0, depth).every(Boolean)) break;
      count.offered++;
      if (equal[depth] === true) count.accepted++;
    }
  }
}

function readPrompts(): Prompt[] {
  return readFileSync(join(embeddedModelFolder(), 'acceptance_prompts.jsonl'), 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const { kind, input_ids: tokens } = JSON.parse(line) as { kind: string; input_ids: number[] };
      return { kind, tokens };
    });
}

// ---- the synthetic model ----

async function measureSynthetic(context: BenchContext, threads: number) {
  return withBackend(context.backend, threads, async ({ backend }) => {
    const { model } = await loadSynthetic({
      size: context.size,
      seed: 2,
      id: 'synthetic',
      backend,
      dtype: 'bf16',
      contextLength: LENGTHS[context.size].context,
      gatePolicy: 'uniform',
      maxRows: 64,
      sequences: 2,
      draftHead: true,
      signal: context.signal,
      progress: ({ loadedBytes, totalBytes }) =>
        context.progress(`making weights ${Math.floor((100 * loadedBytes) / totalBytes)} %`),
    });
    try {
      return await measureRounds(context, model);
    } finally {
      await model.close();
    }
  });
}

async function measureRounds(context: BenchContext, model: LanguageModel) {
  const count = context.quick ? 24 : 64;
  const prompt = promptOf(LENGTHS[context.size].decodeAfter, model.vocabSize);
  const options = { promptTokens: prompt, maxTokens: count, stopTokenIds: [] };
  context.progress('speculation: plain decoding of the synthetic model');
  await warmUp(model, prompt, 8, context.signal);
  const plain = await runTimed(
    model,
    new AutoregressiveSequence(model.newState(), { ...options, sampler: plainSampler(model) }),
    context.signal,
  );
  const figures: Figure[] = [];
  const notes: string[] = [];
  const plainMs = plain.decodeMs / (plain.tokens.length - 1);
  for (const depth of DEPTHS) {
    for (const accepted of [true, false]) {
      context.progress(`speculation: depth ${depth}, drafts ${accepted ? 'accepted' : 'refused'}`);
      const sampler = forcedDrafts(speculativeSampler(model), plain.tokens, accepted, model.vocabSize);
      const sequence = speculative(model, { ...options, sampler }, depth);
      const run = await runTimed(model, sequence, context.signal);
      const roundMs = run.decodeMs / sequence.speculation.rounds;
      if (accepted) {
        const gain = plainMs / (run.decodeMs / (run.tokens.length - 1));
        figures.push({
          name: `synthetic: speed-up, every draft right, depth ${depth}`,
          unit: 'x',
          value: spread([gain]),
        });
        notes.push(
          `synthetic, depth ${depth}: a round takes ${roundMs.toFixed(1)} ms, a plain token ${plainMs.toFixed(1)} ms: ` +
            `speculation pays from ${(roundMs / plainMs).toFixed(2)} tokens a round on`,
        );
      } else {
        figures.push(overheadFigure(run, depth));
      }
    }
  }
  return { figures, notes };
}

/** What a round costs beside its verify forward and its drafts, in parts of those. */
function overheadFigure({ decodeMs, works }: TimedRun, depth: number): Figure {
  const useful = (works.get('verify')?.ms ?? 0) + (works.get('draft')?.ms ?? 0);
  const overhead = (decodeMs - useful) / useful;
  return withLimit(
    { name: `synthetic: overhead of a refused round, depth ${depth}`, unit: 'x', value: spread([overhead]) },
    overhead,
    0.15,
    'at most 0.15 of verify forward and drafts',
  );
}

/** A sampler whose drafts are the tokens that plain decoding gave, or their neighbours, whatever the head says. */
function forcedDrafts(
  sampler: SpeculativeSampler,
  tokens: readonly number[],
  right: boolean,
  vocabSize: number,
): SpeculativeSampler {
  return {
    seed: sampler.seed,
    greedy: sampler.greedy,
    acceptance: sampler.acceptance,
    penalised: sampler.penalised,
    greedyDrafts: false, // they are what is forced
    next: (row, context) => sampler.next(row, context),
    check: (row, context) => sampler.check(row, context),
    accept: (window) => sampler.accept(window),
    draft(row, context) {
      const choice = sampler.draft(row, context); // the row is checked and shaped as ever
      const token = tokens[context.step];
      if (token === undefined) return choice;
      return { tokenId: right ? token : (token + 1) % vocabSize };
    },
  };
}

// ---- shared ----

/** Has every plan built that the rounds will need. */
async function warmUp(
  model: LanguageModel,
  promptTokens: readonly number[],
  maxTokens: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (const depth of DEPTHS) {
    const options = { promptTokens, maxTokens, stopTokenIds: [], sampler: speculativeSampler(model) };
    await runTimed(model, speculative(model, options, depth), signal);
  }
}

function speculative(
  model: LanguageModel,
  options: Omit<
    ConstructorParameters<typeof SpeculativeSequence>[1],
    'head' | 'depthPolicy' | 'contextCopy' | 'maxWindow'
  >,
  depth: number,
): SpeculativeSequence {
  const { speculation } = model;
  if (!speculation?.head)
    throw new PlumblineError('internal_error', 'the model of a speculation bench has no draft head');
  return new SpeculativeSequence(model.newState(), {
    ...options,
    head: speculation.head,
    depthPolicy: createDepthPolicy('off', depth),
    contextCopy: undefined,
    maxWindow: speculation.maxWindow,
  });
}

const samplerOptions = (model: LanguageModel) => ({
  vocabSize: model.vocabSize,
  rowDtype: model.activationLaw.startsWith('bf16') ? ('bf16' as const) : ('f32' as const),
});

const plainSampler = (model: LanguageModel) => createSampler(model.laws.sampler, GREEDY, samplerOptions(model));

const speculativeSampler = (model: LanguageModel) =>
  createSpeculativeSampler(model.laws.sampler, GREEDY, { ...samplerOptions(model), acceptance: 'plain' });
