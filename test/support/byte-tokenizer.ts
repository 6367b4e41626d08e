/**
 * A byte tokenizer for tests: 256 byte tokens and the ChatML markers, as the tokenizer.json that the ordinary seam loads.
 * The golden checkpoints have no tokenizer; this one fits their vocabulary of 384 ids and their eos id 1, and leaves the
 * ids from 264 on without a token, as a padded lm_head does.
 */
import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { tmpdir } from 'node:os';
import { BYTE_CHARACTERS } from '../../src/tokens/byte-alphabet.js';
import { Tokenizer } from '../../src/tokens/tokenizer.js';

/** Id of byte b is FIRST_BYTE + b; below it are pad, eos and the turn opener. */
export const FIRST_BYTE = 3;

const ADDED: readonly { id: number; content: string; special: boolean }[] = [
  { id: 0, content: '<|pad|>', special: true },
  { id: 1, content: '<|im_end|>', special: true },
  { id: 2, content: '<|im_start|>', special: true },
  { id: 259, content: '<|endoftext|>', special: true },
  { id: 260, content: '<think>', special: false },
  { id: 261, content: '</think>', special: false },
  { id: 262, content: '<tool_call>', special: false },
  { id: 263, content: '</tool_call>', special: false },
];

/** A fresh tokenizer.json, so that a test may damage it. */
export function byteTokenizerJson(): Record<string, unknown> {
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: ADDED.map((token) => ({
      ...token,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
    })),
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      vocab: Object.fromEntries(BYTE_CHARACTERS.map((character, byte) => [character, FIRST_BYTE + byte])),
      merges: [],
    },
  };
}

/** tokenizer_config.json with a minimal ChatML template. */
export function byteTokenizerConfig(): Record<string, unknown> {
  return {
    tokenizer_class: 'PreTrainedTokenizerFast',
    bos_token: null,
    eos_token: '<|im_end|>',
    pad_token: '<|pad|>',
    unk_token: null,
    chat_template:
      "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endfor -%}" +
      "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}" +
      "{%- if enable_thinking -%}{{- '<think>\\n' -}}{%- endif -%}{%- endif -%}",
  };
}

export function byteTokenizer(): Tokenizer {
  return Tokenizer.fromJson(byteTokenizerJson(), byteTokenizerConfig());
}

/** Writes both files into a checkpoint folder; without one into a new temporary folder. Returns the folder. */
export async function writeByteTokenizer(folder?: string): Promise<string> {
  const target = folder ?? (await mkdtemp(join(tmpdir(), 'plumbline-tokenizer-')));
  await writeFile(join(target, 'tokenizer.json'), JSON.stringify(byteTokenizerJson()));
  await writeFile(join(target, 'tokenizer_config.json'), JSON.stringify(byteTokenizerConfig()));
  return target;
}
