/**
 * Reads and judges tokenizer.json and tokenizer_config.json before the tokenizer library sees them.
 *
 * Invariants: what passes is a byte-level BPE whose every token has known bytes, whose every merge joins two tokens into
 * a third, and which can write every byte that UTF-8 text can hold, so encoding never drops a character. What does not
 * pass is a `tokenizer_invalid` that names the file and the entry; nothing of the file is trusted unchecked.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { PlumblineError } from '../errors.js';
import { alphabetToBytes, BYTE_CHARACTERS } from './byte-alphabet.js';

export interface AddedTokenEntry {
  readonly id: number;
  readonly content: string;
  /** Control tokens such as `<|im_end|>`; false for visible markers such as `<think>`. */
  readonly special: boolean;
}

/** The two files, parsed and judged. The JSON objects are handed to the library as they are. */
export interface TokenizerFiles {
  readonly tokenizerJson: Readonly<Record<string, unknown>>;
  readonly configJson: Readonly<Record<string, unknown>>;
  /** model.vocab: token string in the byte alphabet, to id. */
  readonly vocab: ReadonlyMap<string, number>;
  readonly addedTokens: readonly AddedTokenEntry[];
}

/** Larger files are refused unread; the largest published tokenizers are below 40 MiB. */
const MAX_FILE_BYTES = 256 * 1024 * 1024;
/** An id beyond this is damage, not a vocabulary. */
const MAX_TOKEN_ID = 2 ** 24 - 1;

const invalid = (message: string, cause?: unknown): PlumblineError =>
  new PlumblineError('tokenizer_invalid', message, cause === undefined ? {} : { cause });

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const isTokenId = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MAX_TOKEN_ID;

/** A string for an error message, cut to a length that a log line bears. */
const quote = (value: unknown): string => {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
};

async function readJson(folder: string, name: string): Promise<unknown> {
  let text: string;
  try {
    const path = join(folder, name);
    const { size } = await stat(path);
    if (size > MAX_FILE_BYTES)
      throw invalid(`${name}: ${size} bytes is more than a tokenizer file can have (${MAX_FILE_BYTES})`);
    text = new TextDecoder('utf-8', { fatal: true }).decode(await readFile(path));
  } catch (error) {
    if (error instanceof PlumblineError) throw error;
    throw invalid(`${name} could not be read: ${error instanceof Error ? error.message : String(error)}`, error);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw invalid(`${name} is not JSON: ${error instanceof Error ? error.message : String(error)}`, error);
  }
}

/** Reads both files of a checkpoint folder. Throws `tokenizer_invalid`. */
export async function readTokenizerFiles(folder: string): Promise<TokenizerFiles> {
  return checkTokenizerFiles(await readJson(folder, 'tokenizer.json'), await readJson(folder, 'tokenizer_config.json'));
}

/** Judges already parsed files. Throws `tokenizer_invalid`. */
export function checkTokenizerFiles(tokenizerJson: unknown, configJson: unknown): TokenizerFiles {
  if (!isObject(tokenizerJson)) throw invalid('tokenizer.json: the top level is not an object');
  if (!isObject(configJson)) throw invalid('tokenizer_config.json: the top level is not an object');
  const model = tokenizerJson['model'];
  if (!isObject(model)) throw invalid('tokenizer.json: "model" is not an object');
  if (model['type'] !== 'BPE')
    throw invalid(`tokenizer.json: model.type is ${quote(model['type'])}; only "BPE" is supported`);
  if (model['byte_fallback'] === true)
    throw invalid('tokenizer.json: model.byte_fallback is not supported; plumbline reads byte-level BPE');
  for (const [stage, part] of [
    ['pre_tokenizer', 'pretokenizers'],
    ['decoder', 'decoders'],
  ] as const) {
    if (!hasByteLevelStage(tokenizerJson[stage], part))
      throw invalid(`tokenizer.json: "${stage}" has no ByteLevel stage; plumbline reads byte-level BPE`);
  }
  const vocab = checkVocab(model['vocab']);
  const addedTokens = checkAddedTokens(tokenizerJson['added_tokens'], vocab);
  checkAlphabet(vocab, addedTokens);
  checkMerges(model['merges'], vocab);
  return { tokenizerJson, configJson, vocab, addedTokens };
}

function hasByteLevelStage(stage: unknown, listKey: string): boolean {
  if (!isObject(stage)) return false;
  const list = stage[listKey];
  if (stage['type'] === 'Sequence' && Array.isArray(list))
    return list.some((inner) => hasByteLevelStage(inner, listKey));
  return stage['type'] === 'ByteLevel';
}

