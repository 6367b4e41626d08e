/**
 * The quantised releases of the family, by name: what they hold that cannot be run here, and what to do instead.
 *
 * Published files keep attention and shared weights as float8 (e4m3) with one e8m0 scale for each block of 128 x 128, in a
 * tensor `.scale` beside the weight, and experts as packed float4 with one e8m0 scale for 32 values.
 */
import { PlumblineError } from '../../errors.js';
import type { Checkpoint } from '../../weights/checkpoint.js';
import { quoteName } from '../../weights/strict-json.js';
import { isExtraLayer } from './names.js';

/** For messages: why such a release is refused. */
export const QUANTISED_RELEASES =
  'float8 (e4m3) weights with e8m0 block scales and packed float4 experts have no kernels here; convert the checkpoint to ' +
  'BF16, F16 or F32 weights without .scale tensors';

const FLOAT4 = 'packed float4 experts';
const FLOAT8 = 'float8 weights';

/**
 * Refuses a checkpoint whose weights are quantised, by the first such tensor.
 *
 * @throws config_unsupported
 */
export function refuseQuantisedTensors(checkpoint: Checkpoint): void {
  for (const name of checkpoint.names()) {
    if (isExtraLayer(name)) continue; // never read
    const { dtype } = checkpoint.get(name);
    const scaled = name.endsWith('.weight') && checkpoint.has(name.replace(/\.weight$/, '.scale'));
    const kind = kindOf(name, dtype, scaled);
    if (kind === undefined) continue;
    throw new PlumblineError(
      'config_unsupported',
      `the checkpoint is a release with ${kind}: tensor ${quoteName(name)} is ${dtype}; ${QUANTISED_RELEASES}`,
    );
  }
}

function kindOf(name: string, dtype: string, scaled: boolean): string | undefined {
  if (dtype === 'F4') return FLOAT4;
  if (dtype === 'F8_E4M3' || dtype === 'F8_E5M2' || dtype === 'F8_E8M0') return FLOAT8;
  if (name.endsWith('.scale')) return FLOAT8;
  // Two float4 in a byte, where the format has no name for them.
  if (scaled && (dtype === 'I8' || dtype === 'U8')) return name.includes('.experts.') ? FLOAT4 : FLOAT8;
  return undefined;
}
