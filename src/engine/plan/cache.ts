/**
 * Plans by key. A key names everything that a plan's ops depend on, so that equal keys mean equal plans and two forwards
 * under different laws never share one.
 *
 * Invariants: the lowering class is part of the key and is read from the phase at every look-up, never remembered from
 * when the plan was built; plans are kept for the life of the model.
 */
import type { Backend, LoadedPlan } from '../backends/backend.js';
import type { Plan } from './builder.js';
import type { GateLowering, GatePolicy } from './phase.js';

export interface PlanKey {
  /** Which part of the model: `trunk`, later the draft head. */
  readonly group: string;
  readonly lowering: GateLowering;
  readonly gatePolicy: GatePolicy;
  /** Name of the activation law. */
  readonly law: string;
  /** Float law of the backend. */
  readonly floatLaw: string;
  readonly rowCapacity: number;
  readonly outCapacity: number;
  readonly taps: boolean;
}

export function planKeyText(key: PlanKey): string {
  return (
    `${key.group}/${key.lowering}/${key.gatePolicy}/${key.law}/${key.floatLaw}/` +
    `rows<=${key.rowCapacity}/out<=${key.outCapacity}${key.taps ? '/taps' : ''}`
  );
}

export interface CachedPlan {
  readonly key: PlanKey;
  readonly plan: Plan;
  readonly loaded: LoadedPlan;
}

export class PlanCache {
  readonly #plans = new Map<string, CachedPlan>();
  readonly #backend: Backend;
  readonly #build: (key: PlanKey) => Plan;

  constructor(backend: Backend, build: (key: PlanKey) => Plan) {
    this.#backend = backend;
    this.#build = build;
  }

  /** The plan of this key, built and loaded on first use. Throws plan_invalid. */
  get(key: PlanKey): CachedPlan {
    const text = planKeyText(key);
    const known = this.#plans.get(text);
    if (known) return known;
    const plan = this.#build(key);
    const cached: CachedPlan = { key, plan, loaded: this.#backend.load(plan.program) };
    this.#plans.set(text, cached);
    return cached;
  }

  /** Keys of the plans built so far. */
  keys(): string[] {
    return [...this.#plans.keys()];
  }

  close(): void {
    for (const { loaded } of this.#plans.values()) loaded.free();
    this.#plans.clear();
  }
}
