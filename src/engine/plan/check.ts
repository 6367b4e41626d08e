/**
 * Checks an encoded program before a backend takes it over: everything that can be known without running it.
 *
 * Invariants: a checked program never reaches outside its workspace or weight table for calls within its capacities, never
 * divides by zero, and never reads a buffer that the same op overwrites, except where the op table allows it. Slab and
 * page offsets are checked for sign and alignment; their upper bounds belong to the state that owns them.
 */
import type { PlanProgram } from '../backends/backend.js';
import { decodeProgram, planInvalid, type DecodedOp, type DecodedProgram, type PlanHeader } from './decode.js';
import { opExtents, type Extent } from './extents.js';
import { OPS, WEIGHT_DTYPES, type FieldKind, type OpFields, type OpName, type OpSpec } from './ops.js';

type Values = Readonly<Record<string, number>>;

/** What is wrong with a field, or undefined. */
type Complaint = string | undefined;

/** Decodes and checks. Throws plan_invalid, naming the op's index, its name and the field. */
export function checkProgram(program: PlanProgram): DecodedProgram {
  const decoded = decodeProgram(program.code);
  checkHeader(decoded.header, program);
  decoded.ops.forEach((op, index) => checkOp(op, index, decoded.header, program));
  return decoded;
}

function checkHeader(header: PlanHeader, program: PlanProgram): void {
  const complain = (field: keyof PlanHeader, why: string): never => {
    throw planInvalid(`header: ${field} = ${header[field]} ${why}`);
  };
  for (const field of ['act', 'mtplx', 'kvType'] as const)
    if (!isBit(header[field])) complain(field, 'is neither 0 nor 1');
  if (header.mtplx === 1 && header.act !== 1) complain('mtplx', 'needs bfloat16 activations');
  for (const field of ['pageTokens', 'rowCapacity'] as const) if (header[field] < 1) complain(field, 'is below 1');
  for (const field of ['outCapacity', 'workspaceWords'] as const) if (header[field] < 0) complain(field, 'is negative');
  const { weightAddresses, weightDtypes } = program;
  if (header.weights !== weightAddresses.length || header.weights !== weightDtypes.length) {
    complain('weights', `but the table has ${weightAddresses.length} addresses and ${weightDtypes.length} dtypes`);
  }
  const wrong = weightAddresses.findIndex(
    (address, index) => !isAddress(address) || !WEIGHT_DTYPES[weightDtypes[index]!],
  );
  if (wrong >= 0)
    throw planInvalid(`weight ${wrong}: address ${weightAddresses[wrong]}, dtype code ${weightDtypes[wrong]}`);
  for (const field of ['standaloneTable', 'fusedTable'] as const) {
    if (header[field] < -1 || header[field] >= header.weights)
      complain(field, `is no index of ${header.weights} weights`);
  }
  if (header.mtplx === 1 && header.standaloneTable < 0)
    complain('standaloneTable', 'is absent, but mtplx = 1 needs it');
}

const isBit = (value: number): boolean => value === 0 || value === 1;
const isAddress = (value: number): boolean => Number.isSafeInteger(value) && value > 0;

function checkOp(op: DecodedOp, index: number, header: PlanHeader, program: PlanProgram): void {
  const spec: OpSpec = OPS[op.name];
  const fail = (field: string, why: string): never => {
    throw planInvalid(`op ${index} (${op.name}): ${field} ${why}`);
  };
  const checkFields = (kinds: OpSpec['fields'], values: Values, prefix: string): void => {
    for (const { name, kind } of kinds) {
      const why = fieldComplaint(kind, name, values, op, header) ?? dtypeComplaint(kind, name, values, op, program);
      if (why !== undefined) fail(`${prefix}${name} = ${values[name]}`, why);
    }
  };
  checkFields(spec.fields, op.fields, '');
  op.segments.forEach((segment, s) => checkFields(spec.repeated ?? [], segment, `segment ${s}: `));
  const relation = relationComplaint(op, header);
  if (relation !== undefined) fail('fields', relation);
  const extents = opExtents(op, { rows: header.rowCapacity, outRows: header.outCapacity });
  for (const { field, offset, words } of extents) {
    if (offset + words > header.workspaceWords) {
      fail(field, `covers words ${offset} to ${offset + words}, the workspace has ${header.workspaceWords}`);
    }
  }
  const overlap = overlapComplaint(op, extents);
  if (overlap !== undefined) fail('buffers', overlap);
}

/** Integers that may be 0; every other plain integer is a size or count and at least 1. */
const MAY_BE_ZERO = new Set(['outColumn', 'rowOffset', 'iterations']);
/** Numbers whose 0 stands for none; every other number is positive. */
const FLOATS_WITHOUT = new Set(['limit', 'bound']);
const FLAGS = new Set(['silu', 'normalise', 'score', 'inverse', 'overlap', 'tail']);
/** Most streams of a manifold hyper-connection. */
const MOST_STREAMS = 8;
/** Most rows that a row of the call may stand for. */
const MOST_SUBROWS = 64;

