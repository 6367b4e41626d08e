/**
 * Damaged checkpoint folders, each made from a good one by one act of damage: opening one gives the error of the table
 * below, with a message that names what is wrong, in bounded time, and leaves no descriptor and no memory behind.
 */
import assert from 'node:assert/strict';
import {
  appendFileSync,
  closeSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { PlumblineError, type ErrorCode } from '../../src/errors.js';
import { readQwenConfig } from '../../src/families/qwen/config.js';
import { inventoryQwen } from '../../src/families/qwen/inventory.js';
import { openCheckpoint } from '../../src/weights/checkpoint.js';
import { readGenerationConfig } from '../../src/weights/generation-config.js';
import { temporaryFolder } from '../support/repository.js';
import {
  checkpointTensors,
  shardName,
  tinyQwen35Config,
  tinyQwen4Config,
  writeCheckpoint,
  writeJson,
  type CheckpointOptions,
} from '../support/write-checkpoint.js';
import {
  assemble,
  encodeSafetensors,
  floatBytes,
  int64Bytes,
  layOut,
  type Header,
  type HeaderEntry,
  type TensorData,
} from '../support/write-safetensors.js';

const MODEL = 'model.safetensors';
const INDEX = 'model.safetensors.index.json';
const EMBED = 'model.embed_tokens.weight';
const TABLE = 'model.layers.0.ple.ple_embedding.ngram_embedding';

interface Damage {
  readonly what: string;
  readonly options?: CheckpointOptions;
  readonly code: ErrorCode;
  /** What the message must say. */
  readonly says: RegExp;
  readonly act: (dir: string) => void;
}

/** Everything that a loader does before it reads weights. */
function openFolder(dir: string): void {
  const config = readQwenConfig(dir);
  readGenerationConfig(dir, config.vocabSize);
  const checkpoint = openCheckpoint(dir);
  try {
    inventoryQwen(checkpoint, config);
  } finally {
    checkpoint.close();
  }
}

/** Rewrite model.safetensors after its header was bent; entries are changed in place. */
function bend(change: (header: Header, entry: (name: string) => HeaderEntry) => void, config = tinyQwen4Config()) {
  return (dir: string): void => {
    const { header, data } = layOut(checkpointTensors(config));
    change(header, (name) => header[name] as HeaderEntry);
    writeFileSync(join(dir, MODEL), assemble(header, data));
  };
}

/** Rewrite model.safetensors with other tensors, well formed. */
function replace(change: (tensors: TensorData[]) => TensorData[]) {
  return (dir: string): void => {
    writeFileSync(join(dir, MODEL), encodeSafetensors(change(checkpointTensors(tinyQwen4Config()))));
  };
}

function without(...names: string[]) {
  return replace((tensors) => tensors.filter(({ name }) => !names.includes(name)));
}

function retype(name: string, dtype: string, shape: readonly number[], bytes: Uint8Array) {
  return replace((tensors) => tensors.map((tensor) => (tensor.name === name ? { name, dtype, shape, bytes } : tensor)));
}

function bytesOf(count: number): Uint8Array {
  return floatBytes('BF16', new Float32Array(count));
}

function headerText(text: string | Buffer, length?: bigint) {
  return (dir: string): void => writeFileSync(join(dir, MODEL), assemble(text, Buffer.alloc(64), length));
}

function config(overrides: Record<string, unknown>) {
  return (dir: string): void => writeJson(dir, 'config.json', tinyQwen4Config(overrides));
}

function weightMap(change: (map: Record<string, unknown>) => unknown) {
  return (dir: string): void => {
    const index = JSON.parse(readFileSync(join(dir, INDEX), 'utf8')) as { weight_map: Record<string, unknown> };
    writeJson(dir, INDEX, { weight_map: change(index.weight_map) });
  };
}

const SHARDED: CheckpointOptions = { files: 3 };
const SECOND = shardName(1, 3);

const DAMAGES: readonly Damage[] = [
  // ---- the folder ----
  {
    what: 'an empty folder',
    code: 'checkpoint_not_found',
    says: /config\.json does not exist/,
    act: (dir) => emptyFolder(dir),
  },
  {
    what: 'a file in place of the folder',
    code: 'checkpoint_unreadable',
    says: /config\.json cannot be read \(ENOTDIR\)/,
    act: (dir) => (rmSync(dir, { recursive: true }), writeFileSync(dir, '')),
  },
  {
    what: 'no weights',
    code: 'checkpoint_not_found',
    says: /neither model\.safetensors nor model\.safetensors\.index\.json/,
    act: (dir) => rmSync(join(dir, MODEL)),
  },
  {
    what: 'a folder in place of the weights',
    code: 'checkpoint_unreadable',
    says: /model\.safetensors is not a regular file but a folder/,
    act: (dir) => (rmSync(join(dir, MODEL)), mkdirSync(join(dir, MODEL))),
  },
  {
    what: 'a pipe in place of the weights',
    code: 'checkpoint_unreadable',
    says: /model\.safetensors is not a regular file/,
    act: (dir) => (rmSync(join(dir, MODEL)), execFileSync('mkfifo', [join(dir, MODEL)])),
  },
  {
    what: 'a loop of links in place of the weights',
    code: 'checkpoint_unreadable',
    says: /model\.safetensors cannot be read \(ELOOP\)/,
    act: (dir) => loopOfLinks(dir, MODEL),
  },
  {
    what: 'a link to nothing in place of the weights',
    code: 'checkpoint_not_found',
    says: /neither model\.safetensors/,
    act: (dir) => (rmSync(join(dir, MODEL)), symlinkSync('nowhere', join(dir, MODEL))),
  },
  {
    what: 'a loop of links in place of the configuration',
    code: 'checkpoint_unreadable',
    says: /config\.json cannot be read \(ELOOP\)/,
    act: (dir) => loopOfLinks(dir, 'config.json'),
  },
  // ---- config.json ----
  {
    what: 'an empty configuration',
    code: 'config_invalid',
    says: /config\.json is not usable: it is not valid JSON: unexpected end/,
    act: (dir) => writeFileSync(join(dir, 'config.json'), ''),
  },
  {
    what: 'a configuration that is no JSON',
    code: 'config_invalid',
    says: /config\.json .* a key was expected/,
    act: (dir) => writeFileSync(join(dir, 'config.json'), "{model_type: 'qwen4_exp'}"),
  },
  {
    what: 'a configuration that is cut',
    code: 'config_invalid',
    says: /config\.json .* not valid JSON/,
    act: (dir) => cutTo(join(dir, 'config.json'), 0.5),
  },
  {
    what: 'a configuration that is a list',
    code: 'config_invalid',
    says: /config\.json .* not an object/,
    act: (dir) => writeFileSync(join(dir, 'config.json'), '[]'),
  },
  {
    what: 'a configuration that is not UTF-8',
    code: 'config_invalid',
    says: /config\.json .* not UTF-8/,
    act: (dir) => writeFileSync(join(dir, 'config.json'), Buffer.from([0x7b, 0xff, 0xfe, 0x7d])),
  },
  {
    what: 'a configuration with a key twice',
    code: 'config_invalid',
    says: /config\.json .* key "vocab_size" occurs twice/,
    act: (dir) => prefixKey(dir, 'config.json', '"vocab_size": 272'),
  },
  {
    what: 'a configuration with NaN',
    code: 'config_invalid',
    says: /config\.json .* unexpected "NaN"/,
    act: (dir) => prefixKey(dir, 'config.json', '"initializer_range": NaN'),
  },
  {
    what: 'a configuration nested without end',
    code: 'config_invalid',
    says: /config\.json .* nesting deeper/,
    act: (dir) => writeFileSync(join(dir, 'config.json'), '['.repeat(4_000_000)),
  },
  {
    what: 'a configuration of 100 MB',
    code: 'checkpoint_unreadable',
    says: /config\.json has 100000000 bytes, more than/,
    act: (dir) => sparse(join(dir, 'config.json'), 100_000_000),
  },
  {
    what: 'a configuration without a vocabulary',
    code: 'config_invalid',
    says: /vocab_size is missing/,
    act: config({ vocab_size: undefined }),
  },
  {
    what: 'a configuration with an absurd width',
    code: 'config_invalid',
    says: /hidden_size is 1e\+30/,
    act: config({ hidden_size: 1e30 }),
  },
  {
    what: 'a configuration with a negative size',
    code: 'config_invalid',
    says: /num_experts is -8/,
    act: config({ num_experts: -8 }),
  },
  {
    what: 'a configuration of another family',
    code: 'config_unsupported',
    says: /model_type is "llama"/,
    act: config({ model_type: 'llama' }),
  },
  {
    what: 'a generation configuration with a wrong temperature',
    code: 'config_invalid',
    says: /generation_config\.json: temperature is "warm"/,
    act: (dir) => writeJson(dir, 'generation_config.json', { temperature: 'warm' }),
  },
  // ---- the file of weights: its frame ----
  {
    what: 'weights of zero bytes',
    code: 'safetensors_invalid',
    says: /model\.safetensors .* has 0 bytes/,
    act: (dir) => truncateSync(join(dir, MODEL)),
  },
  {
    what: 'weights of seven bytes',
    code: 'safetensors_invalid',
    says: /model\.safetensors .* has 7 bytes/,
    act: (dir) => truncateSync(join(dir, MODEL), 7),
  },
  {
    what: 'weights cut inside the header',
    code: 'safetensors_invalid',
    says: /header claims \d+ bytes but only 92 follow/,
    act: (dir) => truncateSync(join(dir, MODEL), 100),
  },
  {
    what: 'weights cut inside the data',
    code: 'safetensors_invalid',
    says: /tensor "model\.[^"]+" ends at byte \d+ of the data, of which the file has \d+ \(is the file cut\?\)/,
    act: (dir) => cutTo(join(dir, MODEL), 0.9),
  },
  {
    what: 'weights with a rest',
    code: 'safetensors_invalid',
    says: /5 bytes after the last tensor belong to no tensor/,
    act: (dir) => appendFileSync(join(dir, MODEL), 'extra'),
  },
  {
    what: 'a header that claims 2^64 - 1 bytes',
    code: 'safetensors_invalid',
    says: /claims 18446744073709551615 bytes/,
    act: headerText('{}', 2n ** 64n - 1n),
  },
  {
    what: 'a header that claims 99 MB of a small file',
    code: 'safetensors_invalid',
    says: /claims 99000000 bytes but only 66 follow/,
    act: headerText('{}', 99_000_000n),
  },
  {
    what: 'a header of 101 MB in a file that large',
    code: 'safetensors_invalid',
    says: /claims 101000000 bytes; the format allows 100000000/,
    act: (dir) => hugeHeader(dir, 101_000_000),
  },
  {
    what: 'a header that claims one byte too few',
    code: 'safetensors_invalid',
    says: /header is not valid JSON/,
    act: headerText('{"__metadata__": {}}', 18n),
  },
  {
    what: 'a header length of zero',
    code: 'safetensors_invalid',
    says: /does not begin with '\{'/,
    act: headerText('', 0n),
  },
  {
    what: 'a header that is no object',
    code: 'safetensors_invalid',
    says: /does not begin with '\{'/,
    act: headerText('[{}]'),
  },
  {
    what: 'a header that is no JSON',
    code: 'safetensors_invalid',
    says: /not valid JSON: .* at character 1/,
    act: headerText('{dtype}'),
  },
  {
    what: 'a header that is not UTF-8',
    code: 'safetensors_invalid',
    says: /not UTF-8/,
    act: headerText(Buffer.from([0x7b, 0x22, 0xc3, 0x28, 0x22, 0x7d])),
  },
  {
    what: 'a header with a tensor twice',
    code: 'safetensors_invalid',
    says: /the key "a" occurs twice/,
    act: headerText(
      '{"a":{"dtype":"U8","shape":[64],"data_offsets":[0,64]},"a":{"dtype":"U8","shape":[64],"data_offsets":[0,64]}}',
    ),
  },
  {
    what: 'a header with an offset that is NaN',
    code: 'safetensors_invalid',
    says: /not valid JSON: unexpected "NaN"/,
    act: headerText('{"a":{"dtype":"U8","shape":[64],"data_offsets":[NaN,64]}}'),
  },
  {
    what: 'metadata that is not text',
    code: 'safetensors_invalid',
    says: /__metadata__ entry "rows" is not a string/,
    act: bend((header) => void (header['__metadata__'] = { rows: 5 })),
  },
  // ---- the file of weights: its tensors ----
  {
    what: 'a tensor that is no object',
    code: 'safetensors_invalid',
    says: /tensor "model\.embed_tokens\.weight" is not described by an object/,
    act: bend((header) => void (header[EMBED] = [] as never)),
  },
  {
    what: 'an unknown field',
    code: 'safetensors_invalid',
    says: /"model\.embed_tokens\.weight" has an unknown field "strides"/,
    act: bend((header) => void Object.assign(header[EMBED] as object, { strides: [1] })),
  },
  {
    what: 'an unknown dtype',
    code: 'safetensors_invalid',
    says: /"model\.embed_tokens\.weight" has the unknown dtype "BF17"/,
    act: bend((_, entry) => void (entry(EMBED).dtype = 'BF17')),
  },
  {
    what: 'a dtype named like a method of objects',
    code: 'safetensors_invalid',
    says: /unknown dtype "toString"/,
    act: bend((_, entry) => void (entry(EMBED).dtype = 'toString')),
  },
  {
    what: 'no shape',
    code: 'safetensors_invalid',
    says: /"model\.embed_tokens\.weight" has no shape/,
    act: bend((_, entry) => void (entry(EMBED).shape = undefined)),
  },
  {
    what: 'a negative shape',
    code: 'safetensors_invalid',
    says: /shape entry that is no size: -272/,
    act: bend((_, entry) => void (entry(EMBED).shape = [-272, -16])),
  },
  {
    what: 'a fractional shape',
    code: 'safetensors_invalid',
    says: /shape entry that is no size: 271\.5/,
    act: bend((_, entry) => void (entry(EMBED).shape = [271.5, 16])),
  },
  {
    what: 'a shape whose product overflows',
    code: 'safetensors_invalid',
    says: /more elements than can be counted/,
    act: bend((_, entry) => void (entry(EMBED).shape = [2 ** 52, 2 ** 12, 2 ** 12])),
  },
  {
    what: 'a shape that wraps to the right size in 64 bits',
    code: 'safetensors_invalid',
    says: /no size|more elements/,
    act: bend((_, entry) => void (entry(EMBED).shape = [2 ** 32, 2 ** 32, 4352])),
  },
  {
    what: 'a shape of another size than the offsets',
    code: 'safetensors_invalid',
    says: /BF16 \[272, 17\] needs 9248 bytes but its offsets \[0, 8704\] hold 8704/,
    act: bend((_, entry) => void (entry(EMBED).shape = [272, 17])),
  },
  {
    what: 'a thousand dimensions',
    code: 'safetensors_invalid',
    says: /needs 2 bytes .*1000 dimensions|1000 dimensions\] needs 2 bytes/,
    act: bend((_, entry) => void (entry(EMBED).shape = Array(1000).fill(1))),
  },
  {
    what: 'offsets that are no pair',
    code: 'safetensors_invalid',
    says: /has no pair of data_offsets/,
    act: bend((_, entry) => void (entry(EMBED).data_offsets = [0])),
  },
  {
    what: 'negative offsets',
    code: 'safetensors_invalid',
    says: /data_offsets that are no offsets: \[-8704,0\]/,
    act: bend((_, entry) => void (entry(EMBED).data_offsets = [-8704, 0])),
  },
  {
    what: 'offsets that run backwards',
    code: 'safetensors_invalid',
    says: /begins at byte 8704 of the data and ends before that, at 0/,
    act: bend((_, entry) => void (entry(EMBED).data_offsets = [8704, 0])),
  },
  {
    what: 'offsets beyond the file',
    code: 'safetensors_invalid',
    says: /ends at byte 9007199254740991 of the data/,
    act: bend((_, entry) => void (entry(EMBED).data_offsets = [9007199254732287, 9007199254740991])),
  },
  {
    what: 'offsets beyond all integers',
    code: 'safetensors_invalid',
    says: /data_offsets that are no offsets: \[0,1e\+25\]/,
    act: bend((_, entry) => void (entry(EMBED).data_offsets = [0, 1e25])),
  },
  {
    what: 'two tensors in one place',
    code: 'safetensors_invalid',
    says: /"lm_head\.weight" overlaps "model\.embed_tokens\.weight"|"model\.embed_tokens\.weight" overlaps "lm_head\.weight"/,
    act: bend((_, entry) => void (entry('lm_head.weight').data_offsets = [0, 8704])),
  },
  {
    what: 'tensors that overlap by one element',
    code: 'safetensors_invalid',
    says: /"lm_head\.weight" overlaps "model\.embed_tokens\.weight": it begins at byte 8702, before 8704/,
    act: bend((_, entry) => void (entry('lm_head.weight').data_offsets = [8702, 17406])),
  },
  {
    what: 'a hole between tensors',
    code: 'safetensors_invalid',
    says: /8704 bytes before tensor "lm_head\.weight" belong to no tensor/,
    act: bend((header) => void delete header[EMBED]),
  },
  // ---- shards ----
  {
    what: 'an index that is no JSON',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /model\.safetensors\.index\.json .* not valid JSON/,
    act: (dir) => cutTo(join(dir, INDEX), 0.7),
  },
  {
    what: 'an index without a map',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /index\.json .* no weight_map/,
    act: (dir) => writeJson(dir, INDEX, { metadata: {} }),
  },
  {
    what: 'an empty map',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /weight_map is empty/,
    act: weightMap(() => ({})),
  },
  {
    what: 'a map to numbers',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /no file name for tensor "model\.embed_tokens\.weight"/,
    act: weightMap((map) => ({ ...map, [EMBED]: 1 })),
  },
  {
    what: 'a map out of the folder',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /"\.\.\/model\.safetensors", which is not a plain/,
    act: weightMap((map) => ({ ...map, [EMBED]: '../model.safetensors' })),
  },
  {
    what: 'a map to an absolute path',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /"\/etc\/x\.safetensors", which is not a plain/,
    act: weightMap((map) => ({ ...map, [EMBED]: '/etc/x.safetensors' })),
  },
  {
    what: 'a map to a path of another system',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /not a plain \.safetensors name/,
    act: weightMap((map) => ({ ...map, [EMBED]: '..\\x.safetensors' })),
  },
  {
    what: 'a map to a file of another kind',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /"pytorch_model\.bin", which is not a plain/,
    act: weightMap((map) => ({ ...map, [EMBED]: 'pytorch_model.bin' })),
  },
  {
    what: 'a map with a tensor twice',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /the key "model\.embed_tokens\.weight" occurs twice/,
    act: (dir) => duplicateInMap(dir),
  },
  {
    what: 'a map to a shard that is not there',
    options: SHARDED,
    code: 'checkpoint_not_found',
    says: new RegExp(`${SECOND} does not exist`),
    act: (dir) => rmSync(join(dir, SECOND)),
  },
  {
    what: 'a map to the wrong shard',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /places tensor "model\.embed_tokens\.weight" in "model-00002-of-00003\.safetensors", which does not hold it/,
    act: weightMap((map) => ({ ...map, [EMBED]: SECOND })),
  },
  {
    what: 'a map with a tensor that no shard has',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /places tensor "ghost"/,
    act: weightMap((map) => ({ ...map, ghost: SECOND })),
  },
  {
    what: 'a map that leaves a tensor out',
    options: SHARDED,
    code: 'tensor_missing',
    says: /no tensor "model\.embed_tokens\.weight"/,
    act: weightMap((map) => ({ ...map, [EMBED]: undefined })),
  },
  {
    what: 'one shard cut',
    options: SHARDED,
    code: 'safetensors_invalid',
    says: /model-00003-of-00003\.safetensors .*file cut/,
    act: (dir) => cutTo(join(dir, shardName(2, 3)), 0.9),
  },
  // ---- what the configuration requires ----
  {
    what: 'no embedding',
    code: 'tensor_missing',
    says: /"model\.embed_tokens\.weight" or "model\.language_model\.embed_tokens\.weight"/,
    act: without(EMBED),
  },
  {
    what: 'an embedding under both roots',
    code: 'tensor_mismatch',
    says: /both model and model\.language_model/,
    act: replace((tensors) => [
      ...tensors,
      ...checkpointTensors(tinyQwen4Config(), { root: 'model.language_model' }).slice(0, 1),
    ]),
  },
  {
    what: 'the names of another layout',
    code: 'config_unsupported',
    says: /MLX pack/,
    act: replace((tensors) => tensors.map((tensor) => ({ ...tensor, name: `language_model.${tensor.name}` }))),
  },
  {
    what: 'no head, though the embeddings are not tied',
    code: 'tensor_missing',
    says: /"lm_head\.weight"/,
    act: without('lm_head.weight'),
  },
  {
    what: 'a missing norm',
    code: 'tensor_missing',
    says: /"model\.layers\.3\.self_attn\.indexer\.k_layernorm\.weight"/,
    act: without('model.layers.3.self_attn.indexer.k_layernorm.weight'),
  },
  {
    what: 'a missing expert',
    code: 'tensor_missing',
    says: /"model\.layers\.2\.mlp\.experts\.3\.up_proj\.weight"/,
    act: without('model.layers.2.mlp.experts.3.up_proj.weight'),
  },
  {
    what: 'experts in both layouts',
    options: { experts: 'stacked' },
    code: 'tensor_mismatch',
    says: /both stacked and one by one/,
    act: replace((tensors) => [...tensors, ...stackedOnly()]),
  },
  {
    what: 'a transposed matrix',
    code: 'tensor_mismatch',
    says: /"model\.layers\.0\.linear_attn\.in_proj_b\.weight" has shape \[16, 2\]; the configuration requires \[2, 16\]/,
    act: retype('model.layers.0.linear_attn.in_proj_b.weight', 'BF16', [16, 2], bytesOf(32)),
  },
  {
    what: 'a convolution without its middle axis',
    code: 'tensor_mismatch',
    says: /conv1d\.weight" has shape \[16, 4\]; .* \[16, 1, 4\]/,
    act: retype('model.layers.0.linear_attn.conv1d.weight', 'BF16', [16, 4], bytesOf(64)),
  },
  {
    what: 'a weight of integers',
    code: 'tensor_mismatch',
    says: /"model\.layers\.0\.linear_attn\.A_log" is I64; BF16, F16 or F32/,
    act: retype('model.layers.0.linear_attn.A_log', 'I64', [2], int64Bytes([1, 2])),
  },
  {
    what: 'a weight of float8',
    code: 'tensor_mismatch',
    says: /"model\.layers\.0\.linear_attn\.A_log" is F8_E4M3/,
    act: retype('model.layers.0.linear_attn.A_log', 'F8_E4M3', [2], new Uint8Array(2)),
  },
  {
    what: 'a configuration of more layers than the weights',
    code: 'tensor_missing',
    says: /"model\.layers\.4\./,
    act: config({ num_hidden_layers: 5 }),
  },
  {
    what: 'a configuration of a wider vocabulary',
    code: 'tensor_mismatch',
    says: /\[272, 16\]; the configuration requires \[300, 16\]/,
    act: config({ vocab_size: 300 }),
  },
  {
    what: 'a configuration of another family than the weights',
    code: 'tensor_missing',
    says: /input_layernorm/,
    act: (dir) => writeJson(dir, 'config.json', tinyQwen35Config()),
  },
  {
    what: 'no n-gram table',
    code: 'tensor_missing',
    says: /ngram_embedding\.weight" nor .*shard_0/,
    act: without(`${TABLE}.weight`),
  },
  {
    what: 'an n-gram table that is a row short',
    code: 'tensor_mismatch',
    says: /ngram_embedding\.weight" and following have 151 rows; the configuration requires 152/,
    act: retype(`${TABLE}.weight`, 'BF16', [151, 4], bytesOf(604)),
  },
  {
    what: 'an n-gram table of another width',
    code: 'tensor_mismatch',
    says: /has shape \[152, 5\]; the configuration requires \[rows, 4\]/,
    act: retype(`${TABLE}.weight`, 'BF16', [152, 5], bytesOf(760)),
  },
  {
    what: 'a lost n-gram shard',
    code: 'tensor_missing',
    says: /shard_1\.weight" but a shard 2/,
    act: replace((tensors) =>
      tensors.flatMap((tensor) =>
        tensor.name === `${TABLE}.weight`
          ? [0, 2].map((n) => ({ ...tensor, name: `${TABLE}.shard_${n}.weight`, shape: [76, 4], bytes: bytesOf(304) }))
          : [tensor],
      ),
    ),
  },
  {
    what: 'a hash multiplier of another seed',
    code: 'tensor_mismatch',
    says: /layer_multipliers" holds 5 at index 0; the formula of the configuration gives \d+/,
    act: retype('model.layers.0.ple.ple_embedding.layer_multipliers', 'I64', [3], int64Bytes([5, 7, 9])),
  },
  {
    what: 'a configuration of another seed',
    code: 'tensor_mismatch',
    says: /layer_multipliers" holds \d+ at index 0/,
    act: config({ seed: 4321 }),
  },
  {
    what: 'hash sizes of another number of heads',
    code: 'tensor_mismatch',
    says: /ngram_heads_vocab_sizes" is I64 \[2\]; the configuration requires I64 \[4\]/,
    act: retype('model.layers.0.ple.ple_embedding.ngram_heads_vocab_sizes', 'I64', [2], int64Bytes([31, 37])),
  },
];

