/**
 * Reads an encoded plan back into named ops and fields: the form that the checker, the printer and the reference backend
 * work on.
 *
 * Invariants: the structure is verified while reading (magic, version, op codes, lengths, counts), so a decoded program
 * names every word of the encoding exactly once; what the values mean is checked elsewhere (check.ts).
 */
import { PlumblineError } from '../../errors.js';
import { f32FromBits } from '../../numerics/rounding.js';
import {
  OPS,
  PLAN_HEADER,
  PLAN_HEADER_WORDS,
  PLAN_MAGIC,
  PLAN_VERSION,
  type LinearSegmentFields,
  type OpField,
  type OpFields,
  type OpName,
  type OpSpec,
} from './ops.js';

export type PlanHeader = Readonly<Record<(typeof PLAN_HEADER)[number], number>>;

/** One op; `segments` is empty for every op but linear. Fields of kind `float` hold the number, not its bits. */
export type DecodedOp = {
  readonly [Name in OpName]: {
    readonly name: Name;
    readonly fields: OpFields<Name>;
    readonly segments: readonly LinearSegmentFields[];
  };
}[OpName];

export interface DecodedProgram {
  readonly header: PlanHeader;
  readonly ops: readonly DecodedOp[];
}

const NAME_OF_CODE = new Map(Object.entries(OPS).map(([name, spec]) => [spec.code as number, name as OpName]));

/** Decodes `code` (header, then ops). Throws plan_invalid with the op's index. */
export function decodeProgram(code: Int32Array): DecodedProgram {
  const header = decodeHeader(code);
  const ops: DecodedOp[] = [];
  let at = PLAN_HEADER_WORDS;
  while (at < code.length) {
    const op = decodeOp(code, at, ops.length);
    ops.push(op);
    at += code[at + 1]!;
  }
  if (ops.length !== header.ops) throw planInvalid(`the header counts ${header.ops} ops, the code holds ${ops.length}`);
  return { header, ops };
}

function decodeHeader(code: Int32Array): PlanHeader {
  if (code.length < PLAN_HEADER_WORDS)
    throw planInvalid(`${code.length} words are less than a header of ${PLAN_HEADER_WORDS}`);
  const header = Object.fromEntries(PLAN_HEADER.map((name, index) => [name, code[index]!])) as PlanHeader;
  if (header.magic !== PLAN_MAGIC)
    throw planInvalid(`magic is 0x${(header.magic >>> 0).toString(16)}, not 0x${PLAN_MAGIC.toString(16)}`);
  if (header.version !== PLAN_VERSION) throw planInvalid(`version is ${header.version}, not ${PLAN_VERSION}`);
  return header;
}

function decodeOp(code: Int32Array, at: number, index: number): DecodedOp {
  const name = NAME_OF_CODE.get(code[at]!);
  if (name === undefined) throw planInvalid(`op ${index}: code ${code[at]} is not in the op table`);
  const spec: OpSpec = OPS[name];
  const length = code[at + 1] ?? 0;
  const fixed = 2 + spec.fields.length;
  if (length < fixed || at + length > code.length) {
    throw planInvalid(`op ${index} (${name}): length ${length} at word ${at}, with ${code.length - at} words left`);
  }
  const fields = readFields(code, at + 2, spec.fields);
  const segments: LinearSegmentFields[] = [];
  if (spec.repeated) {
    const count = fields.segments ?? 0;
    if (count < 1 || length !== fixed + count * spec.repeated.length) {
      throw planInvalid(`op ${index} (${name}): length ${length} does not hold segments = ${count}`);
    }
    for (let s = 0; s < count; s++) {
      segments.push(readFields(code, at + fixed + s * spec.repeated.length, spec.repeated) as LinearSegmentFields);
    }
  } else if (length !== fixed) {
    throw planInvalid(`op ${index} (${name}): length ${length}, the op table says ${fixed}`);
  }
  return { name, fields, segments } as unknown as DecodedOp; // the names come from the table that the type is made of
}

function readFields(code: Int32Array, at: number, fields: readonly OpField[]): Record<string, number> {
  const entries = fields.map(({ name, kind }, index) => {
    const word = code[at + index]!;
    return [name, kind === 'float' ? f32FromBits(word) : word] as const;
  });
  return Object.fromEntries(entries);
}

export function planInvalid(message: string): PlumblineError {
  return new PlumblineError('plan_invalid', message);
}
