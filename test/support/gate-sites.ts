/**
 * The four gated sites as one-op cases, any number of gates at a time, on any backend: what goes in is the gate (or what
 * the site makes it of) and what it multiplies, what comes out is the op's own result.
 *
 * Invariants: nothing but the gate is computed: attention sees one token, so its output is the value; the routed experts
 * give 0; the n-gram score has one term.
 */
import type { Backend } from '../../src/engine/backends/backend.js';
import type { ActivationLaw } from '../../src/engine/plan/builder.js';
import { toBf16Bits } from '../../src/numerics/rounding.js';
import { runOpCase, type CaseBuffer, type OpCase } from './op-case.js';

export const F32: ActivationLaw = { name: 'f32', act: 0, mtplx: 0, kvType: 0 };
export const BF16: ActivationLaw = { name: 'bf16', act: 1, mtplx: 0, kvType: 1 };
export const BF16_MTPLX: ActivationLaw = { name: 'bf16-mtplx', act: 1, mtplx: 1, kvType: 1 };
export const LAWS: readonly ActivationLaw[] = [F32, BF16, BF16_MTPLX];

export type Lowering = 'standalone' | 'fused';
export const LOWERINGS: readonly Lowering[] = ['standalone', 'fused'];

/** Where and how a site is computed. */
export interface GateRun {
  readonly backend: Backend;
  readonly law: ActivationLaw;
  readonly lowering: Lowering;
}

const code = (lowering: Lowering): number => (lowering === 'fused' ? 1 : 0);

/** Runs one op over `rows` rows of the buffers and returns the buffer that it writes. */
async function runOp(
  { backend, law }: GateRun,
  op: Exclude<OpCase['op'], 'linear'>,
  rows: number,
  buffers: readonly CaseBuffer[],
  fields: OpCase['ops'][number]['fields'],
  written: string,
  page: Uint8Array = new Uint8Array(0),
): Promise<Float32Array> {
  const tokens = new Array<number>(rows).fill(0);
  const outputs = await runOpCase(backend, {
    name: `${op} gates`,
    op,
    law,
    pageTokens: rows,
    rowCapacity: rows,
    outCapacity: 1,
    weights: [],
    buffers,
    ops: [{ name: op, fields }],
    sequences: [{ tokens, startPosition: 0, outRows: [0], slab: new Float32Array(16), pages: [page] }],
  });
  return outputs.get(`${op}.${written}`)!.values as Float32Array;
}

const buffer = (name: string, width: number, contents?: Float32Array): CaseBuffer => ({
  name,
  width,
  rows: 'R',
  contents,
});

const filled = (length: number, value: number): Float32Array => new Float32Array(length).fill(value);

/** value * gate at the attention output, for each pair; 256 gates a head where they are that many. */
export function attentionGate(
  run: GateRun,
  gates: ArrayLike<number>,
  values: ArrayLike<number>,
): Promise<Float32Array> {
  const count = gates.length;
  const dim = count % 256 === 0 ? 256 : count;
  const heads = count / dim;
  const packed = new Float32Array(2 * count);
  for (let i = 0; i < count; i++) packed[i + dim * (Math.floor(i / dim) + 1)] = gates[i]!;
  const stored = run.law.kvType === 1 ? Uint16Array.from(values, toBf16Bits) : Float32Array.from(values);
  const page = new Uint8Array(2 * stored.byteLength); // keys, all zero, then values
  page.set(new Uint8Array(stored.buffer), stored.byteLength);
  return runOp(
    run,
    'attention',
    1,
    [buffer('q', count, filled(count, 0)), buffer('packed', 2 * count, packed), buffer('out', count)],
    {
      ...{ q: 'q', packed: 'packed', select: -1, out: 'out', heads, kvHeads: heads, dim, block: 0, budgetBlocks: 0 },
      ...{ lowering: code(run.lowering), scale: 1, keys: 0, values: stored.byteLength },
    },
    'out',
    page,
  );
}

/** 2 * gate(raw / streams): the write weights of a hyper-connection, for each raw logit. */
export function injection(run: GateRun, streams: number, raw: ArrayLike<number>): Promise<Float32Array> {
  const rows = raw.length / streams;
  return runOp(
    run,
    'hcAct',
    rows,
    [buffer('down', 1, filled(rows, 0)), buffer('inject', streams, Float32Array.from(raw))],
    { rows: 0, down: 'down', rank: 1, inject: 'inject', streams, lowering: code(run.lowering) },
    'inject',
  );
}

/** gate * shared, the shared expert's part of a mixture whose routed experts give 0, for each pair. */
export function sharedExpertGate(
  run: GateRun,
  gates: ArrayLike<number>,
  shared: ArrayLike<number>,
): Promise<Float32Array> {
  const rows = gates.length;
  const routed = { down: 'down', weights: 'weights', hidden: 1, topK: 1 };
  return runOp(
    run,
    'moeCombine',
    rows,
    [
      ...[buffer('down', 1, filled(rows, 0)), buffer('weights', 1, filled(rows, 0))],
      ...[buffer('shared', 1, Float32Array.from(shared)), buffer('gate', 1, Float32Array.from(gates))],
      buffer('out', 1),
    ],
    { ...routed, shared: 'shared', sharedGate: 'gate', out: 'out', lowering: code(run.lowering) },
    'out',
  );
}

/** gate(sign(a) sqrt|a|) * value of the n-gram embedding, for each a (before the square root) and value. */
export function ngramGate(run: GateRun, a: ArrayLike<number>, values: ArrayLike<number>): Promise<Float32Array> {
  const rows = a.length;
  return runOp(
    run,
    'pleGate',
    rows,
    [
      ...[buffer('key', 1, Float32Array.from(a)), buffer('query', 1, filled(rows, 1))],
      ...[buffer('value', 1, Float32Array.from(values)), buffer('out', 1)],
    ],
    {
      ...{ key: 'key', query: 'query', value: 'value', out: 'out', hidden: 1, streams: 1, rootHidden: 1 },
      lowering: code(run.lowering),
    },
    'out',
  );
}
