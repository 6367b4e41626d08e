/**
 * The scalar arithmetic of a plan, as the notation of plan/ops.ts names it: A, fma, dot, sigma, silu, gate, norm, rope.
 * Everything that depends on the activation type, the MTPLX rounding points or the float law is decided here, once per
 * loaded plan; the ops only write the formulas down.
 *
 * Invariants: arguments are float32 values; every result is a float32 value; each operation is rounded in the order written.
 */
import { sigmoidF32 } from '../../../numerics/exp.js';
import { gateF32 } from '../../../numerics/gate-tables.js';
import { fmaF32, laneDot, mulAddF32, type FloatLaw } from '../../../numerics/lanes.js';
import { fromBf16Bits, roundBf16, toBf16Bits } from '../../../numerics/rounding.js';
import type { PlanHeader } from '../../plan/decode.js';

export const fl = Math.fround;

/** The two sigmoid tables of a plan: results by input bits; undefined where the plan names none. */
export interface SigmoidTables {
  readonly standalone: Uint16Array | undefined;
  readonly fused: Uint16Array | undefined;
}

export class Arithmetic {
  readonly mtplx: boolean;
  readonly #bf16: boolean;
  readonly #law: FloatLaw;
  readonly #tables: SigmoidTables;
  /** a * b + c: rounded once, or twice under the law `mul-add`. */
  readonly fma: (a: number, b: number, c: number) => number;

  constructor(header: PlanHeader, law: FloatLaw, tables: SigmoidTables) {
    this.mtplx = header.mtplx === 1;
    this.#bf16 = header.act === 1;
    this.#law = law;
    this.#tables = tables;
    this.fma = law === 'fma' ? fmaF32 : mulAddF32;
  }

  /** A(x): rounds to the activation type. */
  act(x: number): number {
    return this.#bf16 ? roundBf16(x) : fl(x);
  }

  /** A(x) under MTPLX's rounding points, x without. */
  actIfMtplx(x: number): number {
    return this.mtplx ? this.act(x) : x;
  }

  /** A(x) under the ordinary rounding points, x under MTPLX's, which round later. */
  actUnlessMtplx(x: number): number {
    return this.mtplx ? x : this.act(x);
  }

  dot(a: Float32Array, aFrom: number, b: Float32Array, bFrom: number, length: number): number {
    return laneDot(a, aFrom, b, bFrom, length, this.#law);
  }

  /** The ordinary sigmoid, A-rounded. */
  sigma(x: number): number {
    return this.mtplx ? lookUp(this.#tables.standalone, x) : this.act(sigmoidF32(x));
  }

  /** x times its ordinary sigmoid, A-rounded; without MTPLX the sigmoid itself stays float32. */
  silu(x: number): number {
    return this.act(fl(x * (this.mtplx ? lookUp(this.#tables.standalone, x) : sigmoidF32(x))));
  }

  /** The sigmoid of a phase-dependent gate; lowering 0 standalone, 1 fused. */
  gate(x: number, lowering: number): number {
    if (!this.#bf16) return gateF32(x, lowering === 1 ? 'fused' : 'standalone');
    return lookUp(lowering === 1 ? this.#tables.fused : this.#tables.standalone, x);
  }

  /** 1 / sqrt(mean of squares + eps) over `dim` elements. */
  normScale(x: Float32Array, from: number, dim: number, eps: number): number {
    return fl(1 / fl(Math.sqrt(fl(fl(this.dot(x, from, x, from, dim) / dim) + eps))));
  }

  /** RMS norm of `dim` elements, without `gain` the scaling alone; source and target may be the same. */
  norm(
    source: Float32Array,
    from: number,
    dim: number,
    gain: Float32Array | undefined,
    gainFrom: number,
    eps: number,
    target: Float32Array,
    to: number,
  ): void {
    const scale = this.normScale(source, from, dim, eps);
    if (!gain) {
      for (let i = 0; i < dim; i++) target[to + i] = this.act(fl(source[from + i]! * scale));
      return;
    }
    for (let i = 0; i < dim; i++) {
      const scaled = this.actIfMtplx(fl(source[from + i]! * scale));
      target[to + i] = this.act(fl(scaled * gain[gainFrom + i]!));
    }
  }

  /** silu(gate) * up before its last rounding; with a limit that is not 0 both are clamped first, NaN kept. */
  swiglu(gate: number, up: number, limit: number): number {
    if (limit === 0) return fl(this.silu(gate) * up);
    const clampedUp = up > limit ? limit : up < -limit ? -limit : up;
    return fl(this.silu(gate > limit ? limit : gate) * clampedUp);
  }

  /** 1 / sqrt(sum of squares + 1e-6) over `dim` elements: the l2 norm of the delta rule. */
  l2Scale(x: Float32Array, from: number, dim: number): number {
    return fl(1 / fl(Math.sqrt(fl(this.dot(x, from, x, from, dim) + fl(1e-6)))));
  }

  /** Turns the first `rotary` elements of a head in place; `angles` holds rotary / 2 cosines, then sines. */
  rope(head: Float32Array, from: number, rotary: number, angles: Float32Array): void {
    const half = rotary / 2;
    for (let i = 0; i < half; i++) {
      const [x, y, cos, sin] = [head[from + i]!, head[from + i + half]!, angles[i]!, angles[i + half]!];
      head[from + i] = this.act(fl(this.actUnlessMtplx(fl(x * cos)) - this.actUnlessMtplx(fl(y * sin))));
      head[from + i + half] = this.act(fl(this.actUnlessMtplx(fl(y * cos)) + this.actUnlessMtplx(fl(x * sin))));
    }
  }

  /** Turns `rotary` elements in adjacent pairs in place, `inverse`: back; `angles` as for rope. */
  ropePairs(x: Float32Array, from: number, rotary: number, angles: Float32Array, inverse: boolean): void {
    const half = rotary / 2;
    for (let i = 0; i < half; i++) {
      const at = from + 2 * i;
      const [a, b, cos] = [x[at]!, x[at + 1]!, angles[i]!];
      const sin = inverse ? -angles[i + half]! : angles[i + half]!;
      x[at] = this.act(fl(this.actUnlessMtplx(fl(a * cos)) - this.actUnlessMtplx(fl(b * sin))));
      x[at + 1] = this.act(fl(this.actUnlessMtplx(fl(b * cos)) + this.actUnlessMtplx(fl(a * sin))));
    }
  }
}

/** The table's sigmoid of a bfloat16 value. The checker made sure that the table is there. */
function lookUp(table: Uint16Array | undefined, x: number): number {
  return fromBf16Bits(table![toBf16Bits(x)]!);
}
