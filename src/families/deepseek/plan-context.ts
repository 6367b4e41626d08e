/** What the writers of a DeepSeek V4 plan share. */
import type { PlanBuilder, PlanOptions } from '../../engine/plan/builder.js';
import type { ManifoldWriter } from '../plan-manifold.js';
import type { BoundDeepseek } from './bind.js';
import type { DeepseekConfig } from './config-types.js';
import type { DeepseekStateLayout } from './state-layout.js';

export interface DeepseekPlanOptions {
  readonly config: DeepseekConfig;
  readonly bound: BoundDeepseek;
  readonly state: DeepseekStateLayout;
  readonly plan: PlanOptions;
  /** Copies of the residual before every layer, for verification. */
  readonly taps: boolean;
}

export interface DeepseekPlanContext extends ManifoldWriter {
  readonly builder: PlanBuilder;
  readonly config: DeepseekConfig;
}
