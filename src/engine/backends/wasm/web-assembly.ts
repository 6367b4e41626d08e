/**
 * The few parts of the WebAssembly interface that this backend uses, typed here: the compiler's own types of it come only
 * with those of a whole browser.
 */

/** A memory as it is used here: shared, so that `buffer` may be read by every thread and growing detaches nothing. */
export interface WasmMemory {
  readonly buffer: SharedArrayBuffer;
  grow(pages: number): number;
}

/** Compiled code; threads get it by structured clone, without compiling it again. */
export interface WasmModule {
  readonly [Symbol.toStringTag]: 'WebAssembly.Module';
}

export interface WasmGlobal {
  readonly value: unknown;
}

export type WasmExports = Readonly<Record<string, unknown>>;

interface WebAssemblyInterface {
  compile(bytes: Uint8Array): Promise<WasmModule>;
  readonly Instance: new (
    module: WasmModule,
    imports: { readonly env: { readonly memory: WasmMemory } },
  ) => { readonly exports: WasmExports };
  readonly Memory: new (limits: {
    readonly initial: number;
    readonly maximum: number;
    readonly shared: true;
  }) => WasmMemory;
}

export const webAssembly = (globalThis as unknown as { readonly WebAssembly: WebAssemblyInterface }).WebAssembly;
