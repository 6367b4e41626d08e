/**
 * The plan that a model would run for a forward, as text: what `verify plan` prints. The plan is built by the model's own
 * code from its own weights and is not run.
 */
import { PlumblineError } from '../errors.js';
import type { Backend } from '../engine/backends/backend.js';
import { planKeyText } from '../engine/plan/cache.js';
import type { Phase } from '../engine/plan/phase.js';
import { printProgram } from '../engine/plan/print.js';
import { loadModel } from './load.js';
import { isPagedModel } from './paged-model.js';

export interface PlanQuestion {
  /** Checkpoint folder. */
  readonly dir: string;
  readonly backend: Backend;
  readonly dtype: string;
  readonly phase: Phase;
  /** Tokens of the forward, at least 1. */
  readonly rows: number;
  /** Rows whose logits are wanted. */
  readonly outRows: number;
}

export interface PlanText {
  /** Everything that the plan depends on. */
  readonly key: string;
  readonly family: string;
  /** Header, then one line an op and one for each segment of a linear op. */
  readonly lines: readonly string[];
}

/** @throws what loading throws; config_unsupported for a family without printable plans */
export async function describePlan({ dir, backend, dtype, phase, rows, outRows }: PlanQuestion): Promise<PlanText> {
  const { model } = await loadModel({
    dir,
    id: 'plan',
    backend,
    dtype,
    gatePolicy: 'strict',
    maxRows: rows,
    sequences: 1,
    contextLength: undefined,
  });
  try {
    if (!isPagedModel(model)) {
      throw new PlumblineError('config_unsupported', `plans of ${model.family} cannot be printed`);
    }
    const { trunk } = model;
    const key = trunk.phaseKey(phase, rows, outRows);
    const { program, buffers } = trunk.buildPlan(key);
    const names = new Map([...buffers].map(([name, { offset }]) => [offset, name]));
    const lines = printProgram(program.code, {
      buffer: (offset) => names.get(offset),
      weight: (index) => trunk.weightName(index),
    });
    return { key: planKeyText(key), family: model.family, lines };
  } finally {
    await model.close();
  }
}
