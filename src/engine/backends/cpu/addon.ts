/**
 * Finds and loads the native addon, or says why it is not there.
 *
 * Invariants: the addon is looked for in one place, build/Release of the package that this file belongs to; it is loaded at
 * most once a thread; a missing addon is an answer (`missing`), never an exception.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** A backend inside the addon; only its functions can use it. */
export type NativeBackend = object & { readonly native: unique symbol };
/** A plan inside the addon. */
export type NativePlan = object & { readonly nativePlan: unique symbol };

/** What a probe found. */
export interface ProbeRate {
  /** Per second, of the best and of the median round. */
  readonly best: number;
  readonly median: number;
  readonly rounds: number;
}

/** native/src/addon.c; what throws does so with a code of errors.ts. */
export interface NativeAddon {
  open(threads: number, isa: string, sharedWork: number): NativeBackend;
  close(backend: NativeBackend): void;
  describe(backend: NativeBackend): { isa: string; threads: number; allocated: number; mapped: number };
  allocate(backend: NativeBackend, byteLength: number): { address: number; buffer: ArrayBuffer } | null;
  release(backend: NativeBackend, address: number, buffer?: ArrayBuffer): void;
  /** A string is the system's reason. */
  mapFile(backend: NativeBackend, path: string): { address: number; byteLength: number } | string;
  /** CRC-32 of bytes behind those whose checksum is `before`; null where this machine has no instructions for it. */
  crc32(bytes: Uint8Array, before: number): number | null;
  /** Reads into views one after the other; their checksums, that of the first behind `before`. Only where crc32 runs. */
  readSummed(descriptor: number, views: readonly Uint8Array[], position: number, before: number): Promise<number[]>;
  load(backend: NativeBackend, code: Int32Array, addresses: Float64Array, dtypes: Int32Array): NativePlan;
  freePlan(plan: NativePlan): void;
  /** `followed`: another execution comes at once, and both may be settled together. */
  execute(
    backend: NativeBackend,
    plan: NativePlan,
    workspace: number,
    call: number,
    followed: boolean,
  ): Promise<'done' | 'cancelled'>;
  /** The instruction set that a name stands for here (`''`: the best), or null when it cannot run. */
  resolveIsa(name: string): string | null;
  availableCores(): number;
  readBandwidth(byteLength: number, threads: number, seconds: number, isa: string): Promise<ProbeRate>;
  multiplyRate(threads: number, seconds: number, isa: string): Promise<ProbeRate>;
}

export type AddonState =
  { readonly kind: 'loaded'; readonly addon: NativeAddon } | { readonly kind: 'missing'; readonly reason: string };

let state: AddonState | undefined;

/** The addon, or the reason of its absence. */
export function loadAddon(): AddonState {
  return (state ??= findAddon());
}

function findAddon(): AddonState {
  const root = packageRoot();
  const path = join(root, 'build', 'Release', 'plumbline_native.node');
  if (!existsSync(path)) return { kind: 'missing', reason: buildReason(root) };
  try {
    return { kind: 'loaded', addon: createRequire(import.meta.url)(path) as NativeAddon };
  } catch (error) {
    const said = error instanceof Error ? error.message.split('\n')[0] : String(error);
    return { kind: 'missing', reason: `the native addon cannot be loaded: ${said}` };
  }
}

/** The nearest folder above this file that has a package.json: the sources run from src/ and from dist/src/. */
function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json')) && dirname(folder) !== folder) folder = dirname(folder);
  return folder;
}

/** What scripts/build-native.mjs wrote down about its last run. */
function buildReason(root: string): string {
  const path = join(root, 'build', 'native-status.json');
  if (!existsSync(path)) return 'the native addon has not been built (npm run build:native)';
  try {
    const status: unknown = JSON.parse(readFileSync(path, 'utf8'));
    if (typeof status === 'object' && status !== null && 'reason' in status && typeof status.reason === 'string') {
      return `the native addon was not built: ${status.reason}`;
    }
  } catch {
    // A status that was cut short says nothing; the addon is missing all the same.
  }
  return 'the native addon was not built, and its build left no reason';
}
