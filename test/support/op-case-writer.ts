/**
 * Writes one op case: random numbers seeded by the case's name, buffers and weights in the law's own precision, states
 * and pages of the right size.
 *
 * Invariants: equal names give equal cases on every machine; buffer values are A-rounded, as they are in a real plan.
 */
import type { ActivationLaw } from '../../src/engine/plan/builder.js';
import type { OpName, WeightDtype } from '../../src/engine/plan/ops.js';
import { roundBf16, toBf16Bits, toF16Bits } from '../../src/numerics/rounding.js';
import type { CaseBuffer, CaseOp, CaseSegment, CaseWeight, OpCase } from './op-case.js';

export interface CaseShape {
  readonly pageTokens: number;
  /** Start position and rows of every sequence. */
  readonly sequences: readonly (readonly [number, number])[];
}

/** A stream of 32-bit numbers from a text: FNV-1a, then mulberry32. */
export function seededRandom(text: string): () => number {
  let state = 0x811c9dc5;
  for (const char of text) state = Math.imul(state ^ char.charCodeAt(0), 0x01000193);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Gates at which the two lowerings or a wrong sigmoid show, before a division by up to 4 streams; zeros; ties. */
const SENSITIVE = [-6.84375, -27.375, -13.6875, 0.5, -2, -10, -30, 0, -0, 1.00390625, 1.01171875, -87.5];
const POISON = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];

export const POSITIONS = 80;

export class CaseWriter {
  readonly random: () => number;
  readonly rows: number;
  readonly outRows: number;
  /** Position of every row. */
  readonly positions: readonly number[];
  readonly pageTokens: number;
  readonly #weights: CaseWeight[] = [];
  readonly #buffers: CaseBuffer[] = [];
  readonly #ops: CaseOp[] = [];
  readonly #outRows: readonly (readonly number[])[];
  readonly #poisonRow: number;
  #slabWords = 16;
  #pageElements = 0;
  #vocabulary = 1;

