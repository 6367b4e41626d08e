/**
 * Which words of the workspace an op touches, as functions of its fields and the call's rows: what the checker bounds
 * and what op tests compare.
 *
 * Invariants: every buffer field of the op table has an entry (a test holds this); sizes are for R rows of the trunk and M
 * selected rows, int32 and float32 alike counted in words.
 */
import type { DecodedOp } from './decode.js';
import { OPS, type OpFields, type OpName, type OpSpec } from './ops.js';

export interface RowCounts {
  /** R: rows of the trunk. */
  readonly rows: number;
  /** M: rows that go through the head. */
  readonly outRows: number;
}

/** What an op does with a buffer. */
export type Access = 'in' | 'out' | 'in-out';

export interface Extent {
  readonly field: string;
  readonly access: Access;
  readonly type: 'f32' | 'i32';
  /** First word. */
  readonly offset: number;
  readonly words: number;
}

interface BufferRule<Name extends OpName> {
  readonly access: Access;
  readonly type?: 'i32';
  readonly words: (op: OpFields<Name>, rows: number, counts: RowCounts) => number;
}

type BufferRules = {
  readonly [Name in OpName]: Readonly<Partial<Record<keyof OpFields<Name>, BufferRule<Name>>>>;
};

/** Words of a row of hyper-connection weights: all three parts, or the read weights alone. */
export function mhcWidth({ streams, iterations }: { readonly streams: number; readonly iterations: number }): number {
  return iterations === 0 ? streams : (2 + streams) * streams;
}

