/**
 * What a tensor of a checkpoint is: where its bytes lie and how they read. No data passes through here.
 *
 * Invariants: a `TensorRef` is made only by a checkpoint that has checked the file around it, so its range lies inside
 * the file and holds exactly `product(shape)` elements of `dtype`; offsets count from the first byte of the file, and
 * are not promised to be aligned to the element.
 */

/** Element widths in bits of every dtype that a safetensors header may name. */
export const DTYPE_BITS = {
  F64: 64,
  F32: 32,
  F16: 16,
  BF16: 16,
  F8_E4M3: 8,
  F8_E5M2: 8,
  F8_E8M0: 8,
  F6_E2M3: 6,
  F6_E3M2: 6,
  F4: 4,
  I64: 64,
  I32: 32,
  I16: 16,
  I8: 8,
  U64: 64,
  U32: 32,
  U16: 16,
  U8: 8,
  BOOL: 8,
  C64: 64,
} as const satisfies Record<string, number>;

export type Dtype = keyof typeof DTYPE_BITS;

/** The dtypes that a weight of the forward pass may be stored in; each converts to float32 without rounding. */
export type FloatDtype = 'BF16' | 'F16' | 'F32';

export const FLOAT_DTYPES: readonly FloatDtype[] = ['BF16', 'F16', 'F32'];

export function isFloatDtype(dtype: Dtype): dtype is FloatDtype {
  return (FLOAT_DTYPES as readonly Dtype[]).includes(dtype);
}

/** A shape as messages show it, cut when somebody wrote a thousand dimensions. */
export function formatShape(shape: readonly number[]): string {
  return shape.length > 8
    ? `[${shape.slice(0, 8).join(', ')}, ... ${shape.length} dimensions]`
    : `[${shape.join(', ')}]`;
}

/** A named tensor in a file: row-major, contiguous, little-endian. */
export interface TensorRef {
  readonly name: string;
  /** Path of the file, as the checkpoint opened it. */
  readonly file: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** First byte, counted from the start of the file (not of its data section). */
  readonly byteOffset: number;
  readonly byteLength: number;
}

/** A contiguous matrix inside a tensor, for example one expert of a stack. */
export interface TensorSlice {
  readonly tensor: TensorRef;
  /** First byte, counted from the start of the tensor. */
  readonly byteOffset: number;
  readonly byteLength: number;
  /** [rows, columns] of the slice. */
  readonly shape: readonly [number, number];
}
