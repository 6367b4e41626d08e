/**
 * Quantised releases, recognised by their configuration or by their tensors and refused by name: what they are, what is
 * missing here to read them, and what to use instead.
 *
 * Published float8 weights (e4m3) have a scale for each block beside them, in a tensor `.scale` or `.weight_scale_inv`;
 * published float4 experts are packed two in a byte with a scale for each group, where the format has no name for them.
 */
import { PlumblineError } from '../errors.js';
import type { Checkpoint } from '../weights/checkpoint.js';
import type { JsonKeys } from '../weights/json-file.js';
import { quoteName } from '../weights/strict-json.js';

const INSTEAD = 'use the release with bfloat16 weights, or convert this one to BF16, F16 or F32 weights without scales';
const FP8 = `an FP8 release keeps 8-bit float weights with a scale for every block, and reading those is missing here; ${INSTEAD}`;
const FP4 = `an FP4 release keeps 4-bit float weights with a scale for every group, and reading those is missing here; ${INSTEAD}`;
const OTHER = `reading quantised weights is missing here; ${INSTEAD}`;

/** @throws config_unsupported when the configuration, or its text part, says that weights are quantised */
export function refuseQuantisedConfig(root: JsonKeys, text: JsonKeys): void {
  for (const keys of new Set([root, text])) {
    for (const key of ['quantization_config', 'quantization']) {
      const quantisation = keys.raw(key) === undefined ? undefined : keys.child(key);
      if (!quantisation) continue;
      const kind =
        JSON.stringify(quantisation.raw('quant_method') ?? '') + JSON.stringify(quantisation.raw('fmt') ?? '');
      const group = JSON.stringify(quantisation.raw('config_groups') ?? quantisation.raw('format') ?? '');
      keys.unsupported(key, /fp4/i.test(kind + group) ? FP4 : /fp8|e4m3/i.test(kind + group) ? FP8 : OTHER);
    }
  }
}

/**
 * @param isUnread names that are never read: they may be of any type.
 * @throws config_unsupported naming a tensor of a quantised release, where the configuration said nothing of it
 */
export function refuseQuantisedTensors(
  checkpoint: Checkpoint,
  isUnread: (name: string) => boolean = () => false,
): void {
  for (const name of checkpoint.names()) {
    if (isUnread(name)) continue;
    const { dtype } = checkpoint.get(name);
    const why = reasonAgainst(checkpoint, name, dtype);
    if (why === undefined) continue;
    throw new PlumblineError('config_unsupported', `tensor ${quoteName(name)} is ${dtype}; ${why}`);
  }
}

function reasonAgainst(checkpoint: Checkpoint, name: string, dtype: string): string | undefined {
  if (dtype === 'F4') return FP4;
  if (dtype.startsWith('F8_') || name.endsWith('.scale') || name.endsWith('.weight_scale_inv')) return FP8;
  const isScaled = name.endsWith('.weight') && checkpoint.has(name.replace(/\.weight$/, '.scale'));
  if (isScaled && (dtype === 'I8' || dtype === 'U8')) return name.includes('.experts.') ? FP4 : FP8;
  return undefined;
}
