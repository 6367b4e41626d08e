/**
 * generation_config.json: the sampling defaults and stop ids that a checkpoint's makers suggest. They stand below what a
 * request or a server flag says, and above the family's own defaults.
 *
 * Invariants: the file may be absent; keys that are absent stay undefined, so that the next default in line applies;
 * only the keys below are read, the rest of the file is for other programs.
 */
import { join } from 'node:path';
import { PlumblineError } from '../errors.js';
import { readJsonFile, type JsonKeys } from './json-file.js';
import { isJsonArray } from './strict-json.js';

export interface GenerationConfig {
  /** 0 when `do_sample` is false: greedy is the checkpoint's own default. */
  readonly temperature?: number | undefined;
  readonly topP?: number | undefined;
  /** 0 turns it off. */
  readonly topK?: number | undefined;
  /** `eos_token_id`, one or several; any of them ends a turn. Empty when the file names none. */
  readonly eosTokenIds: readonly number[];
  readonly padTokenId?: number | undefined;
}

const FILE = 'generation_config.json';

/** @throws checkpoint_unreadable, config_invalid (naming the key and the rule); a missing file gives empty defaults */
export function readGenerationConfig(dir: string, vocabSize: number): GenerationConfig {
  try {
    return parseGenerationConfig(readJsonFile(join(dir, FILE)), vocabSize);
  } catch (error) {
    if (error instanceof PlumblineError && error.code === 'checkpoint_not_found')
      return Object.freeze({ eosTokenIds: [] });
    throw error;
  }
}

/** @param vocabSize ids must be below it */
export function parseGenerationConfig(keys: JsonKeys, vocabSize: number): GenerationConfig {
  const given = <T>(key: string, take: () => T): T | undefined => (keys.raw(key) === undefined ? undefined : take());
  const temperature = given('temperature', () => atLeastZero(keys, 'temperature', 100));
  const sampled = keys.flag('do_sample', true);
  return Object.freeze({
    temperature: sampled ? temperature : 0,
    topP: given('top_p', () => keys.number('top_p', { above: 0, max: 1 })),
    topK: given('top_k', () => keys.integer('top_k', { min: 0, max: 2 ** 31 })),
    eosTokenIds: tokenIdList(keys, 'eos_token_id', vocabSize),
    padTokenId: given('pad_token_id', () => keys.integer('pad_token_id', { min: 0, max: vocabSize - 1 })),
  });
}

function atLeastZero(keys: JsonKeys, key: string, max: number): number {
  return keys.raw(key) === 0 ? 0 : keys.number(key, { above: 0, max });
}

/** One id or a list of ids, in order, duplicates removed; empty when the key is absent. */
export function tokenIdList(keys: JsonKeys, key: string, vocabSize: number): readonly number[] {
  const value = keys.raw(key);
  if (value === undefined) return [];
  const bounds = { min: 0, max: vocabSize - 1 };
  const ids = isJsonArray(value) ? value : [value];
  return Object.freeze([...new Set(ids.map((id) => keys.checkInteger(key, id, bounds)))]);
}
