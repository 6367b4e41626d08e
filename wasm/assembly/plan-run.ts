/**
 * Runs plans: thread 0 walks the list of ops, does the small ones alone and opens the large ones to the other threads.
 *
 * Invariants: ops run one after the other, each complete before the next begins; which ops are shared is decided by the op
 * and the call alone, and changes no bit; the cancel word of the call is looked at before every op.
 */
import { begin, callAddress, measure, setOp } from './context';
import { attention, attentionScratch, attentionWork } from './ops/attention';
import { conv, convScratch, convWork } from './ops/conv';
import { gatedDelta, gatedDeltaScratch, gatedDeltaWork } from './ops/gated-delta';
import { groupedLinear, groupedLinearScratch, groupedLinearWork } from './ops/grouped-linear';
import { indexSelect, indexSelectScratch, indexSelectWork } from './ops/index-select';
import { kda, kdaScratch, kdaWork } from './ops/kda';
import {
  latentAttention,
  latentAttentionScratch,
  latentAttentionWork,
  latentStore,
  latentStoreWork,
  ropeTail,
  ropeTailWork,
  windowAttention,
  windowAttentionScratch,
  windowAttentionWork,
} from './ops/latent';
import { linear, linearScratch, linearWork } from './ops/linear';
import {
  mhcSum,
  mhcSumWork,
  mhcWeights,
  mhcWeightsScratch,
  mhcWeightsWork,
  mhcWrite,
  mhcWriteScratch,
  mhcWriteWork,
} from './ops/manifold';
import {
  moeCombine,
  moeCombineWork,
  moeDown,
  moeDownScratch,
  moeDownWork,
  moeUp,
  moeUpScratch,
  moeUpWork,
} from './ops/moe';
import { pool, poolScratch, poolWork } from './ops/pool';
import {
  attentionPrep,
  attentionPrepScratch,
  attentionPrepWork,
  indexBlocks,
  indexBlocksScratch,
  indexBlocksWork,
  indexPrep,
  indexPrepWork,
} from './ops/prep';
import { moeGroup, router, routerScratch, routerWork } from './ops/router';
import {
  add,
  addWork,
  embed,
  embedGreedy,
  embedGreedyWork,
  embedWork,
  gatedNorm,
  gatedNormWork,
  gather,
  layerNorm,
  layerNormWork,
  norm,
  normWork,
  pleAdd,
  pleAddWork,
  swiglu,
  swigluWork,
  tap,
} from './ops/rows';
import { scoreRouter, scoreRouterScratch, scoreRouterWork } from './ops/score-router';
import {
  hcAct,
  hcActWork,
  hcMix,
  hcMixWork,
  hcWrite,
  hcWriteWork,
  pleGate,
  pleGateScratch,
  pleGateWork,
} from './ops/streams';
import * as plan from './plan-ops';
import * as sync from './sync';
import { WAKING_WORK } from './work';

/** What nextPlan returns. */
export const DONE: i32 = 0;
export const CANCELLED: i32 = 1;
/** The thread has to end. */
export const ENDED: i32 = 2;

const HEADER_BYTES: usize = plan.PLAN_HEADER_WORDS << 2;

/** The plan that this thread's globals are set for. */
let epoch: i32 = 0;

function beginPlan(thread: i32): void {
  const scratch = <usize>load<u32>(sync.CONTROL_SCRATCH) + <usize>thread * <usize>load<u32>(sync.CONTROL_SCRATCH_STRIDE);
  begin(
    load<u32>(sync.CONTROL_CODE),
    load<u32>(sync.CONTROL_WEIGHTS),
    load<u32>(sync.CONTROL_WORKSPACE),
    load<u32>(sync.CONTROL_CALL),
    scratch,
  );
}

/** Thread 0: waits for the next plan and runs it. */
export function nextPlan(): i32 {
  sync.awaitChange(sync.CONTROL_EPOCH, epoch);
  if (sync.ending()) return ENDED;
  epoch = atomic.load<i32>(sync.CONTROL_EPOCH);
  beginPlan(0);
  return runPlan();
}

