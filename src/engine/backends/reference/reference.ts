/**
 * The reference backend: the op table in plain TypeScript, one readable function an op. It judges the fast backends and
 * needs nothing but Node; it is not for serving.
 *
 * Invariants: under float law `mul-add` it gives the bits of the wasm backend, under `fma` those of the cpu backend; one
 * plan runs at a time, in the order of the calls; the event loop gets a turn between two ops, so that a cancel is seen.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { PlumblineError } from '../../../errors.js';
import type { FloatLaw } from '../../../numerics/lanes.js';
import { checkProgram } from '../../plan/check.js';
import type { DecodedOp, DecodedProgram, PlanHeader } from '../../plan/decode.js';
import type { LinearSegmentFields, OpFields, OpName } from '../../plan/ops.js';
import type { Backend, Execution, LoadedPlan, MemoryBlock, PlanProgram } from '../backend.js';
import { Arithmetic } from './arithmetic.js';
import { attention, attentionPrep } from './attention.js';
import { CallView, OpContext } from './context.js';
import { conv, gatedDelta, gatedNorm, kda } from './delta.js';
import { hcAct, hcMix, hcWrite } from './hyper-connections.js';
import { indexBlocks, indexPrep, indexSelect } from './indexer.js';
import { latentAttention, latentStore, ropeTail, windowAttention } from './latent.js';
import { asUint16, ReferenceMemory } from './memory.js';
import { mhcSum, mhcWeights, mhcWrite } from './manifold.js';
import { moeCombine, moeDown, moeGroup, moeUp, router, scoreRouter } from './moe.js';
import { pleAdd, pleGate } from './ple.js';
import { pool } from './pool.js';
import { add, embed, embedGreedy, gather, groupedLinear, layerNorm, linear, norm, swiglu, tap } from './rows.js';

type OpFunction<Name extends OpName> = (
  op: OpFields<Name>,
  x: OpContext,
  segments: readonly LinearSegmentFields[],
) => void;

/** The implementation of every op of the table. */
export const REFERENCE_OPS: { readonly [Name in OpName]: OpFunction<Name> } = {
  embed,
  norm,
  linear,
  hcAct,
  hcMix,
  hcWrite,
  conv,
  gatedDelta,
  gatedNorm,
  attentionPrep,
  indexPrep,
  indexBlocks,
  indexSelect,
  attention,
  router,
  moeGroup,
  moeUp,
  moeDown,
  moeCombine,
  swiglu,
  add,
  pleGate,
  pleAdd,
  gather,
  tap,
  mhcWeights,
  mhcSum,
  mhcWrite,
  groupedLinear,
  scoreRouter,
  layerNorm,
  kda,
  ropeTail,
  pool,
  windowAttention,
  latentAttention,
  latentStore,
  embedGreedy,
};

class ReferencePlan implements LoadedPlan {
  readonly program: PlanProgram;
  readonly decoded: DecodedProgram;

  constructor(program: PlanProgram) {
    this.program = program;
    this.decoded = checkProgram(program);
  }

  free(): void {
    // nothing is held outside this object
  }
}

export interface ReferenceOptions {
  /** How a fused multiply-add of the op table is rounded; default `fma`. */
  readonly floatLaw?: FloatLaw;
}

export class ReferenceBackend implements Backend {
  readonly name = 'reference';
  readonly isa = 'typescript';
  readonly threads = 1;
  readonly floatLaw: FloatLaw;
  readonly #memory = new ReferenceMemory();
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: ReferenceOptions = {}) {
    this.floatLaw = options.floatLaw ?? 'fma';
  }

  allocate(byteLength: number, purpose: string): MemoryBlock {
    return this.#memory.allocate(byteLength, purpose);
  }

  load(program: PlanProgram): LoadedPlan {
    return new ReferencePlan(program);
  }

  execute(execution: Execution): Promise<'done' | 'cancelled'> {
    const run = this.#last.then(() => this.#run(execution));
    this.#last = run.catch(() => undefined); // the caller sees the failure; the next plan does not wait for it in vain
    return run;
  }

  memory(): { readonly allocated: number; readonly mapped: number } {
    return { allocated: this.#memory.allocated, mapped: 0 };
  }

  async close(): Promise<void> {
    await this.#last;
  }

  async #run({ plan, workspace, call: block }: Execution): Promise<'done' | 'cancelled'> {
    if (!(plan instanceof ReferencePlan)) throw failed('the plan was loaded by another backend');
    const { header, ops } = plan.decoded;
    const call = new CallView(block);
    checkCall(call, header, workspace);
    const math = new Arithmetic(header, this.floatLaw, {
      standalone: this.#table(plan.program, header.standaloneTable),
      fused: this.#table(plan.program, header.fusedTable),
    });
    const context = new OpContext(this.#memory, plan.program, header, math, workspace.bytes, call);
    for (const [index, op] of ops.entries()) {
      if (call.cancelled) return 'cancelled';
      runOp(op, context);
      call.opsDone = index + 1;
      await nextTurn();
    }
    return 'done';
  }

  #table(program: PlanProgram, index: number): Uint16Array | undefined {
    return index < 0 ? undefined : asUint16(this.#memory.resolve(program.weightAddresses[index]!, 2 * 65536));
  }
}

function runOp<Name extends OpName>(op: DecodedOp & { readonly name: Name }, context: OpContext): void {
  const run = REFERENCE_OPS[op.name] as OpFunction<Name>;
  run(op.fields as OpFields<Name>, context, op.segments);
}

function checkCall(call: CallView, header: PlanHeader, workspace: MemoryBlock): void {
  if (call.rows > header.rowCapacity || call.outRows.length > header.outCapacity) {
    throw failed(`a call of ${call.rows} + ${call.outRows.length} rows passes the capacities of the plan`);
  }
  if (workspace.bytes.length < 4 * header.workspaceWords) {
    throw failed(`a workspace of ${workspace.bytes.length} bytes is less than ${header.workspaceWords} words`);
  }
}

function failed(message: string): PlumblineError {
  return new PlumblineError('backend_failed', message);
}
