/**
 * Quantised releases, recognised by their configuration or by their tensors and refused by name: what they are, what is
 * missing here to read them, and what to use instead.
 */
import { PlumblineError } from '../errors.js';
import type { Checkpoint } from '../weights/checkpoint.js';
import type { JsonKeys } from '../weights/json-file.js';
import { quoteName } from '../weights/strict-json.js';

const INSTEAD = 'use the bfloat16 release';
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

/** @throws config_unsupported naming a tensor of a quantised type, where the configuration said nothing of it */
export function refuseQuantisedTensors(checkpoint: Checkpoint): void {
  for (const name of checkpoint.names()) {
    const { dtype } = checkpoint.get(name);
    const why = dtype.startsWith('F8_') ? FP8 : dtype === 'F4' ? FP4 : undefined;
    if (why === undefined && !name.endsWith('.weight_scale_inv')) continue;
    throw new PlumblineError('config_unsupported', `tensor ${quoteName(name)} is ${dtype}; ${why ?? FP8}`);
  }
}