  constructor(
    readonly name: string,
    readonly op: OpName,
    readonly law: ActivationLaw,
    readonly shape: CaseShape,
    poisoned: boolean,
  ) {
    this.random = seededRandom(name);
    this.pageTokens = shape.pageTokens;
    this.positions = shape.sequences.flatMap(([start, rows]) => Array.from({ length: rows }, (_, i) => start + i));
    this.rows = this.positions.length;
    this.#outRows = shape.sequences.map(([, rows], s) =>
      Array.from({ length: rows }, (_, i) => i).filter((i) => i === rows - 1 || (s !== 1 && this.random() < 0.4)),
    );
    this.outRows = this.#outRows.flat().length;
    this.#poisonRow = poisoned ? this.below(this.rows) : -1;
  }

  /** An integer in [0, bound). */
  below(bound: number): number {
    return Math.floor(this.random() * bound);
  }

  /** A roughly normal number. */
  normal(scale = 1): number {
    return Math.fround((this.random() + this.random() + this.random() + this.random() - 2) * 1.7 * scale);
  }

  act(x: number): number {
    return this.law.act === 1 ? roundBf16(x) : Math.fround(x);
  }

  /** A float buffer of the call's rows: normal values, some of them sensitive ones, one row poisoned. */
  input(name: string, width: number, scale = 1, rows: 'R' | 'M' = 'R'): string {
    const count = rows === 'R' ? this.rows : this.outRows;
    const contents = Float32Array.from({ length: count * width }, (_, i) => {
      if (Math.floor(i / width) === this.#poisonRow && this.random() < 0.2) return POISON[this.below(3)]!;
      return this.act(this.random() < 0.15 ? SENSITIVE[this.below(SENSITIVE.length)]! : this.normal(scale));
    });
    return this.floats(name, width, contents, rows);
  }

  /** Few distinct values, so that sums tie. */
  coarseInput(name: string, width: number): string {
    const levels = [-1, -0.5, 0, 0.5, 1];
    return this.floats(
      name,
      width,
      Float32Array.from({ length: this.rows * width }, () => levels[this.below(levels.length)]!),
    );
  }

  floats(name: string, width: number, contents: Float32Array, rows: 'R' | 'M' = 'R'): string {
    this.#buffers.push({ name, width, rows, contents });
    return name;
  }

  ints(name: string, width: number, contents: readonly number[]): string {
    this.#buffers.push({ name, width, rows: 'R', contents: Int32Array.from(contents) });
    return name;
  }

  output(name: string, width: number, rows: 'R' | 'M' = 'R'): string {
    this.#buffers.push({ name, width, rows });
    return name;
  }

  /** A weight of random values around `centre`. */
  weight(name: string, length: number, dtype: WeightDtype = 'F32', scale = 0.5, centre = 0): string {
    return this.values(
      name,
      Float32Array.from({ length }, () => centre + this.normal(scale)),
      dtype,
    );
  }

  values(name: string, values: Float32Array, dtype: WeightDtype = 'F32'): string {
    const encoded = dtype === 'F32' ? values : Uint16Array.from(values, dtype === 'BF16' ? toBf16Bits : toF16Bits);
    this.#weights.push({ name, dtype, bytes: new Uint8Array(encoded.buffer.slice(0)) });
    return name;
  }

  /** A rotary table as a binder makes it: cosines and sines per position, A-rounded unless mtplx. */
  ropeTable(name: string, rotary: number): string {
    const half = rotary / 2;
    const round = (x: number): number => (this.law.mtplx === 1 ? Math.fround(x) : this.act(x));
    const values = Float32Array.from({ length: POSITIONS * rotary }, (_, i) => {
      const angle = Math.floor(i / rotary) * 10000 ** (-((i % rotary) % half) / half);
      return round(i % rotary < half ? Math.cos(angle) : Math.sin(angle));
    });
    return this.values(name, values);
  }

  /** Byte offset of `words` float32 in the slab, not at its start. */
  fixed(words: number): number {
    const offset = this.#slabWords;
    this.#slabWords += words + 3;
    return 4 * offset;
  }

  /** Byte offset of `elements` kv elements in a page. */
  page(elements: number): number {
    const offset = this.#pageElements;
    this.#pageElements += elements + 2 * this.below(3);
    return offset * (this.law.kvType === 1 ? 2 : 4);
  }

  vocabulary(size: number): void {
    this.#vocabulary = size;
  }

  add(name: Exclude<OpName, 'linear'>, fields: Readonly<Record<string, number | string>>): void {
    this.#ops.push({ name, fields });
  }

  linear(fields: Readonly<Record<string, number | string>>, segments: readonly CaseSegment[]): void {
    this.#ops.push({ name: 'linear', fields, segments });
  }

  finish(): OpCase {
    const sequences = this.shape.sequences.map(([startPosition, rows], s) => ({
      tokens: Array.from({ length: rows }, () => this.below(this.#vocabulary)),
      startPosition,
      outRows: this.#outRows[s]!,
      slab: Float32Array.from({ length: this.#slabWords }, () => this.normal(0.3)),
      pages: Array.from({ length: Math.ceil((startPosition + rows) / this.pageTokens) }, () => this.#randomPage()),
    }));
    return {
      name: this.name,
      op: this.op,
      law: this.law,
      pageTokens: this.pageTokens,
      rowCapacity: this.rows + 3,
      outCapacity: this.outRows + 2,
      weights: this.#weights,
      buffers: this.#buffers,
      ops: this.#ops,
      sequences,
    };
  }

  #randomPage(): Uint8Array {
    const levels = Float32Array.from({ length: this.#pageElements }, () =>
      this.random() < 0.3 ? Math.sign(this.normal()) : this.act(this.normal()),
    );
    const elements = this.law.kvType === 1 ? Uint16Array.from(levels, toBf16Bits) : levels;
    return new Uint8Array(elements.buffer);
  }
}
