/**
 * A plan as text: what `plumbline verify plan` shows and what the law tests read. One line for the header, one an op, one
 * more for every segment of a linear op.
 *
 * Invariants: every field of the op table appears under its name, in the order of the encoding; lowerings are words; a
 * float is printed with as few digits as give it back; without side tables the raw offsets and indices are printed.
 */
import { decodeProgram, type DecodedOp, type PlanHeader } from './decode.js';
import { OPS, type FieldKind, type OpField, type OpSpec } from './ops.js';

export interface PrintNames {
  /** Name of the buffer at a word offset. */
  readonly buffer?: ((offset: number) => string | undefined) | undefined;
  /** Name of a weight by index. */
  readonly weight?: ((index: number) => string | undefined) | undefined;
}

/** The lines of a program, header first, without line ends. Throws plan_invalid where it cannot be decoded. */
export function printProgram(code: Int32Array, names: PrintNames = {}): string[] {
  const { header, ops } = decodeProgram(code);
  const numberWidth = String(ops.length - 1).length;
  return [
    printHeader(header, names),
    ...ops.flatMap((op, index) => printOp(op, String(index).padStart(numberWidth), names)),
  ];
}

function printHeader(header: PlanHeader, names: PrintNames): string {
  const table = (index: number): string => (index < 0 ? 'none' : printValue('weight', index, names));
  return [
    `plan version ${header.version}:`,
    `activations ${header.act === 1 ? 'bfloat16' : 'float32'}${header.mtplx === 1 ? ' at MTPLX rounding points' : ''},`,
    `keys and values ${header.kvType === 1 ? 'bfloat16' : 'float32'}, pages of ${header.pageTokens} tokens,`,
    `at most ${header.rowCapacity} rows (R) and ${header.outCapacity} selected (M),`,
    `workspace ${header.workspaceWords} words, ${header.weights} weights,`,
    `sigmoid tables: standalone ${table(header.standaloneTable)}, fused ${table(header.fusedTable)};`,
    `${header.ops} ops`,
  ].join(' ');
}

const NAME_WIDTH = Math.max(...Object.keys(OPS).map((name) => name.length));

function printOp(op: DecodedOp, number: string, names: PrintNames): string[] {
  const spec: OpSpec = OPS[op.name];
  const head = `${number}  ${op.name.padEnd(NAME_WIDTH)}  ${printFields(spec.fields, op.fields, names)}`;
  const indent = ' '.repeat(number.length + NAME_WIDTH + 4);
  return [head, ...op.segments.map((segment) => `${indent}${printFields(spec.repeated ?? [], segment, names)}`)];
}

function printFields(fields: readonly OpField[], values: Readonly<Record<string, number>>, names: PrintNames): string {
  return fields
    .map(({ name, kind }) => `${name}=${name === 'rows' ? 'RM'[values.rows!] : printValue(kind, values[name]!, names)}`)
    .join(' ');
}

function printValue(kind: FieldKind, value: number, names: PrintNames): string {
  switch (kind) {
    case 'buffer':
    case 'buffer?':
      return value < 0 ? 'none' : (names.buffer?.(value) ?? `@${value}`);
    case 'weight':
    case 'weight?':
      return value < 0 ? 'none' : (names.weight?.(value) ?? `#${value}`);
    case 'lowering':
      return value === 1 ? 'fused' : 'standalone';
    case 'float':
      return printFloat32(value);
    case 'fixed':
    case 'page':
      return `${value}B`;
    case 'int':
      return String(value);
  }
}

/** The shortest decimal that rounds to this float32. */
function printFloat32(value: number): string {
  for (let digits = 1; digits < 9; digits++) {
    const text = Number(value.toPrecision(digits));
    if (Math.fround(text) === value) return String(text);
  }
  return String(value);
}
