/**
 * A server over a tiny random checkpoint of one family, with a byte tokenizer that has the marks of both ds4 dialects, whose
 * answers can be dictated.
 */
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { GivenOptions } from '../../src/config.js';
import type { TestSeams } from '../../src/http/open-model.js';
import { byteTokenizerConfig, byteTokenizerJson, FIRST_BYTE } from './byte-tokenizer.js';
import { withEmbeddedServer, type EmbeddedServer } from './embedded-server.js';
import { temporaryFolder } from './repository.js';
import type { TinyModel } from './three-families.js';
import { writeCheckpoint, writeJson } from './write-checkpoint.js';
import { tinyDeepseekConfig, writeDeepseekCheckpoint } from './write-deepseek.js';
import { tinyGlmConfig, writeGlmCheckpoint } from './write-glm.js';

/** Of the models under the ds4 law: room for the introduction of tools, in bytes. */
export const CONTEXT = 4096;

const MARKS: readonly string[] = [
  ...['<｜begin▁of▁sentence｜>', '<｜end▁of▁sentence｜>', '<｜User｜>', '<｜Assistant｜>'],
  ...['<|user|>', '<|assistant|>', '<|observation|>', '<|system|>'],
];
const IDS: ReadonlyMap<string, number> = new Map([
  ...MARKS.map((mark, i) => [mark, 264 + i] as const),
  ...([['<think>', 260], ['</think>', 261]] as const), // prettier-ignore
]);

/** Ids of a text: of its marks where `split` does not say otherwise, else of its bytes. */
export function idsOfText(text: string, split: 'marks' | 'bytes' = 'marks'): number[] {
  const pieces = split === 'bytes' ? [text] : text.split(/(<[^<>]+>)/);
  return pieces.flatMap((piece) => IDS.get(piece) ?? [...Buffer.from(piece)].map((byte) => FIRST_BYTE + byte));
}

/** Says what the answers are; undefined: what the model says. */
export class Dictation {
  text: string | undefined;
  /** Called with every row that a token is made of, in place of a dictated one. */
  spoil: ((row: Float32Array, step: number) => void) | undefined;

  /** The rows that tokens were made of, as the model gave them. */
  rows: Float32Array[] = [];

  /** What further answers are, one after the other, over `text`. */
  set texts(texts: string[]) {
    this.#texts = texts;
    this.seeds = [];
  }
  get texts(): string[] {
    return this.#texts;
  }
  #texts: string[] = [];
  /** The seeds of the requests that said them. */
  seeds: (bigint | undefined)[] = [];

  readonly hook: NonNullable<TestSeams['rowHook']> = (row, { step, site }, { sampling }) => {
    if (site === 'closing_forward') return;
    if (step === 0 && this.#texts.length > 0) {
      this.text = this.#texts.shift();
      this.seeds.push(sampling.seed);
    }
    this.rows.push(row.slice());
    this.spoil?.(row, step);
    if (this.text === undefined) return;
    const id = idsOfText(this.text)[step];
    if (id === undefined) throw new Error('the dictated answer is too short');
    row.fill(-20);
    row[id] = 20;
  };
}

/** A checkpoint of the family in a folder of its own; the same every time. */
export function tinyCheckpoint(t: TestContext, model: TinyModel): string {
  const folder = join(temporaryFolder(t, 'tiny'), model);
  if (model === 'qwen') writeCheckpoint(folder, {});
  else if (model === 'deepseek')
    writeDeepseekCheckpoint(folder, { config: tinyDeepseekConfig({ max_position_embeddings: CONTEXT }) });
  else writeGlmCheckpoint(folder, { config: tinyGlmConfig({ max_position_embeddings: CONTEXT }) });
  const json = byteTokenizerJson() as { added_tokens: object[] };
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  json.added_tokens.push(...MARKS.map((content) => ({ ...flags, id: IDS.get(content), content })));
  writeJson(folder, 'tokenizer.json', json);
  const { chat_template, ...config } = byteTokenizerConfig();
  writeJson(folder, 'tokenizer_config.json', model === 'qwen' ? { ...config, chat_template } : config);
  return folder;
}

export async function tinyServer(
  t: TestContext,
  folder: string,
  dictation: Dictation,
  options: GivenOptions = {},
): Promise<EmbeddedServer> {
  const kept = { sessionRamMib: 16, sessionMinFreeMib: 0 };
  return withEmbeddedServer(t, { threads: 1, model: folder, ...kept, ...options }, { rowHook: dictation.hook });
}
