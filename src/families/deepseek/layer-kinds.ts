/**
 * Which kind every layer is, and how many tokens the kinds that compress put into a row, out of the several spellings that
 * config.json may use.
 */
import type { JsonKeys } from '../../weights/json-file.js';
import type { JsonValue } from '../../weights/strict-json.js';
import type { DeepseekConfig, DeepseekLayerType, DeepseekMlpType } from './config-types.js';

const SLIDING = 'sliding_attention';
const SPARSE = 'compressed_sparse_attention';
const HEAVY = 'heavily_compressed_attention';

const LAYER_TYPES: readonly DeepseekLayerType[] = [SLIDING, SPARSE, HEAVY];
const MLP_TYPES: readonly DeepseekMlpType[] = ['hash_moe', 'moe'];

/** What `compress_ratios` of the published files means. */
const OF_RATIO: ReadonlyMap<JsonValue, DeepseekLayerType> = new Map<JsonValue, DeepseekLayerType>([
  [0, SLIDING],
  [4, SPARSE],
  [128, HEAVY],
]);

/** Tokens of a page are a multiple of every rate; this bounds them. */
const MOST_PAGE_TOKENS = 2 ** 14;

/** The first num_hidden_layers entries of `layer_types`, else of `compress_ratios`, else the pattern of the class. */
export function parseLayerTypes(keys: JsonKeys, layerCount: number): DeepseekLayerType[] {
  const named = firstOf(keys, 'layer_types', layerCount);
  if (named) return named.map((type, i) => oneOf(keys, `layer_types[${i}]`, type, LAYER_TYPES));
  const ratios = firstOf(keys, 'compress_ratios', layerCount);
  if (ratios) {
    return ratios.map(
      (ratio, i) =>
        OF_RATIO.get(ratio) ?? keys.unsupported(`compress_ratios[${i}]`, 'only 0, 4 and 128 are known here', ratio),
    );
  }
  return Array.from({ length: layerCount }, (_, layer) => (layer < 2 || layer % 2 === 0 ? HEAVY : SPARSE));
}

/** `mlp_layer_types`, else the first `num_hash_layers` by table. */
export function parseMlpTypes(keys: JsonKeys, layerCount: number): DeepseekMlpType[] {
  const named = firstOf(keys, 'mlp_layer_types', layerCount);
  if (named) return named.map((type, i) => oneOf(keys, `mlp_layer_types[${i}]`, type, MLP_TYPES));
  const hashed = keys.integer('num_hash_layers', { min: 0, max: 2 ** 12 }, 3);
  return Array.from({ length: layerCount }, (_, layer) => (layer < hashed ? 'hash_moe' : 'moe'));
}

/** `compress_rates` over the class's own; `compress_rate_csa` and `compress_rate_hca` over both. */
export function parseRates(keys: JsonKeys, layerTypes: readonly DeepseekLayerType[]): DeepseekConfig['rates'] {
  const table = keys.child('compress_rates');
  const rate = (type: typeof SPARSE | typeof HEAVY, single: string, fallback: number): number =>
    keys.integer(
      single,
      { max: MOST_PAGE_TOKENS },
      table?.integer(type, { max: MOST_PAGE_TOKENS }, fallback) ?? fallback,
    );
  const rates = { [SPARSE]: rate(SPARSE, 'compress_rate_csa', 4), [HEAVY]: rate(HEAVY, 'compress_rate_hca', 128) };
  const multiple = pageUnit(rates, layerTypes);
  if (multiple > MOST_PAGE_TOKENS) {
    keys.invalid('compress_rates', `must have a common multiple of at most ${MOST_PAGE_TOKENS}`, multiple);
  }
  return rates;
}

/** The least number of tokens that whole windows of every kind of layer fill; 1 without any. */
export function pageUnit(rates: DeepseekConfig['rates'], layerTypes: readonly DeepseekLayerType[]): number {
  let multiple = 1;
  for (const type of [SPARSE, HEAVY] as const) {
    if (layerTypes.includes(type)) multiple = (multiple * rates[type]) / greatestDivisor(multiple, rates[type]);
  }
  return multiple;
}

function greatestDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestDivisor(b, a % b);
}

/** The first `count` entries of a list; undefined when the key is absent. */
function firstOf(keys: JsonKeys, key: string, count: number): readonly JsonValue[] | undefined {
  const list = keys.list(key);
  if (list !== undefined && list.length < count) {
    keys.invalid(key, `must have an entry for each of num_hidden_layers (${count})`, list.length);
  }
  return list?.slice(0, count);
}

function oneOf<T extends string>(keys: JsonKeys, key: string, value: JsonValue, known: readonly T[]): T {
  return (
    known.find((name) => name === value) ?? keys.unsupported(key, `only ${known.join(', ')} are known here`, value)
  );
}
