/**
 * Judges a model against a golden case: a folder with a checkpoint and what the reference implementation computes on it,
 * either tensors (golden.safetensors, golden.json) or prompts with their continuations (golden.jsonl).
 *
 * Invariants: limits are per family and stand in one table with their source; every comparison that the case allows is
 * made, and one that it does not allow is reported as absent, never as passed.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { PlumblineError } from '../errors.js';
import type { Backend } from '../engine/backends/backend.js';
import type { LanguageModel } from '../engine/model.js';
import { readJsonFile } from '../weights/json-file.js';
import { SafetensorsFile } from '../weights/safetensors.js';
import { argmax, maxDifference } from './compare.js';
import { loadModel } from './load.js';
import { isPagedModel, type PagedModel } from './paged-model.js';
import { QwenModel } from './qwen/model.js';
import { checkPrompts } from './verify-prompts.js';

/** Largest absolute differences that a right float32 engine may show, by the golden cases' own table. */
const F32_LIMITS: Readonly<Record<string, number>> = {
  qwen4_exp: 2e-5,
  qwen3_5: 2e-3,
  deepseek_v4: 2e-5,
  glm5_next: 3e-4,
};
/** Hidden layers may differ five times as much as logits. */
const HIDDEN_FACTOR = 5;

export interface GoldenCheck {
  readonly name:
    | 'whole'
    | 'chunked'
    | 'hidden'
    | 'bf16-top1'
    | 'bf16-median-rms'
    | 'first-logits'
    | 'greedy-diverged'
    | 'draft-tokens-differing';
  readonly value: number;
  /** `value` must not pass it; for `bf16-top1` it must not fall below it. */
  readonly limit: number;
  readonly passed: boolean;
  readonly note?: string | undefined;
}

export interface GoldenResult {
  readonly dir: string;
  readonly family: string;
  readonly law: string;
  readonly backend: string;
  readonly checks: readonly GoldenCheck[];
  readonly passed: boolean;
}

export interface GoldenOptions {
  readonly backend: Backend;
  /** Activation law; a float32 law is compared with the float32 results, any other with the bfloat16 run. */
  readonly dtype: string;
}

/** @throws fixture_invalid, and what loading throws */
export async function verifyGolden(dir: string, options: GoldenOptions): Promise<GoldenResult> {
  const prompts = join(dir, 'golden.jsonl');
  const golden = existsSync(prompts) ? undefined : openGolden(dir);
  const loaded = await loadModel({
    dir,
    id: 'golden',
    backend: options.backend,
    dtype: options.dtype,
    gatePolicy: 'strict',
    maxRows: 64,
    sequences: 3,
    draftHead: true,
  });
  const { model } = loaded;
  try {
    if (!isPagedModel(model)) throw new PlumblineError('config_unsupported', `${model.family} has no golden run`);
    const checks = golden
      ? await checkTensors(model, golden)
      : await checkPrompts(model, prompts, selectionFreeTokens(model));
    return {
      dir,
      family: model.family,
      law: model.activationLaw,
      backend: options.backend.name,
      checks,
      passed: checks.length > 0 && checks.every((check) => check.passed),
    };
  } finally {
    await model.close();
  }
}

/** Most tokens of a sequence in which every query sees every token. */
function selectionFreeTokens(model: LanguageModel): number | undefined {
  if (!(model instanceof QwenModel) || model.config.family !== 'qwen4_exp' || !model.config.indexer) return undefined;
  return model.config.indexer.budgetTokens + model.config.indexer.blockTokens - 1;
}

interface Golden {
  readonly ids: Int32Array;
  readonly chunks: readonly number[];
  /** A float32 tensor of golden.safetensors, or undefined. */
  tensor(name: string): Float32Array | undefined;
}

function openGolden(dir: string): Golden {
  const path = join(dir, 'golden.safetensors');
  const file = SafetensorsFile.open(path);
  try {
    const tensors = new Map<string, Float32Array>();
    for (const tensor of file.tensors.values()) {
      if (tensor.dtype === 'F32') tensors.set(tensor.name, file.readFloat32(tensor.name));
    }
    if (file.tensors.get('input_ids')?.dtype !== 'I64') {
      throw new PlumblineError('fixture_invalid', `${path} has no I64 tensor input_ids`);
    }
    const ids = Int32Array.from(file.readBigInt64('input_ids'), Number);
    const chunks = readJsonFile(join(dir, 'golden.json')).raw('chunks');
    const sizes = Array.isArray(chunks) ? chunks.map(Number) : [];
    if (sizes.reduce((a, b) => a + b, 0) !== ids.length || sizes.some((size) => !Number.isInteger(size) || size < 1)) {
      throw new PlumblineError(
        'fixture_invalid',
        `${join(dir, 'golden.json')}: chunks must add up to ${ids.length} tokens`,
      );
    }
    return { ids, chunks: sizes, tensor: (name) => tensors.get(name) };
  } finally {
    file.close();
  }
}

