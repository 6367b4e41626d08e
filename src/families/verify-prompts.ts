/**
 * Judges a model against golden prompts (golden.jsonl beside the checkpoint): prompt ids, the reference's greedy
 * continuation with the margin of every choice, and the logits of the first step.
 *
 * Invariants: a continuation is compared up to the first step whose margin is below the tolerance, where another order
 * of float32 operations may choose otherwise; up to there every token must be equal.
 */
import { readFileSync } from 'node:fs';
import { PlumblineError } from '../errors.js';
import type { LanguageModel } from '../engine/model.js';
import { argmax, maxDifference } from './compare.js';
import { countEqualDrafts } from './verify-drafts.js';
import type { GoldenCheck } from './verify-golden.js';

/** Largest absolute difference of the first logits, and the margin under which a greedy choice may flip. */
const FIRST_LOGITS_LIMIT = 5e-5;
const MARGIN = 0.01;

interface GoldenPrompt {
  readonly name: string;
  readonly inputIds: readonly number[];
  readonly outputIds: readonly number[];
  readonly margins: readonly number[];
  readonly firstLogits: Float32Array;
  /** The draft head's greedy tokens per step; absent for some prompts. */
  readonly drafts?: readonly (readonly number[])[] | undefined;
}

/**
 * @param tiesOpenAbove prompt length from which on the model selects what its attention sees, and the reference leaves
 * the order of equal scores at the cut open: logits of longer prompts are reported but cannot be judged
 * @throws fixture_invalid naming file and line
 */
export async function checkPrompts(
  model: LanguageModel,
  path: string,
  tiesOpenAbove = Number.POSITIVE_INFINITY,
): Promise<GoldenCheck[]> {
  const prompts = readPrompts(path);
  const open: string[] = [];
  let worst = 0;
  let compared = 0;
  const diverged: string[] = [];
  for (const prompt of prompts) {
    const run = await continueGreedily(model, prompt);
    if (prompt.inputIds.length > tiesOpenAbove) open.push(`${prompt.name} ${run.firstDifference.toExponential(1)}`);
    else worst = Math.max(worst, run.firstDifference);
    compared += run.compared;
    if (!run.equal) diverged.push(prompt.name);
  }
  const drafts = await checkDraftTokens(model, prompts);
  return [
    ...drafts,
    {
      name: 'first-logits',
      value: worst,
      limit: FIRST_LOGITS_LIMIT,
      passed: worst <= FIRST_LOGITS_LIMIT,
      note:
        `${prompts.length - open.length} prompts` +
        (open.length ? `; not judged, because tied selections are open in the reference: ${open.join(', ')}` : ''),
    },
    {
      name: 'greedy-diverged',
      value: diverged.length,
      limit: 0,
      passed: diverged.length === 0,
      note: diverged.length ? diverged.join(', ') : `${compared} tokens compared`,
    },
  ];
}

/** The draft head's tokens; nothing when the model was loaded without one. */
async function checkDraftTokens(model: LanguageModel, prompts: readonly GoldenPrompt[]): Promise<GoldenCheck[]> {
  const head = model.speculation?.head;
  if (!head) return [];
  let total = 0;
  let equal = 0;
  for (const { inputIds, outputIds, drafts } of prompts) {
    if (!drafts) continue;
    const counted = await countEqualDrafts(model, head, { inputIds, outputIds, drafts });
    total += counted.total;
    equal += counted.equal;
  }
  const missed = total - equal;
  return [
    { name: 'draft-tokens-differing', value: missed, limit: 0, passed: missed === 0, note: `${total} draft tokens` },
  ];
}

async function continueGreedily(model: LanguageModel, prompt: GoldenPrompt) {
  let state = model.newState();
  let tokens = prompt.inputIds;
  let firstDifference = Number.POSITIVE_INFINITY;
  let compared = 0;
  let equal = true;
  try {
    for (let step = 0; step < prompt.outputIds.length; step++) {
      const [result] = await model.forward([{ state, tokens, logits: 'last' }], {
        phase: step === 0 ? 'prefill' : 'decode',
      });
      state.release();
      state = result!.state;
      const row = result!.logits[0]!;
      if (step === 0) firstDifference = maxDifference(row, prompt.firstLogits);
      if (prompt.margins[step]! < MARGIN) break;
      if (argmax(row) !== prompt.outputIds[step]) {
        equal = false;
        break;
      }
      compared++;
      tokens = [prompt.outputIds[step]!];
    }
  } finally {
    state.release();
  }
  return { firstDifference, compared, equal };
}

function readPrompts(path: string): GoldenPrompt[] {
  return readFileSync(path, 'utf8')
    .split('\n')
    .flatMap((text, index): GoldenPrompt[] => {
      if (text.trim() === '') return [];
      try {
        return [parsePrompt(JSON.parse(text) as Record<string, unknown>)];
      } catch (cause) {
        const reason = cause instanceof Error ? cause.message : String(cause);
        throw new PlumblineError('fixture_invalid', `${path} line ${index + 1}: ${reason}`, { cause });
      }
    });
}

function parsePrompt(line: Record<string, unknown>): GoldenPrompt {
  const numbers = (key: string): number[] => {
    const list = line[key];
    if (Array.isArray(list) && list.length > 0 && list.every((item) => typeof item === 'number')) return list;
    throw new PlumblineError('fixture_invalid', `${key} must be a list of numbers`);
  };
  const outputIds = numbers('output_ids');
  const margins = numbers('margins');
  if (typeof line.first_logits !== 'string' || margins.length !== outputIds.length) {
    throw new PlumblineError('fixture_invalid', 'first_logits must be base64 of float32, margins one per output id');
  }
  const bytes = Uint8Array.from(Buffer.from(line.first_logits, 'base64'));
  return {
    name: String(line.name),
    inputIds: numbers('input_ids'),
    outputIds,
    margins,
    firstLogits: new Float32Array(bytes.buffer, 0, bytes.length >> 2),
    drafts: Array.isArray(line.draft) ? (line.draft as number[][]) : undefined,
  };
}
