/** An op case as plain float64 arrays, for formulas that are computed without any of the engine's code. */
import { fromF16Bits } from '../../../src/numerics/rounding.js';
import type { CaseOp, CaseSequence, OpCase } from '../../support/op-case.js';

/** bfloat16 by integer arithmetic on the bits; written apart from src/numerics. */
export function bf16(x: number): number {
  const bits = new DataView(new ArrayBuffer(4));
  bits.setFloat32(0, x);
  const word = bits.getUint32(0);
  const rest = word & 0xffff;
  const up = rest > 0x8000 || (rest === 0x8000 && (word & 0x10000) !== 0);
  bits.setUint32(0, ((word - rest) >>> 0) + (up ? 0x10000 : 0));
  return bits.getFloat32(0);
}

export interface CaseRow {
  readonly row: number;
  readonly position: number;
  readonly token: number;
  readonly sequence: CaseSequence;
  readonly sequenceIndex: number;
  /** 0-based within the sequence. */
  readonly at: number;
}

export class CaseView {
  readonly op: CaseOp;
  /** Rounds to the activation type. */
  readonly A: (x: number) => number;
  readonly mtplx: boolean;
  readonly rows: readonly CaseRow[];

  constructor(readonly given: OpCase) {
    this.op = given.ops[0]!;
    this.A = given.law.act === 1 ? bf16 : (x) => x;
    this.mtplx = given.law.mtplx === 1;
    const rows: CaseRow[] = [];
    given.sequences.forEach((sequence, sequenceIndex) => {
      sequence.tokens.forEach((token, at) => {
        rows.push({ row: rows.length, position: sequence.startPosition + at, token, sequence, sequenceIndex, at });
      });
    });
    this.rows = rows;
  }

  /** The ordinary sigmoid, rounded; MTPLX's is the staged one. */
  sigma(x: number): number {
    return this.mtplx ? stagedSigmoid(x) : this.A(sigmoid(x));
  }

  /** The phase-dependent sigmoid: staged wherever activations are bfloat16, with the fast exponential when fused. */
  gate(x: number): number {
    return this.given.law.act === 1 ? stagedSigmoid(x, this.op.fields.lowering === 1) : sigmoid(x);
  }

  silu(x: number): number {
    return this.A(x * (this.mtplx ? stagedSigmoid(x) : sigmoid(x)));
  }

  /** silu(gate) * up, both clamped first by the op's limit where it is not 0. */
  swiglu(gate: number, up: number): number {
    const limit = this.n('limit') || Number.POSITIVE_INFINITY;
    return this.A(this.silu(Math.min(gate, limit)) * Math.max(-limit, Math.min(up, limit)));
  }

  /** A numeric field of the op. */
  n(field: string): number {
    const value = this.op.fields[field];
    if (typeof value !== 'number') throw new TypeError(`${field} is no number`);
    return value;
  }

  /** The buffer that a field names, cut to rows of `width`. */
  buffer(field: string, width: number): number[][] {
    const { contents } = this.given.buffers.find(({ name }) => name === this.op.fields[field])!;
    return cut(Array.from(contents!), width);
  }

  /** The weight that a field or a name stands for, as numbers. */
  weight(fieldOrName: string): number[] {
    const name = this.op.fields[fieldOrName] ?? fieldOrName;
    const { bytes, dtype } = this.given.weights.find((weight) => weight.name === name)!;
    if (dtype === 'F32') return Array.from(new Float32Array(bytes.buffer));
    const half = Array.from(new Uint16Array(bytes.buffer));
    return dtype === 'F16' ? half.map(fromF16Bits) : half.map((bits) => widen(bits));
  }

  /** Elements of the page that covers `position`, from byte offset `base` + `element`. */
  page(sequence: CaseSequence, position: number, base: number, element: number, length: number): number[] {
    const bytes = sequence.pages[Math.floor(position / this.given.pageTokens)]!;
    return Array.from({ length }, (_, i) => {
      const view = new DataView(bytes.buffer);
      return this.given.law.kvType === 1
        ? widen(view.getUint16(base + 2 * (element + i), true))
        : view.getFloat32(base + 4 * (element + i), true);
    });
  }
}

function widen(bits: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint16(0, bits);
  return view.getFloat32(0);
}

export function cut(values: readonly number[], width: number): number[][] {
  return Array.from({ length: values.length / width }, (_, row) => values.slice(row * width, (row + 1) * width));
}

export const dot = (a: readonly number[], b: readonly number[]): number => a.reduce((sum, x, i) => sum + x * b[i]!, 0);
export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

/** The sigmoid with a bfloat16 rounding after every step; `fused` has the fast exponential. */
function stagedSigmoid(x: number, fused = false): number {
  const e = fused ? 2 ** Math.fround(Math.abs(x) * Math.fround(Math.LOG2E)) : Math.exp(Math.abs(x));
  const quotient = 1 / bf16(1 + bf16(e));
  const y = bf16(quotient < 2 ** -126 ? 0 : quotient); // subnormal quotients are flushed
  return x < 0 ? y : bf16(1 - y);
}

/** RMS norm of one group with the rounding points of the case's law. */
export function rmsNorm(c: CaseView, x: readonly number[], gain: readonly number[] | undefined, eps: number): number[] {
  const scale = 1 / Math.sqrt(dot(x, x) / x.length + eps);
  if (!gain) return x.map((v) => c.A(v * scale));
  return x.map((v, i) => (c.mtplx ? c.A(c.A(v * scale) * gain[i]!) : c.A(v * scale * gain[i]!)));
}

/** Rotary positions on the first `rotary` elements; the table has cosines, then sines. */
export function rotate(
  c: CaseView,
  x: readonly number[],
  table: readonly number[],
  position: number,
  rotary: number,
): number[] {
  const half = rotary / 2;
  const inner = c.mtplx ? (v: number): number => v : c.A;
  return x.map((v, i) => {
    if (i >= rotary) return v;
    const [cos, sin] = [table[position * rotary + (i % half)]!, table[position * rotary + half + (i % half)]!];
    return i < half ? c.A(inner(v * cos) - inner(x[i + half]! * sin)) : c.A(inner(v * cos) + inner(x[i - half]! * sin));
  });
}

/** Expected pages: NaN where nothing is said, so that only written elements are compared. */
export class PageWriter {
  readonly expected: Record<string, number[]> = {};
  constructor(readonly c: CaseView) {}

  write(
    { sequenceIndex, sequence }: CaseRow,
    position: number,
    base: number,
    element: number,
    values: readonly number[],
  ): void {
    const narrow = this.c.given.law.kvType === 1;
    const page = Math.floor(position / this.c.given.pageTokens);
    const bytes = narrow ? 2 : 4;
    const list = (this.expected[`sequence ${sequenceIndex} page ${page}`] ??= Array<number>(
      sequence.pages[page]!.length / bytes,
    ).fill(Number.NaN));
    values.forEach((value, i) => (list[base / bytes + element + i] = narrow ? bf16(value) : value));
  }
}
