/**
 * Whether speculation changes a text: every held-out question and acceptance prompt of the embedded model, plain against
 * speculative, greedy at every depth with and without context copy, and coupled at temperature 0.7 with five seeds.
 *
 *   npm run bench -- speculation-identity [--gate-policy uniform|strict] [--dtype bf16|f32] [--questions N] [--seeds N]
 *
 * Under `uniform` no text may differ (exit status 1 if one does); under `strict` the number of differing texts and the
 * first differing token of each are printed.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { prepareChat } from '../src/api/openai/chat.js';
import { resolveOptions } from '../src/config.js';
import { AutoregressiveSequence } from '../src/generate/autoregressive.js';
import { createSequence } from '../src/generate/choose-sequence.js';
import { singleModel } from '../src/http/model-specs.js';
import { openModel } from '../src/http/open-model.js';
import { embeddedModelFolder } from '../src/http/package-info.js';
import { createSampler, createSpeculativeSampler, samplingRules } from '../src/sample/sampler.js';
import { runTimed } from '../src/bench/timed-sequence.js';

const { values } = parseArgs({
  options: {
    'gate-policy': { type: 'string', default: 'uniform' },
    dtype: { type: 'string', default: 'bf16' },
    questions: { type: 'string', default: '200' },
    seeds: { type: 'string', default: '5' },
  },
});
const gatePolicy = values['gate-policy'] === 'strict' ? 'strict' : 'uniform';
const dtype = values.dtype === 'f32' ? 'f32' : 'bf16';
const MOST_TOKENS = 96;

const options = resolveOptions({ gatePolicy, dtype, parallel: 1, logLevel: 'silent' });
const opened = await openModel(singleModel(options), options);
const { model } = opened.loaded;
const stopTokenIds = opened.served.stopTokenIds;
const folder = embeddedModelFolder();

function questions(): number[][] {
  const held = JSON.parse(readFileSync(join(folder, 'heldout_questions.json'), 'utf8')) as { question: string }[];
  return held.slice(0, Number(values.questions)).map(({ question }) => {
    const { request } = prepareChat(
      { model: opened.served.id, messages: [{ role: 'user', content: question }] },
      { requestId: 'identity', signal: new AbortController().signal, models: [opened.served], now: Date.now() },
    );
    return [...request.promptTokens];
  });
}

function acceptancePrompts(): number[][] {
  const lines = readFileSync(join(folder, 'acceptance_prompts.jsonl'), 'utf8').split('\n');
  return lines.filter((line) => line !== '').map((line) => (JSON.parse(line) as { input_ids: number[] }).input_ids);
}

const rowDtype = dtype === 'bf16' ? 'bf16' : 'f32';
const shape = { vocabSize: model.vocabSize, rowDtype } as const;

async function plain(promptTokens: readonly number[], temperature: number, seed: bigint): Promise<readonly number[]> {
  const sampler = createSampler('mtplx', { ...samplingRules('mtplx').defaults, temperature, seed }, shape);
  const options = { promptTokens, maxTokens: MOST_TOKENS, stopTokenIds, sampler };
  return (await runTimed(model, new AutoregressiveSequence(model.newState(), options))).tokens;
}

async function speculative(
  promptTokens: readonly number[],
  temperature: number,
  seed: bigint,
  draftDepth: number,
  contextCopy: boolean,
): Promise<readonly number[]> {
  const settings = { ...samplingRules('mtplx').defaults, temperature, seed };
  const sampler = createSpeculativeSampler('mtplx', settings, { ...shape, acceptance: 'coupled' });
  const options = { promptTokens, maxTokens: MOST_TOKENS, stopTokenIds, sampler };
  return (await runTimed(model, createSequence(model, options, { draftDepth, depthPolicy: 'off', contextCopy })))
    .tokens;
}

let compared = 0;
const differing: string[] = [];
function compare(name: string, actual: readonly number[], expected: readonly number[]): void {
  compared++;
  if (actual.join() === expected.join()) return;
  const at = expected.findIndex((token, i) => token !== actual[i]);
  differing.push(`${name}: first at token ${at < 0 ? expected.length : at} of ${expected.length}`);
}

const prompts = [...questions(), ...acceptancePrompts()];
for (const [i, prompt] of prompts.entries()) {
  const expected = await plain(prompt, 0, 0n);
  for (const depth of [0, 1, 2, 3]) {
    for (const copy of [false, true]) {
      compare(
        `greedy, prompt ${i}, depth ${depth}, copy ${copy}`,
        await speculative(prompt, 0, 0n, depth, copy),
        expected,
      );
    }
  }
}
console.log(`greedy: ${compared} texts of ${prompts.length} prompts, ${differing.length} differ`);
const greedyDiffering = differing.length;
for (const [i, prompt] of questions().entries()) {
  for (let seed = 0n; seed < BigInt(values.seeds); seed++) {
    const expected = await plain(prompt, 0.7, seed);
    compare(`coupled, prompt ${i}, seed ${seed}`, await speculative(prompt, 0.7, seed, 3, true), expected);
  }
}
console.log(`all: ${compared} texts, ${differing.length} differ (${greedyDiffering} greedy); ${gatePolicy}, ${dtype}`);
for (const line of differing.slice(0, 20)) console.log(`  ${line}`);
await opened.close(0);
if (gatePolicy === 'uniform' && differing.length > 0) process.exitCode = 1;