/** Every other thread: waits for an op and does what units of it are left. False when the thread has to end. */
export function helpOut(thread: i32): bool {
  const at = sync.enterOp();
  if (sync.ending()) return false;
  if (at == 0) return true;
  const current = atomic.load<i32>(sync.CONTROL_EPOCH);
  if (current != epoch) {
    epoch = current;
    beginPlan(thread);
  }
  setOp(at);
  sync.beginUnits(false);
  runOp(load<i32>(at));
  sync.leaveOp();
  return true;
}

function runPlan(): i32 {
  const code = <usize>load<u32>(sync.CONTROL_CODE);
  const call = callAddress();
  const ops = load<i32>(code + (plan.PLAN_OPS << 2));
  const sharedWork = <f64>load<i32>(sync.CONTROL_SHARED_WORK);
  let at = code + HEADER_BYTES;
  for (let i = 0; i < ops; i++) {
    if (atomic.load<i32>(call + (plan.CALL_CANCEL << 2)) != 0) return CANCELLED;
    setOp(at);
    const op = load<i32>(at);
    const work = sync.hasHelpers() ? workOf(op) : -1;
    const shared = work >= sharedWork;
    sync.beginUnits(!shared);
    if (shared) sync.openOp(at, work >= sharedWork * WAKING_WORK);
    runOp(op);
    if (shared && !sync.closeOp()) return ENDED;
    store<i32>(call + (plan.CALL_OPS_DONE << 2), i + 1);
    at += <usize>load<i32>(at, 4) << 2;
  }
  return DONE;
}

function runOp(op: i32): void {
  switch (op) {
    case plan.OP_EMBED: return embed();
    case plan.OP_NORM: return norm();
    case plan.OP_LINEAR: return linear();
    case plan.OP_HC_ACT: return hcAct();
    case plan.OP_HC_MIX: return hcMix();
    case plan.OP_HC_WRITE: return hcWrite();
    case plan.OP_CONV: return conv();
    case plan.OP_GATED_DELTA: return gatedDelta();
    case plan.OP_GATED_NORM: return gatedNorm();
    case plan.OP_ATTENTION_PREP: return attentionPrep();
    case plan.OP_INDEX_PREP: return indexPrep();
    case plan.OP_INDEX_BLOCKS: return indexBlocks();
    case plan.OP_INDEX_SELECT: return indexSelect();
    case plan.OP_ATTENTION: return attention();
    case plan.OP_ROUTER: return router();
    case plan.OP_MOE_GROUP: return moeGroup();
    case plan.OP_MOE_UP: return moeUp();
    case plan.OP_MOE_DOWN: return moeDown();
    case plan.OP_MOE_COMBINE: return moeCombine();
    case plan.OP_SWIGLU: return swiglu();
    case plan.OP_ADD: return add();
    case plan.OP_PLE_GATE: return pleGate();
    case plan.OP_PLE_ADD: return pleAdd();
    case plan.OP_GATHER: return gather();
    case plan.OP_TAP: return tap();
    case plan.OP_MHC_WEIGHTS: return mhcWeights();
    case plan.OP_MHC_SUM: return mhcSum();
    case plan.OP_MHC_WRITE: return mhcWrite();
    case plan.OP_GROUPED_LINEAR: return groupedLinear();
    case plan.OP_SCORE_ROUTER: return scoreRouter();
    case plan.OP_LAYER_NORM: return layerNorm();
    case plan.OP_KDA: return kda();
    case plan.OP_ROPE_TAIL: return ropeTail();
    case plan.OP_POOL: return pool();
    case plan.OP_WINDOW_ATTENTION: return windowAttention();
    case plan.OP_LATENT_ATTENTION: return latentAttention();
    case plan.OP_LATENT_STORE: return latentStore();
    case plan.OP_EMBED_GREEDY: return embedGreedy();
    default: unreachable(); // the program was checked when it was loaded
  }
}

