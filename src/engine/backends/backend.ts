/**
 * What a backend is: memory with addresses, and something that runs encoded plans over it.
 *
 * Invariants: an address is a byte address in the backend's own memory, an exact integer in a JavaScript number; blocks are
 * 64-byte aligned and zeroed; one plan runs at a time per backend, in the order of the calls; the event loop stays free
 * while a plan runs (except on `reference`, which is for judging, not for serving).
 */
import type { FloatLaw } from '../../numerics/lanes.js';

export type Address = number;
export type BackendName = 'cpu' | 'wasm' | 'reference';

export interface MemoryBlock {
  readonly address: Address;
  /** The block itself, shared with the backend: writes are seen by the next execution. */
  readonly bytes: Uint8Array;
  /** Gives the memory back; reading or writing `bytes` afterwards is a programming error. */
  free(): void;
}

export interface MappedFile {
  /** Address of byte 0 of the file. */
  readonly address: Address;
  readonly byteLength: number;
  close(): void;
}

export interface PlanProgram {
  /** Header, then ops; plan/ops.ts has the layout. */
  readonly code: Int32Array;
  /** Address of every weight table entry. */
  readonly weightAddresses: Float64Array;
  /** Dtype code of every entry: index into WEIGHT_DTYPES. */
  readonly weightDtypes: Int32Array;
}

/** A program that a backend has checked and taken over. */
export interface LoadedPlan {
  readonly program: PlanProgram;
  free(): void;
}

export interface Execution {
  readonly plan: LoadedPlan;
  /** Workspace of at least the plan's workspaceWords. */
  readonly workspace: MemoryBlock;
  /** A filled call block; its `cancel` word may be set while the plan runs. */
  readonly call: MemoryBlock;
  /** The caller submits another execution at once and waits for both: this one need not be told of by itself. */
  readonly followed?: boolean | undefined;
}

export interface Backend {
  readonly name: BackendName;
  /** Instruction set in use: `avx512bf16`, `avx512`, `avx2`, `neon`, `generic`, `simd128`, `typescript`. */
  readonly isa: string;
  readonly floatLaw: FloatLaw;
  readonly threads: number;
  /** Zeroed memory, 64-byte aligned. Throws out_of_memory. `purpose` appears in the message. */
  allocate(byteLength: number, purpose: string): MemoryBlock;
  /** Maps a file read-only; absent where the backend cannot (then the loader reads tensors into blocks). */
  readonly mapFile?: (path: string) => MappedFile;
  /** Checks a program (magic, lengths, offsets within the workspace, weight indices) and takes it over. Throws plan_invalid. */
  load(program: PlanProgram): LoadedPlan;
  /**
   * Runs one plan; plans run one at a time, in the order of the calls. Resolves `cancelled` when the cancel word stopped it; rejects with backend_failed.
   */
  execute(execution: Execution): Promise<'done' | 'cancelled'>;
  /** Bytes allocated and mapped now, for memory reports and leak tests. */
  memory(): { readonly allocated: number; readonly mapped: number };
  close(): Promise<void>;
}
