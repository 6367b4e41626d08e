/**
 * What the writers of a Qwen plan share: the builder, the bound weights, and the choice of a gate's lowering.
 */
import { PlumblineError } from '../../errors.js';
import { PlanBuilder, type PlanBuffer, type PlanOptions } from '../../engine/plan/builder.js';
import type { GateLowering, GatePolicy } from '../../engine/plan/phase.js';
import type { WeightTable } from '../../engine/plan/weight-table.js';
import type { BoundQwen } from './bind.js';
import type { Qwen4Config, QwenConfig } from './config-types.js';
import { siteLowering, type GateSite } from './laws.js';
import type { QwenStateLayout } from './state-layout.js';

export interface QwenPlanOptions {
  readonly config: QwenConfig;
  readonly bound: BoundQwen;
  readonly state: QwenStateLayout;
  readonly plan: PlanOptions;
  readonly lowering: GateLowering;
  readonly gatePolicy: GatePolicy;
  /** Copies of the residual before every layer, for verification. */
  readonly taps: boolean;
  /** Keeps what the recurrences are fed in buffers of their own, so that a commit can run them again. */
  readonly stash?: boolean | undefined;
}

export class PlanContext {
  readonly builder: PlanBuilder;
  readonly config: QwenConfig;
  readonly bound: BoundQwen;
  readonly state: QwenStateLayout;
  readonly taps: boolean;
  readonly stash: boolean;
  readonly #options: QwenPlanOptions;

  constructor(options: QwenPlanOptions, weights: WeightTable) {
    this.builder = new PlanBuilder(options.plan, weights);
    this.config = options.config;
    this.bound = options.bound;
    this.state = options.state;
    this.taps = options.taps;
    this.stash = options.stash ?? false;
    this.#options = options;
  }

  /** Appends an RMS norm over groups of `group` elements. */
  norm(input: PlanBuffer, out: PlanBuffer, gain: number, group: number): void {
    this.builder.op('norm', {
      rows: input.rows === 'M' ? 1 : 0,
      in: input.offset,
      out: out.offset,
      width: input.width,
      group,
      gain,
      eps: this.config.rmsNormEps,
    });
  }

  /** The `lowering` field of an op at this site. */
  lowering(site: GateSite): number {
    return siteLowering(site, this.#options.lowering, this.#options.gatePolicy) === 'fused' ? 1 : 0;
  }

  qwen4(): Qwen4Config {
    if (this.config.family !== 'qwen4_exp') throw missing('a qwen4_exp configuration');
    return this.config;
  }
}

export function missing(what: string): PlumblineError {
  return new PlumblineError('plan_invalid', `the plan builder needs ${what}`);
}
