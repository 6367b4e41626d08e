/**
 * The `cpu` backend: plans run in native code on the addon's own threads, and JavaScript only submits and awaits.
 *
 * Invariants: one plan runs at a time, in the order of the calls; the event loop is never blocked by one; everything that
 * the addon refuses becomes a PlumblineError of the code that it named; after `close` every method but `close` throws.
 */
import { ERRORS, PlumblineError, type ErrorCode } from '../../../errors.js';
import type { Backend, Execution, LoadedPlan, MappedFile, MemoryBlock, PlanProgram } from '../backend.js';
import { loadAddon, type NativeAddon, type NativeBackend, type NativePlan, type ProbeRate } from './addon.js';
import { allocateBlock, mapWholeFile, type MemorySource } from './memory.js';

export interface CpuBackendOptions {
  /** Threads that compute; default: the cores that this process may use. More threads than cores never spin. */
  readonly threads?: number | undefined;
  /**
   * The instruction set: `avx512bf16`, `avx512`, `avx2`, `neon`, `generic`; default: environment variable PLUMBLINE_ISA,
   * else the best of this machine. All of them give the same bits.
   */
  readonly isa?: string | undefined;
  /**
   * Nanoseconds of work that one thread does alone, because sharing it would cost more; default 4000. Never changes a bit;
   * tests set 0, so that even the smallest op is cut into all its parts.
   */
  readonly sharedWork?: number | undefined;
}

const SHARED_WORK = 4000;

/** Whether the cpu backend can run here, why not, and on which instruction set. */
export type CpuBackendStatus =
  | { readonly available: true; readonly isa: string; readonly cores: number; readonly reason: undefined }
  | { readonly available: false; readonly reason: string; readonly isa: undefined };

/** Asks without opening anything. */
export function cpuBackendStatus(): CpuBackendStatus {
  const found = loadAddon();
  if (found.kind === 'missing') return { available: false, reason: found.reason, isa: undefined };
  const wanted = process.env.PLUMBLINE_ISA ?? '';
  const isa = found.addon.resolveIsa(wanted);
  if (isa === null)
    return { available: false, reason: `PLUMBLINE_ISA=${wanted} cannot run on this machine`, isa: undefined };
  return { available: true, isa, cores: found.addon.availableCores(), reason: undefined };
}

/**
 * CRC-32 as zlib computes it, several times as fast; undefined where the addon or the machine's instructions are missing,
 * then zlib's own is the one to take.
 */
export function fastCrc32(): ((bytes: Uint8Array, before: number) => number) | undefined {
  const found = loadAddon();
  if (found.kind === 'missing') return undefined;
  const { addon } = found;
  return addon.crc32(new Uint8Array(0), 0) === null ? undefined : (bytes, before) => addon.crc32(bytes, before) ?? 0;
}

/** Reading with such checksums on a thread of Node's pool; undefined where `fastCrc32` is. */
export function fastReader(): NativeAddon['readSummed'] | undefined {
  const found = loadAddon();
  if (found.kind === 'missing' || fastCrc32() === undefined) return undefined;
  const { addon } = found;
  return async (descriptor, views, position, before) => addon.readSummed(descriptor, views, position, before);
}

/** Opens the backend and its threads. Throws backend_unavailable, invalid_option or out_of_memory. */
export function openCpuBackend(options: CpuBackendOptions = {}): Backend {
  const addon = requireAddon();
  const threads = options.threads ?? addon.availableCores();
  const isa = options.isa ?? process.env.PLUMBLINE_ISA ?? '';
  return new CpuBackend(
    addon,
    attempt(() => addon.open(threads, isa, options.sharedWork ?? SHARED_WORK)),
  );
}

/**
 * Reads a zeroed buffer of `byteLength` bytes over and over with `threads` threads for about `seconds`, on a thread of its
 * own; bytes per second. The buffer should be far larger than the caches. Throws out_of_memory.
 */