async function checkTensors(model: PagedModel, golden: Golden): Promise<GoldenCheck[]> {
  return model.activationLaw === 'f32' ? checkFloat32(model, golden) : checkBfloat16(model, golden);
}

async function checkFloat32(model: PagedModel, golden: Golden): Promise<GoldenCheck[]> {
  const limit = F32_LIMITS[model.family] ?? 0;
  const atMost = (name: GoldenCheck['name'], value: number, allowed: number, note?: string): GoldenCheck => ({
    name,
    value,
    limit: allowed,
    passed: value <= allowed,
    note,
  });
  const checks: GoldenCheck[] = [];
  const { logits, taps } = await wholeWithTaps(model, golden.ids);
  checks.push(atMost('whole', maxDifference(logits, need(golden, 'logits_f32')), limit));
  const layers = [...taps.layers, taps.headInput].flatMap((rows, layer) => {
    const expected = golden.tensor(`hidden_f32.${layer}`);
    return expected?.length === rows.length ? [{ layer, difference: maxDifference(rows, expected) }] : [];
  });
  const worst = layers.reduce((a, b) => (b.difference > a.difference ? b : a), { layer: -1, difference: 0 });
  checks.push(
    atMost(
      'hidden',
      layers.length ? worst.difference : Number.NaN,
      HIDDEN_FACTOR * limit,
      `${layers.length} layers, worst ${worst.layer}`,
    ),
  );
  const stepped = golden.tensor('step_logits_f32') ?? need(golden, 'logits_f32');
  checks.push(
    atMost(
      'chunked',
      maxDifference(await inChunks(model, golden), stepped),
      limit,
      `pieces ${golden.chunks.join(',')}`,
    ),
  );
  return checks;
}

/** Distribution checks against one bfloat16 run of the reference; which of them can tell anything depends on the family. */
async function checkBfloat16(model: PagedModel, golden: Golden): Promise<GoldenCheck[]> {
  const expected = need(golden, 'logits_bf16');
  const { logits } = await wholeWithTaps(model, golden.ids);
  const rows = golden.ids.length;
  const V = model.vocabSize;
  let agree = 0;
  const rms: number[] = [];
  for (let row = 0; row < rows; row++) {
    const ours = logits.subarray(row * V, (row + 1) * V);
    const theirs = expected.subarray(row * V, (row + 1) * V);
    if (argmax(ours) === argmax(theirs)) agree++;
    let squares = 0;
    for (let i = 0; i < V; i++) squares += (ours[i]! - theirs[i]!) ** 2;
    rms.push(Math.sqrt(squares / V));
  }
  const top1 = agree / rows;
  const median = rms.sort((a, b) => a - b)[rows >> 1]!;
  const top1Check: GoldenCheck = { name: 'bf16-top1', value: top1, limit: 0.95, passed: top1 >= 0.95 };
  const rmsCheck: GoldenCheck = { name: 'bf16-median-rms', value: median, limit: 25e-3, passed: median <= 25e-3 };
  return model.family === 'qwen3_5' ? [rmsCheck] : [top1Check];
}

async function wholeWithTaps(model: PagedModel, ids: Int32Array) {
  const state = model.newState();
  try {
    const { result, taps } = await model.forwardWithTaps({ state, tokens: ids }, { phase: 'prefill' });
    result.state.release();
    return { logits: joined(result.logits, model.vocabSize), taps };
  } finally {
    state.release();
  }
}

async function inChunks(model: PagedModel, golden: Golden): Promise<Float32Array> {
  let state = model.newState();
  const rows: Float32Array[] = [];
  let at = 0;
  try {
    for (const size of golden.chunks) {
      const tokens = golden.ids.slice(at, at + size);
      const [result] = await model.forward([{ state, tokens, logits: 'all' }], { phase: 'prefill' });
      state.release();
      state = result!.state;
      rows.push(...result!.logits);
      at += size;
    }
  } finally {
    state.release();
  }
  return joined(rows, model.vocabSize);
}

function need(golden: Golden, name: string): Float32Array {
  const tensor = golden.tensor(name);
  if (!tensor) throw new PlumblineError('fixture_invalid', `golden.safetensors has no F32 tensor ${name}`);
  return tensor;
}

function joined(rows: readonly Float32Array[], width: number): Float32Array {
  const all = new Float32Array(rows.length * width);
  rows.forEach((row, i) => {
    all.set(row, i * width);
  });
  return all;
}
