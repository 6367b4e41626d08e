/**
 * Takes tensors out of a checkpoint by name, each checked against what the configuration requires, and remembers which,
 * so that what nobody asked for can be reported.
 *
 * Invariants: a reference that leaves here has a float dtype and the shape that was asked for; every refusal names the
 * tensor, what it is, and what it must be.
 */
import { PlumblineError } from '../errors.js';
import type { Checkpoint } from './checkpoint.js';
import { quoteName } from './strict-json.js';
import { formatShape, isFloatDtype, type TensorRef } from './tensor.js';

/** What a family takes its weights from, tensor by tensor. */
export interface TensorSupply {
  has(name: string): boolean;
  names(): Iterable<string>;
  /** A float tensor of exactly this shape. */
  take(name: string, shape: readonly number[]): TensorRef;
  /** A float matrix with this many columns and any number of rows. */
  takeRows(name: string, columns: number): TensorRef;
  /** Compares a stored I64 vector, when there is one, with the values of its formula. */
  compareConstants(name: string, expected: readonly (bigint | number)[]): void;
}

export class TensorTaker implements TensorSupply {
  /** Names of all tensors that were handed out or compared. */
  readonly taken = new Set<string>();

  constructor(private readonly checkpoint: Checkpoint) {}

  has(name: string): boolean {
    return this.checkpoint.has(name);
  }

  names(): Iterable<string> {
    return this.checkpoint.names();
  }

  take(name: string, shape: readonly number[]): TensorRef {
    const tensor = this.takeFloat(name);
    if (tensor.shape.length !== shape.length || tensor.shape.some((size, i) => size !== shape[i])) {
      throw new PlumblineError(
        'tensor_mismatch',
        `tensor ${quoteName(name)} has shape ${formatShape(tensor.shape)}; the configuration requires ${formatShape(shape)}`,
      );
    }
    return tensor;
  }

  takeRows(name: string, columns: number): TensorRef {
    const tensor = this.takeFloat(name);
    if (tensor.shape.length !== 2 || tensor.shape[1] !== columns) {
      throw new PlumblineError(
        'tensor_mismatch',
        `tensor ${quoteName(name)} has shape ${formatShape(tensor.shape)}; the configuration requires [rows, ${columns}]`,
      );
    }
    return tensor;
  }

  compareConstants(name: string, expected: readonly (bigint | number)[]): void {
    const tensor = this.checkpoint.find(name);
    if (tensor === undefined) return;
    this.taken.add(name);
    if (tensor.dtype !== 'I64' || tensor.shape.length !== 1 || tensor.shape[0] !== expected.length) {
      throw new PlumblineError(
        'tensor_mismatch',
        `tensor ${quoteName(name)} is ${tensor.dtype} ${formatShape(tensor.shape)}; the configuration requires I64 [${expected.length}]`,
      );
    }
    this.checkpoint.readBigInt64(name).forEach((stored, i) => {
      if (stored !== BigInt(expected[i] as bigint | number)) {
        throw new PlumblineError(
          'tensor_mismatch',
          `tensor ${quoteName(name)} holds ${stored} at index ${i}; the formula of the configuration gives ${expected[i]}`,
        );
      }
    });
  }

  private takeFloat(name: string): TensorRef {
    const tensor = this.checkpoint.find(name);
    if (tensor === undefined)
      throw new PlumblineError('tensor_missing', `the checkpoint has no tensor ${quoteName(name)}`);
    if (!isFloatDtype(tensor.dtype)) {
      throw new PlumblineError(
        'tensor_mismatch',
        `tensor ${quoteName(name)} is ${tensor.dtype}; BF16, F16 or F32 is required`,
      );
    }
    this.taken.add(name);
    return tensor;
  }
}