/** Work of the current op, in units of work.ts; -1 for ops that are never shared: a counting sort, and mere copies. */
function workOf(op: i32): f64 {
  switch (op) {
    case plan.OP_EMBED: return embedWork();
    case plan.OP_EMBED_GREEDY: return embedGreedyWork();
    case plan.OP_NORM: return normWork();
    case plan.OP_LINEAR: return linearWork();
    case plan.OP_HC_ACT: return hcActWork();
    case plan.OP_HC_MIX: return hcMixWork();
    case plan.OP_HC_WRITE: return hcWriteWork();
    case plan.OP_CONV: return convWork();
    case plan.OP_GATED_DELTA: return gatedDeltaWork();
    case plan.OP_GATED_NORM: return gatedNormWork();
    case plan.OP_ATTENTION_PREP: return attentionPrepWork();
    case plan.OP_INDEX_PREP: return indexPrepWork();
    case plan.OP_INDEX_BLOCKS: return indexBlocksWork();
    case plan.OP_INDEX_SELECT: return indexSelectWork();
    case plan.OP_ATTENTION: return attentionWork();
    case plan.OP_ROUTER: return routerWork();
    case plan.OP_MOE_UP: return moeUpWork();
    case plan.OP_MOE_DOWN: return moeDownWork();
    case plan.OP_MOE_COMBINE: return moeCombineWork();
    case plan.OP_SWIGLU: return swigluWork();
    case plan.OP_ADD: return addWork();
    case plan.OP_PLE_GATE: return pleGateWork();
    case plan.OP_PLE_ADD: return pleAddWork();
    case plan.OP_MHC_WEIGHTS: return mhcWeightsWork();
    case plan.OP_MHC_SUM: return mhcSumWork();
    case plan.OP_MHC_WRITE: return mhcWriteWork();
    case plan.OP_GROUPED_LINEAR: return groupedLinearWork();
    case plan.OP_SCORE_ROUTER: return scoreRouterWork();
    case plan.OP_LAYER_NORM: return layerNormWork();
    case plan.OP_KDA: return kdaWork();
    case plan.OP_ROPE_TAIL: return ropeTailWork();
    case plan.OP_POOL: return poolWork();
    case plan.OP_WINDOW_ATTENTION: return windowAttentionWork();
    case plan.OP_LATENT_ATTENTION: return latentAttentionWork();
    case plan.OP_LATENT_STORE: return latentStoreWork();
    default: return -1;
  }
}

/** Private memory that each thread needs to run a plan whose rows see at most `visible` tokens; a multiple of 64. */
export function scratchBytes(code: usize, visible: i32): usize {
  measure(code, visible);
  let most: usize = 256;
  let at = code + HEADER_BYTES;
  for (let i = load<i32>(code + (plan.PLAN_OPS << 2)); i > 0; i--) {
    setOp(at);
    most = max(most, scratchOf(load<i32>(at)));
    at += <usize>load<i32>(at, 4) << 2;
  }
  return (most + 63) & ~63;
}

function scratchOf(op: i32): usize {
  switch (op) {
    case plan.OP_LINEAR: return linearScratch();
    case plan.OP_CONV: return convScratch();
    case plan.OP_GATED_DELTA: return gatedDeltaScratch();
    case plan.OP_ATTENTION_PREP: return attentionPrepScratch();
    case plan.OP_INDEX_BLOCKS: return indexBlocksScratch();
    case plan.OP_INDEX_SELECT: return indexSelectScratch();
    case plan.OP_ATTENTION: return attentionScratch();
    case plan.OP_ROUTER: return routerScratch();
    case plan.OP_MOE_UP: return moeUpScratch();
    case plan.OP_MOE_DOWN: return moeDownScratch();
    case plan.OP_PLE_GATE: return pleGateScratch();
    case plan.OP_MHC_WEIGHTS: return mhcWeightsScratch();
    case plan.OP_MHC_WRITE: return mhcWriteScratch();
    case plan.OP_GROUPED_LINEAR: return groupedLinearScratch();
    case plan.OP_SCORE_ROUTER: return scoreRouterScratch();
    case plan.OP_KDA: return kdaScratch();
    case plan.OP_POOL: return poolScratch();
    case plan.OP_WINDOW_ATTENTION: return windowAttentionScratch();
    case plan.OP_LATENT_ATTENTION: return latentAttentionScratch();
    default: return 0;
  }
}
