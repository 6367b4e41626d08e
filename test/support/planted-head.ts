/** Gives a checkpoint folder without a draft head a made-up one, in a shard of its own. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { draftHeadTensors } from './planted-checkpoint.js';
import { writeJson } from './write-checkpoint.js';
import { encodeSafetensors } from './write-safetensors.js';

export interface RandomHead {
  readonly seed: number;
}

const TRUNK = 'model.safetensors';
const HEAD = 'draft-head.safetensors';

export function plantHead(dir: string, { seed }: RandomHead): void {
  const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8')) as Record<string, unknown>;
  const json = { ...config, mtp_num_hidden_layers: 1 };
  const head = draftHeadTensors(json, seed);
  writeJson(dir, 'config.json', json);
  writeFileSync(join(dir, HEAD), encodeSafetensors(head, { format: 'pt' }));
  const map = [...namesOf(join(dir, TRUNK)).map((name) => [name, TRUNK]), ...head.map(({ name }) => [name, HEAD])];
  writeJson(dir, 'model.safetensors.index.json', { metadata: {}, weight_map: Object.fromEntries(map) as unknown });
}

function namesOf(path: string): string[] {
  const bytes = readFileSync(path);
  const header = JSON.parse(bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE())).toString('utf8')) as object;
  return Object.keys(header).filter((name) => name !== '__metadata__');
}
