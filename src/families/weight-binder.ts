/**
 * Binds tensors of a checked weight map to a backend's memory: each becomes an index of the weight table.
 *
 * Invariants: matrices are never converted or copied; vectors become float32 that the table owns.
 */
import type { Address } from '../engine/backends/backend.js';
import type { WeightTable } from '../engine/plan/weight-table.js';
import type { FloatDtype, TensorRef, TensorSlice } from '../weights/tensor.js';

/** Where tensors lie and what the small ones hold. */
export interface WeightSource {
  /** Address of the tensor's first byte in backend memory. */
  address(tensor: TensorRef): Address;
  /** All elements, widened exactly. */
  float32(tensor: TensorRef): Float32Array;
}

/** A linear map in the weight table; `bias` is -1 without one. */
export interface BoundLinear {
  readonly weight: number;
  readonly bias: number;
  readonly outs: number;
  readonly ins: number;
}

export interface BoundSwiglu {
  readonly gate: BoundLinear;
  readonly up: BoundLinear;
  readonly down: BoundLinear;
}

/** Experts in the weight table: the first index of E consecutive entries each. */
export interface BoundExperts {
  readonly gate: number;
  readonly up: number;
  readonly down: number;
}

interface SwigluTensors {
  readonly gateProj: TensorRef;
  readonly upProj: TensorRef;
  readonly downProj: TensorRef;
}

interface ExpertSlices {
  readonly gateProj: TensorSlice;
  readonly upProj: TensorSlice;
  readonly downProj: TensorSlice;
}

export class WeightBinder {
  constructor(
    readonly source: WeightSource,
    readonly table: WeightTable,
  ) {}

  tensor(tensor: TensorRef): number {
    return this.table.add(tensor.name, this.source.address(tensor), tensor.dtype as FloatDtype);
  }

  matrix(tensor: TensorRef): BoundLinear {
    const [outs = 0, ins = 0] = tensor.shape;
    return { weight: this.tensor(tensor), bias: -1, outs, ins };
  }

  vector(tensor: TensorRef, map?: (value: number) => number): number {
    const values = this.source.float32(tensor);
    return this.table.addFloat32(tensor.name, map ? values.map(map) : values);
  }

  swiglu(weights: SwigluTensors): BoundSwiglu {
    return {
      gate: this.matrix(weights.gateProj),
      up: this.matrix(weights.upProj),
      down: this.matrix(weights.downProj),
    };
  }

  experts(experts: readonly ExpertSlices[]): BoundExperts {
    const part = (of: (e: ExpertSlices) => TensorSlice, name: string): number =>
      experts.map((e, index) => {
        const { tensor, byteOffset } = of(e);
        const address = this.source.address(tensor) + byteOffset;
        return this.table.add(`${tensor.name} [expert ${index} ${name}]`, address, tensor.dtype as FloatDtype);
      })[0]!;
    return {
      gate: part((e) => e.gateProj, 'gate'),
      up: part((e) => e.upProj, 'up'),
      down: part((e) => e.downProj, 'down'),
    };
  }
}