function fieldComplaint(kind: FieldKind, name: string, values: Values, op: DecodedOp, header: PlanHeader): Complaint {
  const value = values[name]!;
  switch (kind) {
    case 'buffer':
      return value < 0 ? 'is no offset in the workspace' : undefined;
    case 'buffer?':
      return value < -1 ? 'is neither an offset nor -1' : undefined;
    case 'weight':
      return value < 0 || value >= header.weights ? `is no index of ${header.weights} weights` : undefined;
    case 'weight?':
      return value < -1 || value >= header.weights
        ? `is neither -1 nor an index of ${header.weights} weights`
        : undefined;
    case 'float':
      if (value === 0 && FLOATS_WITHOUT.has(name)) return undefined;
      return Number.isFinite(value) && value > 0 ? undefined : 'is not a positive finite number';
    case 'fixed':
      return value < 0 || value % 4 !== 0 ? 'is no float32 offset in a slab' : undefined;
    case 'page':
      return value < 0 || value % (header.kvType === 1 ? 2 : 4) !== 0 ? 'is no element offset in a page' : undefined;
    case 'lowering':
      return isBit(value) ? tableComplaint(op, value, header) : 'is neither 0 (standalone) nor 1 (fused)';
    case 'int':
      if (name === 'rows') return value >= 0 && value <= MOST_SUBROWS ? undefined : `is not in 0 to ${MOST_SUBROWS}`;
      if (FLAGS.has(name)) return isBit(value) ? undefined : 'is neither 0 nor 1';
      return value < (mayBeZero(op, name) ? 0 : 1) ? 'is too small' : undefined;
  }
}

function mayBeZero(op: DecodedOp, name: string): boolean {
  const withoutSelection =
    (op.name === 'attention' || op.name === 'windowAttention' || op.name === 'latentAttention') &&
    op.fields.select === -1;
  const withoutWeights = op.name === 'mhcSum' && op.fields.weights === -1;
  return (
    MAY_BE_ZERO.has(name) ||
    (withoutSelection && (name === 'block' || name === 'budgetBlocks')) ||
    (withoutWeights && name === 'weightsWidth') ||
    (op.name === 'pool' && op.fields.rope === -1 && name === 'rotary')
  );
}

/** Sites whose lowering 0 is the standalone table; at the others it is the ordinary sigmoid. */
const ALWAYS_GATED: readonly OpName[] = ['hcAct', 'attention'];

function tableComplaint(op: DecodedOp, lowering: number, header: PlanHeader): Complaint {
  if (header.act === 0 || (op.name === 'hcAct' && op.fields.inject === -1)) return undefined;
  if (lowering === 1)
    return header.fusedTable < 0 ? 'needs the fused table, which the header does not name' : undefined;
  const missing = ALWAYS_GATED.includes(op.name) && header.standaloneTable < 0;
  return missing ? 'needs the standalone table, which the header does not name' : undefined;
}

/** Weights that may have any float dtype: the large matrices. Every other weight is a float32 vector or table. */
const ANY_DTYPE: Readonly<Partial<Record<OpName, readonly string[]>>> = {
  embed: ['weight'],
  embedGreedy: ['weight'],
  linear: ['weight'],
  moeUp: ['gate', 'up'],
  moeDown: ['down'],
  groupedLinear: ['weight'],
};

function dtypeComplaint(kind: FieldKind, name: string, values: Values, op: DecodedOp, program: PlanProgram): Complaint {
  if ((kind !== 'weight' && kind !== 'weight?') || values[name] === -1 || ANY_DTYPE[op.name]?.includes(name))
    return undefined;
  const dtype = WEIGHT_DTYPES[program.weightDtypes[values[name]!]!];
  return dtype === 'F32' ? undefined : `has dtype ${dtype}; the op reads float32`;
}

