/**
 * The held-out questions of the embedded model, asked through the HTTP API: the share of greedy answers that begin with
 * the right first sentence (its first 40 characters, or all of a shorter one), as the model card counts it.
 *
 *   npm run bench -- heldout-questions [--dtype f32|bf16] [--backend cpu|wasm|reference]
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { parseOption, type GivenOptions } from '../src/config.js';
import { embeddedModelFolder } from '../src/http/package-info.js';
import { createServer } from '../src/index.js';

interface Question {
  readonly question: string;
  readonly group: string;
  readonly first: string;
}

const JUDGED_CHARACTERS = 40;
const MAX_TOKENS = 96;
/** Questions in flight at a time; answers do not depend on it. */
const AT_ONCE = 4;

const { values } = parseArgs({
  options: { dtype: { type: 'string', default: 'auto' }, backend: { type: 'string', default: 'auto' } },
});
const questions = JSON.parse(readFileSync(join(embeddedModelFolder(), 'heldout_questions.json'), 'utf8')) as Question[];

const server = await createServer({
  port: 0,
  logLevel: 'error',
  dtype: parseOption('dtype', values.dtype),
  backend: parseOption('backend', values.backend),
  parallel: AT_ONCE,
} as GivenOptions);

async function ask(content: string): Promise<{ text: string; stopped: boolean; law: string; backend: string }> {
  const response = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'plumbline-tiny',
      messages: [{ role: 'user', content }],
      temperature: 0,
      max_tokens: MAX_TOKENS,
    }),
  });
  const body = (await response.json()) as {
    choices: [{ message: { content: string }; finish_reason: string }];
    plumbline: { activation_law: string; backend: string };
  };
  const [choice] = body.choices;
  return {
    text: choice.message.content,
    stopped: choice.finish_reason === 'stop',
    law: body.plumbline.activation_law,
    backend: body.plumbline.backend,
  };
}

const groups = new Map<string, { asked: number; right: number; whole: number }>();
let stopped = 0;
let engine = '';
const started = performance.now();
try {
  const waiting = [...questions];
  const worker = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const { text, stopped: ended, law, backend } = await ask(next.question);
      engine = `${backend} ${law}`;
      const group = groups.get(next.group) ?? { asked: 0, right: 0, whole: 0 };
      group.asked += 1;
      group.right += text.startsWith(next.first.slice(0, JUDGED_CHARACTERS)) ? 1 : 0;
      group.whole += text.startsWith(next.first) ? 1 : 0;
      groups.set(next.group, group);
      stopped += ended ? 1 : 0;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
} finally {
  await server.close();
}

const seconds = (performance.now() - started) / 1000;
const percent = (part: number, all: number): string => `${((100 * part) / all).toFixed(1)} %`;
const sum = (field: 'right' | 'whole'): number =>
  [...groups.values()].reduce((total, group) => total + group[field], 0);
for (const [name, group] of groups) console.log(`${percent(group.right, group.asked)}  ${name} (${group.asked})`);
console.log(
  `${percent(sum('right'), questions.length)}  all (${questions.length}), whole first sentence ${percent(sum('whole'), questions.length)}, ` +
    `stopped by itself ${percent(stopped, questions.length)}; ${engine}, ${seconds.toFixed(1)} s`,
);