/** `rows` is R, or what the op's field `rows` says: M, or n rows for each of R. */
const RULES: BufferRules = {
  embed: { out: { access: 'out', words: (op, rows) => rows * op.width * op.copies } },
  norm: {
    in: { access: 'in', words: (op, rows) => rows * op.width },
    out: { access: 'out', words: (op, rows) => rows * op.width },
  },
  linear: { in: { access: 'in', words: (op, rows) => rows * op.inWidth } },
  hcAct: {
    down: { access: 'in-out', words: (op, rows) => rows * op.rank },
    inject: { access: 'in-out', words: (op, rows) => rows * op.streams },
  },
  hcMix: {
    mix: { access: 'in', words: (op, rows) => rows * op.streams * op.hidden },
    normed: { access: 'in', words: (op, rows) => rows * op.streams * op.hidden },
    out: { access: 'out', words: (op, rows) => rows * op.hidden },
  },
  hcWrite: {
    residual: { access: 'in-out', words: (op, rows) => rows * op.streams * op.hidden },
    inject: { access: 'in', words: (op, rows) => rows * op.streams },
    y: { access: 'in', words: (op, rows) => rows * op.hidden },
  },
  conv: {
    in: { access: 'in', words: (op, rows) => rows * op.channels },
    out: { access: 'out', words: (op, rows) => rows * op.channels },
  },
  gatedDelta: {
    conv: { access: 'in', words: (op, rows) => rows * (2 * op.keyHeads * op.keyDim + op.valueHeads * op.valueDim) },
    a: { access: 'in', words: (op, rows) => rows * op.valueHeads },
    b: { access: 'in', words: (op, rows) => rows * op.valueHeads },
    out: { access: 'out', words: (op, rows) => rows * op.valueHeads * op.valueDim },
  },
  gatedNorm: {
    in: { access: 'in', words: (op, rows) => rows * op.heads * op.dim },
    z: { access: 'in', words: (op, rows) => rows * op.heads * op.dim },
    out: { access: 'out', words: (op, rows) => rows * op.heads * op.dim },
  },
  attentionPrep: {
    q: { access: 'in', words: (op, rows) => rows * op.heads * 2 * op.dim },
    k: { access: 'in', words: (op, rows) => rows * op.kvHeads * op.dim },
    v: { access: 'in', words: (op, rows) => rows * op.kvHeads * op.dim },
    outQ: { access: 'out', words: (op, rows) => rows * op.heads * op.dim },
  },
  indexPrep: {
    qk: { access: 'in', words: (op, rows) => rows * (op.heads + 1) * op.dim },
    outQ: { access: 'out', words: (op, rows) => rows * op.heads * op.dim },
  },
  indexBlocks: {},
  indexSelect: {
    q: { access: 'in', words: (op, rows) => rows * op.heads * op.dim },
    out: { access: 'out', type: 'i32', words: (op, rows) => rows * (1 + op.budgetBlocks) },
    weights: { access: 'in', words: (op, rows) => rows * op.heads },
  },
  attention: {
    q: { access: 'in', words: (op, rows) => rows * op.heads * op.dim },
    packed: { access: 'in', words: (op, rows) => rows * op.heads * 2 * op.dim },
    select: { access: 'in', type: 'i32', words: (op, rows) => rows * (1 + op.budgetBlocks) },
    out: { access: 'out', words: (op, rows) => rows * op.heads * op.dim },
  },
  router: {
    logits: { access: 'in', words: (op, rows) => rows * op.experts },
    outIndex: { access: 'out', type: 'i32', words: (op, rows) => rows * op.topK },
    outWeight: { access: 'out', words: (op, rows) => rows * op.topK },
  },
  moeGroup: {
    index: { access: 'in', type: 'i32', words: (op, rows) => rows * op.topK },
    outOffsets: { access: 'out', type: 'i32', words: (op) => op.experts + 1 },
    outList: { access: 'out', type: 'i32', words: (op, rows) => rows * op.topK },
  },
  moeUp: {
    in: { access: 'in', words: (op, rows) => rows * op.hidden },
    offsets: { access: 'in', type: 'i32', words: (op) => op.experts + 1 },
    list: { access: 'in', type: 'i32', words: (op, rows) => rows * op.topK },
    out: { access: 'out', words: (op, rows) => rows * op.topK * op.width },
  },
  moeDown: {
    in: { access: 'in', words: (op, rows) => rows * op.topK * op.width },
    offsets: { access: 'in', type: 'i32', words: (op) => op.experts + 1 },
    list: { access: 'in', type: 'i32', words: (op, rows) => rows * op.topK },
    out: { access: 'out', words: (op, rows) => rows * op.topK * op.hidden },
  },
  moeCombine: {
    down: { access: 'in', words: (op, rows) => rows * op.topK * op.hidden },
    weights: { access: 'in', words: (op, rows) => rows * op.topK },
    shared: { access: 'in', words: (op, rows) => rows * op.hidden },
    sharedGate: { access: 'in', words: (_, rows) => rows },
    out: { access: 'out', words: (op, rows) => rows * op.hidden },
  },
  swiglu: {
    gate: { access: 'in', words: (op, rows) => rows * op.width },
    up: { access: 'in', words: (op, rows) => rows * op.width },
    out: { access: 'out', words: (op, rows) => rows * op.width },
  },
  add: {
    a: { access: 'in', words: (op, rows) => rows * op.width },
    b: { access: 'in', words: (op, rows) => rows * op.width },
    out: { access: 'out', words: (op, rows) => rows * op.width },
  },
  pleGate: {
    key: { access: 'in', words: (op, rows) => rows * op.streams * op.hidden },
    query: { access: 'in', words: (op, rows) => rows * op.streams * op.hidden },
    value: { access: 'in', words: (op, rows) => rows * op.hidden },
    out: { access: 'out', words: (op, rows) => rows * op.streams * op.hidden },
  },
  pleAdd: {
    residual: { access: 'in-out', words: (op, rows) => rows * op.width },
    u: { access: 'in', words: (op, rows) => rows * op.width },
    conv: { access: 'in', words: (op, rows) => rows * op.width },
  },
  gather: {
    in: { access: 'in', words: (op, rows) => rows * op.width },
    out: { access: 'out', words: (op, _, counts) => counts.outRows * op.width },
  },
  tap: {
    in: { access: 'in', words: (op, rows) => rows * op.width },
    out: { access: 'out', words: (op, rows) => rows * op.width },
  },
  mhcWeights: {
    in: { access: 'in', words: (op, rows) => rows * mhcWidth(op) },
    out: { access: 'out', words: (op, rows) => rows * mhcWidth(op) },
  },
  mhcSum: {
    weights: { access: 'in', words: (op, rows) => rows * op.weightsWidth },
    residual: { access: 'in', words: (op, rows) => rows * op.streams * op.hidden },
    out: { access: 'out', words: (op, rows) => rows * op.hidden },
  },
  mhcWrite: {
    residual: { access: 'in-out', words: (op, rows) => rows * op.streams * op.hidden },
    weights: { access: 'in', words: (op, rows) => rows * op.weightsWidth },
    y: { access: 'in', words: (op, rows) => rows * op.hidden },
  },
  groupedLinear: {
    in: { access: 'in', words: (op, rows) => rows * op.groups * op.groupIn },
    out: { access: 'out', words: (op, rows) => rows * op.groups * op.groupOut },
  },
  scoreRouter: {
    logits: { access: 'in', words: (op, rows) => rows * op.experts },
    outIndex: { access: 'out', type: 'i32', words: (op, rows) => rows * op.topK },
    outWeight: { access: 'out', words: (op, rows) => rows * op.topK },
  },
  layerNorm: {
    in: { access: 'in', words: (op, rows) => rows * op.width },
    out: { access: 'out', words: (op, rows) => rows * op.width },
  },
  kda: {
    conv: { access: 'in', words: (op, rows) => rows * 3 * op.heads * op.dim },
    f: { access: 'in', words: (op, rows) => rows * op.heads * op.dim },
    b: { access: 'in', words: (op, rows) => rows * op.heads },
    out: { access: 'out', words: (op, rows) => rows * op.heads * op.dim },
  },
  ropeTail: {
    in: { access: 'in', words: (op, rows) => rows * op.heads * op.dim },
    out: { access: 'out', words: (op, rows) => rows * op.heads * op.dim },
  },
  pool: {
    values: { access: 'in', words: (op, rows) => rows * (1 + op.overlap) * op.channels },
    gates: { access: 'in', words: (op, rows) => rows * (1 + op.overlap) * op.channels },
  },
  windowAttention: {
    q: { access: 'in', words: (op, rows) => rows * op.heads * op.dim },
    kv: { access: 'in', words: (op, rows) => rows * op.dim },
    select: { access: 'in', type: 'i32', words: (op, rows) => rows * (1 + op.budgetBlocks) },
    out: { access: 'out', words: (op, rows) => rows * op.heads * op.dim },
  },
  latentAttention: {
    q: { access: 'in', words: (op, rows) => rows * op.heads * op.dim },
    select: { access: 'in', type: 'i32', words: (op, rows) => rows * (1 + op.budgetBlocks) },
    out: { access: 'out', words: (op, rows) => rows * op.heads * op.dim },
  },
  latentStore: { in: { access: 'in', words: (op, rows) => rows * op.dim } },
  embedGreedy: {
    logits: { access: 'in', words: (op, rows) => rows * op.vocab },
    outIds: { access: 'out', type: 'i32', words: (_, rows) => rows },
    out: { access: 'out', words: (op, rows) => rows * op.width * op.copies },
  },
};

/** The workspace extents of an op for these row counts; buffers that are absent (-1) have none. */
export function opExtents(op: DecodedOp, counts: RowCounts): Extent[] {
  const fields: Readonly<Record<string, number>> = op.fields;
  const rows = fields.rows === 1 ? counts.outRows : counts.rows * Math.max(fields.rows ?? 1, 1);
  const rules = RULES[op.name] as Readonly<Record<string, BufferRule<OpName>>>;
  const spec: OpSpec = OPS[op.name];
  const extents = spec.fields.flatMap(({ name, kind }): Extent[] => {
    const offset = fields[name]!;
    if ((kind !== 'buffer' && kind !== 'buffer?') || (kind === 'buffer?' && offset === -1)) return [];
    const { access, type = 'f32', words } = rules[name]!;
    return [{ field: name, access, type, offset, words: words(op.fields as OpFields<OpName>, rows, counts) }];
  });
  const outputs = op.segments.map(({ out, outWidth }, s): Extent => ({
    field: `out[${s}]`,
    access: 'out',
    type: 'f32',
    offset: out,
    words: rows * outWidth,
  }));
  return [...extents, ...outputs];
}
