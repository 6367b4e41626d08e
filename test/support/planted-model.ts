/**
 * The planted checkpoint as a running model, with a spy on what its backend executes, and what the phase law says of its
 * gates: a table of phases and one of policies, written down here from the law and from nothing in src/.
 */
import type { Backend, Execution, LoadedPlan, MemoryBlock, PlanProgram } from '../../src/engine/backends/backend.js';
import type { ActivationLaw } from '../../src/engine/plan/builder.js';
import { decodeProgram } from '../../src/engine/plan/decode.js';
import type { GatePolicy, Phase } from '../../src/engine/plan/phase.js';
import { loadModel } from '../../src/families/load.js';
import { QwenModel } from '../../src/families/qwen/model.js';
import type { Lowering } from './gate-sites.js';
import type { SiteLowerings } from './layerwise-blocks.js';

/** Which lowering class a forward of a phase has. */
export const CLASS_OF_PHASE: Readonly<Record<Phase, Lowering>> = {
  prefill: 'standalone',
  decode: 'standalone',
  verify: 'fused',
  repair: 'fused',
  'final-primary': 'fused',
  draft: 'standalone',
  postcommit: 'standalone',
};

export const POLICIES: readonly GatePolicy[] = ['strict', 'mtplx', 'uniform'];

/** How the sites of a forward of this class are computed. */
export function sitesOf(policy: GatePolicy, lowering: Lowering): SiteLowerings {
  const proven = policy === 'uniform' ? 'standalone' : lowering;
  const option = policy === 'mtplx' && lowering === 'fused' ? 'fused' : 'ordinary';
  return { attention: proven, injection: proven, sharedExpert: option, ngram: option };
}

export interface PlantedOptions {
  readonly law: ActivationLaw;
  readonly gatePolicy: GatePolicy;
  readonly maxRows?: number;
}

/** The backend stays the caller's. */
export async function openPlantedModel(
  dir: string,
  backend: Backend,
  { law, gatePolicy, maxRows = 32 }: PlantedOptions,
): Promise<{ readonly model: QwenModel; readonly spy: SpyBackend }> {
  const spy = new SpyBackend(backend);
  const options = { id: 'planted', dtype: law.name, gatePolicy, maxRows, sequences: 8, draftHead: true };
  const { model } = await loadModel({ dir, backend: spy, ...options });
  if (!(model instanceof QwenModel)) throw new TypeError('the planted checkpoint is of another family');
  return { model, spy };
}

type Site = keyof SiteLowerings;

/** Passes everything on, and remembers the gates of every executed plan. */
export class SpyBackend implements Backend {
  readonly mapFile?: NonNullable<Backend['mapFile']>;
  readonly #inner: Backend;
  #executed: PlanProgram[] = [];

  constructor(inner: Backend) {
    this.#inner = inner;
    if (inner.mapFile) this.mapFile = inner.mapFile.bind(inner);
  }

  get name(): Backend['name'] {
    return this.#inner.name;
  }

  get isa(): string {
    return this.#inner.isa;
  }

  get floatLaw(): Backend['floatLaw'] {
    return this.#inner.floatLaw;
  }

  get threads(): number {
    return this.#inner.threads;
  }

  allocate(byteLength: number, purpose: string): MemoryBlock {
    return this.#inner.allocate(byteLength, purpose);
  }

  load(program: PlanProgram): LoadedPlan {
    return this.#inner.load(program);
  }

  execute(execution: Execution): Promise<'done' | 'cancelled'> {
    this.#executed.push(execution.plan.program);
    return this.#inner.execute(execution);
  }

  memory(): ReturnType<Backend['memory']> {
    return this.#inner.memory();
  }

  close(): Promise<void> {
    return this.#inner.close();
  }

  /** The lowerings of the gates executed since the last question, site by site, in order. */
  takeGates(): Record<Site, Lowering[]> {
    const gates: Record<Site, Lowering[]> = { attention: [], injection: [], sharedExpert: [], ngram: [] };
    for (const { code } of this.#executed) {
      for (const op of decodeProgram(code).ops) {
        const lowering = (field: number): Lowering => (field === 1 ? 'fused' : 'standalone');
        if (op.name === 'attention') gates.attention.push(lowering(op.fields.lowering));
        if (op.name === 'hcAct' && op.fields.inject >= 0) gates.injection.push(lowering(op.fields.lowering));
        if (op.name === 'moeCombine') gates.sharedExpert.push(lowering(op.fields.lowering));
        if (op.name === 'pleGate') gates.ngram.push(lowering(op.fields.lowering));
      }
    }
    this.#executed = [];
    return gates;
  }
}
