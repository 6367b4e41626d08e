/**
 * The two rotary settings out of config.json: nested under `rope_parameters`, or one flat dictionary (in published files
 * under `rope_scaling`, its type under `type`) that belongs to the layers that compress.
 */
import type { JsonKeys } from '../../weights/json-file.js';
import { isJsonObject } from '../../weights/strict-json.js';
import type { DeepseekConfig } from './config-types.js';
import type { RopeConfig, YarnConfig } from './rope.js';

const THETA = { above: 1, max: 1e15 };

export function parseRope(keys: JsonKeys, maxPositions: number): DeepseekConfig['rope'] {
  const mainTheta = keys.number('rope_theta', THETA, 10000);
  const compressTheta = keys.number('compress_rope_theta', THETA, 160000);
  const given = keys.child('rope_parameters') ?? keys.child('rope_scaling');
  if (given !== undefined && isJsonObject(given.raw('main') ?? null) && isJsonObject(given.raw('compress') ?? null)) {
    const [main, compress] = [given.child('main')!, given.child('compress')!];
    if (ropeType(main) !== 'default') main.unsupported('rope_type', 'only default is known for the main table');
    return {
      main: { theta: main.number('rope_theta', THETA, mainTheta) },
      compress: parseCompress(compress, compress.number('rope_theta', THETA, compressTheta), maxPositions),
    };
  }
  return {
    main: { theta: mainTheta },
    compress: given === undefined ? { theta: compressTheta } : parseCompress(given, compressTheta, maxPositions),
  };
}

function parseCompress(keys: JsonKeys, theta: number, maxPositions: number): RopeConfig {
  const type = ropeType(keys);
  if (type === 'default') return { theta };
  if (type === 'yarn') return { theta, yarn: parseYarn(keys, maxPositions) };
  const key = keys.raw('rope_type') === undefined ? 'type' : 'rope_type';
  return keys.unsupported(key, 'only default and yarn are known here');
}

function ropeType(keys: JsonKeys): string {
  return keys.text('rope_type', keys.text('type', 'default'));
}

function parseYarn(keys: JsonKeys, maxPositions: number): YarnConfig {
  return {
    factor: keys.number('factor', { above: 0, max: 1e6 }),
    originalPositions: keys.integer('original_max_position_embeddings', { max: 2 ** 24 }, maxPositions),
    betaFast: keys.number('beta_fast', { above: 0, max: 1e6 }, 32),
    betaSlow: keys.number('beta_slow', { above: 0, max: 1e6 }, 1),
    attentionFactor: keys.number('attention_factor', { above: 0, max: 1e6 }, 1),
  };
}
