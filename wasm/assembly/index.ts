/**
 * The module's exports. Beside what JavaScript calls stand the kernels and the ops, only because an exported function is
 * not inlined: V8 compiles a function anew for its next call, never for the one that is running, so what loops for long
 * must be a function of its own.
 */
export { CANCELLED, DONE, helpOut, nextPlan, scratchBytes } from './plan-run';
export {
  CONTROL_CALL,
  CONTROL_CODE,
  CONTROL_END,
  CONTROL_EPOCH,
  CONTROL_FAILED,
  CONTROL_QUIT,
  CONTROL_SCRATCH,
  CONTROL_SCRATCH_STRIDE,
  CONTROL_SHARED_WORK,
  CONTROL_SPINS,
  CONTROL_THREADS,
  CONTROL_WEIGHTS,
  CONTROL_WORKSPACE,
  endAll,
  spinWhile,
} from './sync';

export { readAll } from './probe';
export { SHARED_WORK } from './work';

export { dotF32, dotsBf16, dotsF32, laneSum, prepareBf16, widen } from './dot';
export { packBf16, packBf16Rows, packF32, tileQuarter } from './matmul';
export { normRow, ropePairs, ropeRow } from './norm-rope';
export { attention, scaleScores, softmaxWeights, weighAnyDim, weighValues } from './ops/attention';
export { conv, convRow } from './ops/conv';
export { decayColumns, writeColumns } from './ops/delta-rule';
export { gatedDelta } from './ops/gated-delta';
export { groupedLinear, groupedUnit } from './ops/grouped-linear';
export { indexSelect } from './ops/index-select';
export { kda } from './ops/kda';
export { latentAttention, latentStore, ropeTail, windowAttention } from './ops/latent';
export { linear, linearUnit } from './ops/linear';
export { mhcSum, mhcWeights, mhcWrite } from './ops/manifold';
export { moeCombine, moeDown, moeUp } from './ops/moe';
export { pool, poolChannels } from './ops/pool';
export { attentionPrep, indexBlocks, indexPrep } from './ops/prep';
export { moeGroup, router } from './ops/router';
export { add, embed, embedGreedy, gatedNorm, layerNorm, norm, pleAdd, swiglu } from './ops/rows';
export { scoreRouter } from './ops/score-router';
export { hcAct, hcMix, hcWrite, pleGate } from './ops/streams';