function stackedOnly(): TensorData[] {
  return checkpointTensors(tinyQwen4Config(), { experts: 'stacked' }).filter(({ name }) =>
    name.startsWith('model.layers.0.mlp.experts.'),
  );
}

function emptyFolder(dir: string): void {
  for (const name of readdirSync(dir)) rmSync(join(dir, name));
}

function loopOfLinks(dir: string, name: string): void {
  rmSync(join(dir, name));
  symlinkSync(name, join(dir, 'other'));
  symlinkSync('other', join(dir, name));
}

function cutTo(path: string, share: number): void {
  truncateSync(path, Math.floor(readFileSync(path).length * share));
}

function prefixKey(dir: string, file: string, member: string): void {
  const text = readFileSync(join(dir, file), 'utf8');
  writeFileSync(join(dir, file), text.replace('{', `{${member}, `));
}

/** A file of zeros that takes no room on the disk. */
function sparse(path: string, bytes: number): void {
  const fd = openSync(path, 'w');
  ftruncateSync(fd, bytes);
  closeSync(fd);
}

function hugeHeader(dir: string, bytes: number): void {
  const path = join(dir, MODEL);
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(BigInt(bytes));
  writeFileSync(path, prefix);
  truncateSync(path, 8 + bytes);
}

function duplicateInMap(dir: string): void {
  const text = readFileSync(join(dir, INDEX), 'utf8');
  writeFileSync(join(dir, INDEX), text.replace('"weight_map": {', `"weight_map": { "${EMBED}": "${SECOND}",`));
}