export async function readBandwidth(byteLength: number, threads: number, seconds: number): Promise<ProbeRate> {
  const addon = requireAddon();
  const found = await attempt(() => addon.readBandwidth(byteLength, threads, seconds, process.env.PLUMBLINE_ISA ?? ''));
  if (found.rounds === 0) throw new PlumblineError('out_of_memory', `no ${byteLength} bytes for the bandwidth probe`);
  return found;
}

/**
 * Float32 multiply-adds per second that `threads` threads reach together on registers alone, measured for about `seconds`
 * on a thread of its own. Throws out_of_memory when the threads cannot be had.
 */
export async function multiplyRate(threads: number, seconds: number): Promise<ProbeRate> {
  const addon = requireAddon();
  const found = await attempt(() => addon.multiplyRate(threads, seconds, process.env.PLUMBLINE_ISA ?? ''));
  if (found.rounds === 0) throw new PlumblineError('out_of_memory', `no ${threads} threads for the arithmetic probe`);
  return found;
}

function requireAddon(): NativeAddon {
  const found = loadAddon();
  if (found.kind === 'missing') throw new PlumblineError('backend_unavailable', `backend cpu: ${found.reason}`);
  return found.addon;
}

class CpuPlan implements LoadedPlan {
  readonly program: PlanProgram;
  native: NativePlan | undefined;
  readonly #addon: NativeAddon;

  constructor(addon: NativeAddon, program: PlanProgram, native: NativePlan) {
    this.#addon = addon;
    this.program = program;
    this.native = native;
  }

  free(): void {
    if (this.native !== undefined) this.#addon.freePlan(this.native);
    this.native = undefined;
  }
}

class CpuBackend implements Backend, MemorySource {
  readonly name = 'cpu';
  readonly floatLaw = 'fma';
  readonly isa: string;
  readonly threads: number;
  readonly addon: NativeAddon;
  native: NativeBackend | undefined;

  constructor(addon: NativeAddon, native: NativeBackend) {
    this.addon = addon;
    this.native = native;
    const { isa, threads } = addon.describe(native);
    this.isa = isa;
    this.threads = threads;
  }

  allocate(byteLength: number, purpose: string): MemoryBlock {
    return allocateBlock(this, this.#open(), byteLength, purpose);
  }

  readonly mapFile = (path: string): MappedFile => mapWholeFile(this, this.#open(), path);

  load(program: PlanProgram): LoadedPlan {
    const native = this.#open();
    const { code, weightAddresses, weightDtypes } = program;
    return new CpuPlan(
      this.addon,
      program,
      attempt(() => this.addon.load(native, code, weightAddresses, weightDtypes)),
    );
  }

  async execute({ plan, workspace, call, followed = false }: Execution): Promise<'done' | 'cancelled'> {
    const backend = this.#open();
    if (!(plan instanceof CpuPlan) || plan.native === undefined) {
      throw new PlumblineError('backend_failed', 'the plan was freed, or loaded by another backend');
    }
    const native = plan.native;
    const run = attempt(() => this.addon.execute(backend, native, workspace.address, call.address, followed));
    return await run.catch((error: unknown) => {
      throw translated(error);
    });
  }

  memory(): { readonly allocated: number; readonly mapped: number } {
    if (this.native === undefined) return { allocated: 0, mapped: 0 };
    const { allocated, mapped } = this.addon.describe(this.native);
    return { allocated, mapped };
  }

  /** Cancels what is running, ends the threads and gives all memory back; blocks must not be used afterwards. */
  close(): Promise<void> {
    if (this.native !== undefined) this.addon.close(this.native);
    this.native = undefined;
    return Promise.resolve();
  }

  #open(): NativeBackend {
    if (this.native === undefined) throw new PlumblineError('backend_failed', 'the cpu backend is closed');
    return this.native;
  }
}

function attempt<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw translated(error);
  }
}

function translated(error: unknown): unknown {
  if (!(error instanceof Error) || !('code' in error)) return error;
  const { code } = error;
  return typeof code === 'string' && code in ERRORS
    ? new PlumblineError(code as ErrorCode, error.message, { cause: error })
    : error;
}
