/** Forwards of the Qwen checkpoints are the same, however they are cut, shared out and batched. */
import { forwardIdentityTests } from '../support/forward-identity.js';

forwardIdentityTests({
  checkpoints: ['qwen4-exp-tiny', 'qwen4-exp-wide', 'qwen3.5-dense-tiny', 'plumbline-tiny'],
  dtypes: ['f32', 'bf16', 'bf16-mtplx'],
  dtype: 'bf16',
});