function checkVocab(vocab: unknown): Map<string, number> {
  if (!isObject(vocab)) throw invalid('tokenizer.json: model.vocab is not an object');
  const byToken = new Map<string, number>();
  const seen = new Set<number>();
  for (const [token, id] of Object.entries(vocab)) {
    if (!isTokenId(id))
      throw invalid(`tokenizer.json: model.vocab[${quote(token)}] is ${quote(id)}, not an id in [0, ${MAX_TOKEN_ID}]`);
    if (seen.has(id))
      throw invalid(`tokenizer.json: id ${id} belongs to two entries of model.vocab, one is ${quote(token)}`);
    seen.add(id);
    byToken.set(token, id);
  }
  if (byToken.size === 0) throw invalid('tokenizer.json: model.vocab is empty');
  return byToken;
}

function checkAddedTokens(added: unknown, vocab: ReadonlyMap<string, number>): AddedTokenEntry[] {
  if (!Array.isArray(added)) throw invalid('tokenizer.json: "added_tokens" is not a list');
  const tokenOfId = new Map([...vocab].map(([token, id]) => [id, token]));
  const ids = new Set<number>();
  const contents = new Set<string>();
  return added.map((entry: unknown, index) => {
    const at = `tokenizer.json: added_tokens[${index}]`;
    if (!isObject(entry)) throw invalid(`${at} is not an object`);
    const { id, content, special } = entry;
    if (!isTokenId(id)) throw invalid(`${at}.id is ${quote(id)}, not an id in [0, ${MAX_TOKEN_ID}]`);
    if (typeof content !== 'string' || content === '')
      throw invalid(`${at}.content is ${quote(content)}, not a non-empty string`);
    if (special !== undefined && typeof special !== 'boolean')
      throw invalid(`${at}.special is ${quote(special)}, not true or false`);
    if (ids.has(id) || contents.has(content)) throw invalid(`${at} repeats id ${id} or content ${quote(content)}`);
    const inVocab = tokenOfId.get(id);
    if (inVocab !== undefined && inVocab !== content)
      throw invalid(`${at} gives id ${id} to ${quote(content)}, but model.vocab gives it to ${quote(inVocab)}`);
    if ((vocab.get(content) ?? id) !== id)
      throw invalid(`${at} gives ${quote(content)} id ${id}, but model.vocab gives it ${vocab.get(content)}`);
    ids.add(id);
    contents.add(content);
    return { id, content, special: special ?? false };
  });
}

/** Bytes that can occur in UTF-8: all but C0, C1 and F5..FF. */
const occursInUtf8 = (byte: number): boolean => byte < 0xc0 || (byte > 0xc1 && byte < 0xf5);

function checkAlphabet(vocab: ReadonlyMap<string, number>, added: readonly AddedTokenEntry[]): void {
  const contents = new Set(added.map((entry) => entry.content));
  for (const token of vocab.keys()) {
    if (!contents.has(token) && alphabetToBytes(token) === undefined) {
      throw invalid(`tokenizer.json: model.vocab entry ${quote(token)} has a character outside the byte alphabet`);
    }
  }
  BYTE_CHARACTERS.forEach((character, byte) => {
    if (occursInUtf8(byte) && !vocab.has(character)) {
      throw invalid(
        `tokenizer.json: no token of model.vocab stands for the byte 0x${byte.toString(16).padStart(2, '0')}`,
      );
    }
  });
}

function checkMerges(merges: unknown, vocab: ReadonlyMap<string, number>): void {
  if (!Array.isArray(merges)) throw invalid('tokenizer.json: model.merges is not a list');
  const asPairs = Array.isArray(merges[0]);
  merges.forEach((merge: unknown, index) => {
    // The library takes the form of the first entry for all of them, so a mixed list would be read wrongly.
    const pair: unknown = asPairs ? merge : typeof merge === 'string' ? merge.split(' ') : undefined;
    const [left, right] = Array.isArray(pair) && pair.length === 2 ? (pair as unknown[]) : [];
    if (typeof left !== 'string' || typeof right !== 'string')
      throw invalid(`tokenizer.json: model.merges[${index}] is ${quote(merge)}, not a pair of tokens`);
    const missing = [left, right, left + right].find((token) => !vocab.has(token));
    if (missing !== undefined)
      throw invalid(
        `tokenizer.json: model.merges[${index}] needs the token ${quote(missing)}, which model.vocab lacks`,
      );
  });
}