function relationComplaint(op: DecodedOp, header: PlanHeader): Complaint {
  const divides = (part: string, whole: string): Complaint => {
    const fields: Values = op.fields;
    return fields[whole]! % fields[part]! === 0
      ? undefined
      : `${part} = ${fields[part]} does not divide ${whole} = ${fields[whole]}`;
  };
  const rotaryFits = ({ rotary, dim }: { readonly rotary: number; readonly dim: number }): Complaint =>
    rotary % 2 === 0 && rotary <= dim ? undefined : `rotary = ${rotary} is odd or above dim = ${dim}`;
  const blockFits = (block: number, name = 'block'): Complaint =>
    header.pageTokens % block === 0
      ? undefined
      : `${name} = ${block} does not divide pageTokens = ${header.pageTokens}`;
  const expertsFit = (first: number, experts: number): Complaint =>
    first + experts <= header.weights
      ? undefined
      : `weights ${first} to ${first + experts} pass the table of ${header.weights}`;
  const fewStreams = (streams: number): Complaint =>
    streams <= MOST_STREAMS ? undefined : `streams = ${streams} passes ${MOST_STREAMS}`;
  const wideEnough = ({ weightsWidth }: { readonly weightsWidth: number }, needed: number): Complaint =>
    weightsWidth >= needed ? undefined : `weightsWidth = ${weightsWidth} is below ${needed}`;
  switch (op.name) {
    case 'norm':
      return divides('group', 'width');
    case 'linear': {
      const narrow = op.segments.find(({ outColumn, outs, outWidth }) => outColumn + outs > outWidth);
      return narrow && `outColumn + outs = ${narrow.outColumn + narrow.outs} passes outWidth = ${narrow.outWidth}`;
    }
    case 'gatedDelta':
      return divides('keyHeads', 'valueHeads');
    case 'attentionPrep':
      return divides('kvHeads', 'heads') ?? rotaryFits(op.fields);
    case 'indexPrep':
      return rotaryFits(op.fields);
    case 'indexBlocks':
      return rotaryFits(op.fields) ?? blockFits(op.fields.block);
    case 'indexSelect':
      return blockFits(op.fields.block);
    case 'attention':
      return divides('kvHeads', 'heads') ?? (op.fields.select >= 0 ? blockFits(op.fields.block) : undefined);
    case 'router':
    case 'moeGroup':
      return op.fields.topK <= op.fields.experts
        ? undefined
        : `topK = ${op.fields.topK} passes experts = ${op.fields.experts}`;
    case 'moeUp':
      return expertsFit(op.fields.gate, op.fields.experts) ?? expertsFit(op.fields.up, op.fields.experts);
    case 'moeDown':
      return expertsFit(op.fields.down, op.fields.experts);
    case 'mhcWeights':
      return fewStreams(op.fields.streams);
    case 'mhcSum':
      return (
        fewStreams(op.fields.streams) ?? (op.fields.weights >= 0 ? wideEnough(op.fields, op.fields.streams) : undefined)
      );
    case 'mhcWrite':
      return fewStreams(op.fields.streams) ?? wideEnough(op.fields, (2 + op.fields.streams) * op.fields.streams);
    case 'groupedLinear': {
      const { rowOffset, groupOut, rowStride } = op.fields;
      return rowOffset + groupOut <= rowStride
        ? undefined
        : `rowOffset + groupOut = ${rowOffset + groupOut} passes rowStride = ${rowStride}`;
    }
    case 'scoreRouter':
      return scoreRouterComplaint(op.fields);
    case 'ropeTail':
      return rotaryFits(op.fields);
    case 'pool': {
      const { rotary, channels, rope, window } = op.fields;
      return blockFits(window, 'window') ?? (rope >= 0 ? rotaryFits({ rotary, dim: channels }) : undefined);
    }
    case 'windowAttention':
      return op.fields.block > 0 || op.fields.select >= 0 ? blockFits(op.fields.block) : undefined;
    case 'latentAttention':
      return op.fields.select >= 0 ? blockFits(op.fields.block) : undefined;
    default:
      return undefined;
  }
}

function scoreRouterComplaint({ experts, topK, groups, groupsKept, table }: OpFields<'scoreRouter'>): Complaint {
  if (topK > experts) return `topK = ${topK} passes experts = ${experts}`;
  if (experts % groups !== 0) return `groups = ${groups} does not divide experts = ${experts}`;
  if (groupsKept > groups) return `groupsKept = ${groupsKept} passes groups = ${groups}`;
  const candidates = table >= 0 ? experts : groupsKept * (experts / groups);
  return topK <= candidates ? undefined : `topK = ${topK} passes the ${candidates} experts of the kept groups`;
}

/** Inputs that an output may coincide with, as the op table says. */
const MAY_COINCIDE: Readonly<Partial<Record<OpName, readonly string[]>>> = {
  norm: ['in'],
  swiglu: ['gate'],
  add: ['a', 'b'],
  mhcWeights: ['in'],
  layerNorm: ['in'],
  ropeTail: ['in'],
};

function overlapComplaint(op: DecodedOp, extents: readonly Extent[]): Complaint {
  for (const written of extents.filter(({ access, words }) => access !== 'in' && words > 0)) {
    for (const other of extents) {
      if (other === written || (op.name === 'linear' && other.access === 'out')) continue;
      const apart = other.offset >= written.offset + written.words || written.offset >= other.offset + other.words;
      const allowed = other.offset === written.offset && MAY_COINCIDE[op.name]?.includes(other.field);
      if (!apart && !allowed) return `${written.field} overlaps ${other.field}`;
    }
  }
  return undefined;
}
