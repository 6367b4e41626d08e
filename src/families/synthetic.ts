/**
 * Made-up models for measurements: real architectures over random weights, of known sizes, and what a forward of theirs
 * must move and multiply. Nothing but measuring uses them.
 */
import type { LanguageModel } from '../engine/model.js';
import type { Phase } from '../engine/plan/phase.js';
import { planTraffic, type PlanTraffic, type TrafficCall } from '../engine/plan/traffic.js';
import type { MemoryPlan } from '../weights/memory-plan.js';
import type { AssembleOptions } from './assemble.js';
import { loadSyntheticQwen, type SyntheticSize } from './qwen/synthetic.js';

export type { PlanTraffic, SyntheticSize, TrafficCall };

export interface SyntheticOptions extends AssembleOptions {
  /** `standard` is what figures are told of; `tiny` is for tests. */
  readonly size: SyntheticSize;
  /** Equal seeds give equal weights. */
  readonly seed: number;
  /** Whether it has a draft head; default false. */
  readonly draftHead?: boolean | undefined;
}

export interface SyntheticModel {
  readonly model: LanguageModel;
  readonly memory: MemoryPlan;
  /** Parameters in all, embeddings and n-gram tables included. */
  readonly parameters: number;
  /** Counted from the very plan that such a call runs. */
  traffic(call: TrafficCall, phase: Phase): PlanTraffic;
}

/** @throws invalid_option, model_too_large, out_of_memory, request_cancelled */
export async function loadSynthetic(options: SyntheticOptions): Promise<SyntheticModel> {
  const { model, memory, parameters } = await loadSyntheticQwen(options);
  const { trunk } = model;
  return {
    model,
    memory,
    parameters,
    traffic: (call, phase) => {
      const key = trunk.phaseKey(phase, call.rows, call.outRows);
      return planTraffic(trunk.buildPlan(key).program, call);
    },
  };
}