/** Open descriptors of this process by what they lead to; empty where the system does not say. */
function openDescriptors(): number {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return 0;
  }
}

function failureOf(dir: string): PlumblineError {
  try {
    openFolder(dir);
  } catch (error) {
    assert.ok(error instanceof PlumblineError, `not an error of the table: ${String(error)}`);
    return error;
  }
  return assert.fail('the damaged folder was accepted');
}

describe('a damaged checkpoint folder is refused by name', () => {
  for (const { what, options, code, says, act } of DAMAGES) {
    test(what, (t) => {
      const dir = join(temporaryFolder(t, 'damaged'), 'checkpoint');
      writeCheckpoint(dir, options);
      act(dir);
      const before = openDescriptors();
      const started = performance.now();
      const error = failureOf(dir);
      assert.equal(error.code, code, error.message);
      assert.match(error.message, says);
      assert.ok(error.message.length < 600, 'the message is short');
      assert.ok(performance.now() - started < 5000, 'it was found without reading the data');
      assert.equal(openDescriptors(), before, 'all descriptors are closed');
    });
  }
});

test('the undamaged folders open', (t) => {
  for (const options of [{}, SHARDED, { experts: 'stacked' as const }]) {
    const dir = temporaryFolder(t, 'whole');
    writeCheckpoint(dir, options);
    const before = openDescriptors();
    openFolder(dir);
    assert.equal(openDescriptors(), before);
  }
});

test('refusing folders again and again keeps no memory', (t) => {
  const root = temporaryFolder(t, 'memory');
  const folders = DAMAGES.map(({ options, act }, i) => {
    const dir = join(root, String(i));
    writeCheckpoint(dir, options);
    act(dir);
    return dir;
  });
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const held = (): number => {
    collect();
    const { heapUsed, external, arrayBuffers } = process.memoryUsage();
    return heapUsed + external + arrayBuffers;
  };
  for (const dir of folders) failureOf(dir);
  const before = held();
  for (let round = 0; round < 5; round++) for (const dir of folders) failureOf(dir);
  assert.ok(held() - before < 4 * 1024 * 1024, `${held() - before} bytes more after ${5 * folders.length} refusals`);
});
