/**
 * Builds an encoded plan: families name buffers and append ops; the builder lays the buffers out in the workspace and
 * encodes fields in the order of the op table.
 *
 * Invariants: a buffer name always means the same buffer, so layers that use the same names share memory; every field of
 * an op must be given, and nothing else; the program is fixed once `finish` has run.
 */
import { PlumblineError } from '../../errors.js';
import { f32Bits } from '../../numerics/rounding.js';
import type { PlanProgram } from '../backends/backend.js';
import {
  OPS,
  PLAN_HEADER,
  PLAN_HEADER_WORDS,
  PLAN_MAGIC,
  PLAN_VERSION,
  type OpField,
  type OpName,
  type OpSpec,
} from './ops.js';
import type { WeightTable } from './weight-table.js';

/** The rounding law of a plan's activations, and how pages store keys and values. */
export interface ActivationLaw {
  readonly name: string;
  /** 0: float32; 1: bfloat16 at every rounding point. */
  readonly act: 0 | 1;
  /** 1: MTPLX's own rounding points. */
  readonly mtplx: 0 | 1;
  /** 0: float32; 1: bfloat16. */
  readonly kvType: 0 | 1;
}

export interface PlanOptions {
  readonly law: ActivationLaw;
  readonly pageTokens: number;
  readonly rowCapacity: number;
  readonly outCapacity: number;
  readonly standaloneTable: number;
  readonly fusedTable: number;
}

/** A buffer of `rows` rows of `width` words; `R` rows of the trunk or `M` selected rows. */
export interface PlanBuffer {
  readonly name: string;
  /** Word offset in the workspace. */
  readonly offset: number;
  readonly width: number;
  readonly rows: 'R' | 'M';
}

export interface Plan {
  readonly program: PlanProgram;
  readonly buffers: ReadonlyMap<string, PlanBuffer>;
  readonly workspaceWords: number;
  readonly options: PlanOptions;
}

export interface LinearSegment {
  readonly weight: number;
  readonly bias?: number | undefined;
  readonly out: PlanBuffer;
  readonly outColumn?: number | undefined;
  readonly outs: number;
}

const ALIGN_WORDS = 16;

export class PlanBuilder {
  readonly #words: number[] = [];
  readonly #buffers = new Map<string, PlanBuffer>();
  readonly #options: PlanOptions;
  readonly #weights: WeightTable;
  #workspaceWords = 0;
  #ops = 0;

  constructor(options: PlanOptions, weights: WeightTable) {
    this.#options = options;
    this.#weights = weights;
  }

  /** The buffer of this name, made on first use. */
  buffer(name: string, width: number, rows: 'R' | 'M' = 'R'): PlanBuffer {
    const known = this.#buffers.get(name);
    if (known) {
      if (known.width !== width || known.rows !== rows) throw invalid(`buffer ${name} is used with two shapes`);
      return known;
    }
    return this.#place(name, width, rows === 'R' ? this.#options.rowCapacity : this.#options.outCapacity, rows);
  }

  /** A buffer that does not grow with the rows as the others do: `words` words in all. */
  scratch(name: string, words: number): PlanBuffer {
    return this.#buffers.get(name) ?? this.#place(name, words, 1, 'R');
  }

  /** Appends an op; numbers of `float` fields are given as numbers. */
  op(name: Exclude<OpName, 'linear'>, values: Readonly<Record<string, number>>): void {
    const spec: OpSpec = OPS[name];
    this.#append(spec.code, encodeFields(name, spec.fields, values));
  }

  /** Appends one linear op whose segments share their input. */
  linear(rows: 'R' | 'M', input: PlanBuffer, inWidth: number, segments: readonly LinearSegment[]): void {
    const spec: OpSpec = OPS.linear;
    const words = encodeFields('linear', spec.fields, {
      rows: rows === 'R' ? 0 : 1,
      in: input.offset,
      inWidth,
      segments: segments.length,
    });
    for (const { weight, bias = -1, out, outColumn = 0, outs } of segments) {
      words.push(
        ...encodeFields('linear', spec.repeated ?? [], {
          weight,
          bias,
          out: out.offset,
          outWidth: out.width,
          outColumn,
          outs,
        }),
      );
    }
    this.#append(spec.code, words);
  }

  /** Appends a linear op over rows that hold `subrows` inputs each: every one of them through the same map. */
  linearOfSubrows(
    subrows: number,
    input: PlanBuffer,
    inWidth: number,
    weight: number,
    out: PlanBuffer,
    outs: number,
  ): void {
    const spec: OpSpec = OPS.linear;
    this.#append(spec.code, [
      ...encodeFields('linear', spec.fields, { rows: subrows, in: input.offset, inWidth, segments: 1 }),
      ...encodeFields('linear', spec.repeated ?? [], {
        weight,
        bias: -1,
        out: out.offset,
        outWidth: outs,
        outColumn: 0,
        outs,
      }),
    ]);
  }

  /** Words of workspace that the buffers made so far take. */
  get workspaceWords(): number {
    return this.#workspaceWords;
  }

  finish(): Plan {
    const { law, pageTokens, rowCapacity, outCapacity, standaloneTable, fusedTable } = this.#options;
    const { addresses, dtypes } = this.#weights.frozen();
    const header: Record<(typeof PLAN_HEADER)[number], number> = {
      magic: PLAN_MAGIC,
      version: PLAN_VERSION,
      ops: this.#ops,
      act: law.act,
      mtplx: law.mtplx,
      kvType: law.kvType,
      pageTokens,
      rowCapacity,
      outCapacity,
      workspaceWords: this.#workspaceWords,
      standaloneTable,
      fusedTable,
      weights: addresses.length,
    };
    const code = new Int32Array(PLAN_HEADER_WORDS + this.#words.length);
    PLAN_HEADER.forEach((name, index) => (code[index] = header[name]));
    code.set(this.#words, PLAN_HEADER_WORDS);
    return {
      program: { code, weightAddresses: addresses, weightDtypes: dtypes },
      buffers: this.#buffers,
      workspaceWords: this.#workspaceWords,
      options: this.#options,
    };
  }

  #place(name: string, width: number, rowCount: number, rows: 'R' | 'M'): PlanBuffer {
    const buffer: PlanBuffer = { name, offset: this.#workspaceWords, width, rows };
    this.#workspaceWords += Math.ceil((width * rowCount) / ALIGN_WORDS) * ALIGN_WORDS;
    if (this.#workspaceWords > 0x7fffffff) throw invalid(`the workspace passes 2^31 words at buffer ${name}`);
    this.#buffers.set(name, buffer);
    return buffer;
  }

  #append(code: number, words: readonly number[]): void {
    this.#words.push(code, words.length + 2, ...words);
    this.#ops++;
  }
}

function encodeFields(op: string, fields: readonly OpField[], values: Readonly<Record<string, number>>): number[] {
  if (Object.keys(values).length !== fields.length) {
    throw invalid(`op ${op} takes ${fields.map((f) => f.name).join(', ')}; got ${Object.keys(values).join(', ')}`);
  }
  return fields.map(({ name, kind }) => {
    const value = values[name];
    if (value === undefined) throw invalid(`op ${op} needs ${name}`);
    if (kind === 'float') return f32Bits(value) | 0;
    if (!Number.isInteger(value) || Math.abs(value) > 0x7fffffff)
      throw invalid(`op ${op}: ${name} = ${value} is no int32`);
    return value;
  });
}

function invalid(message: string): PlumblineError {
  return new PlumblineError('plan_invalid', message);
}
