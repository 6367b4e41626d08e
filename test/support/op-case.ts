/**
 * One op-level case as pure data (weights, buffers, states, rows and ops by name), and the runner that lets any backend
 * compute it, so that two backends can be compared bit by bit.
 *
 * Invariants: a case never depends on the backend that runs it; the runner fills everything that the ops do not own with
 * a pattern and throws when an op changed it; NaNs are made canonical in the outputs, because their payload is no law.
 */
import assert from 'node:assert/strict';
import type { Backend, MemoryBlock } from '../../src/engine/backends/backend.js';
import { PlanBuilder, type ActivationLaw, type Plan } from '../../src/engine/plan/builder.js';
import { callBlockBytes, callSizes, fillCallBlock, type CallSequence } from '../../src/engine/plan/call-block.js';
import { decodeProgram } from '../../src/engine/plan/decode.js';
import { opExtents } from '../../src/engine/plan/extents.js';
import { OPS, type OpName, type OpSpec, type WeightDtype } from '../../src/engine/plan/ops.js';
import { WeightTable } from '../../src/engine/plan/weight-table.js';
import { sigmoidTableBf16 } from '../../src/numerics/gate-tables.js';

export interface CaseWeight {
  readonly name: string;
  readonly dtype: WeightDtype;
  readonly bytes: Uint8Array;
}

export interface CaseBuffer {
  readonly name: string;
  readonly width: number;
  readonly rows: 'R' | 'M';
  /** Contents of the call's rows; undefined: the pattern. */
  readonly contents?: Float32Array | Int32Array | undefined;
}

/** A segment of a linear op, weights and buffers by name; a linear op over subrows has one. */
export interface CaseSegment {
  readonly weight: string;
  readonly bias?: string | undefined;
  readonly out: string;
  readonly outColumn: number;
  readonly outs: number;
}

export interface CaseOp {
  readonly name: OpName;
  /** Fields by name; buffers and weights are named, -1 where absent. */
  readonly fields: Readonly<Record<string, number | string>>;
  readonly segments?: readonly CaseSegment[] | undefined;
}

export interface CaseSequence {
  readonly tokens: readonly number[];
  readonly startPosition: number;
  readonly outRows: readonly number[];
  /** The input slab; the output slab has the same size. */
  readonly slab: Float32Array;
  /** Pages in the plan's kv type. */
  readonly pages: readonly Uint8Array[];
}

export interface OpCase {
  readonly name: string;
  readonly op: OpName;
  readonly law: ActivationLaw;
  readonly pageTokens: number;
  readonly rowCapacity: number;
  readonly outCapacity: number;
  readonly weights: readonly CaseWeight[];
  readonly buffers: readonly CaseBuffer[];
  readonly ops: readonly CaseOp[];
  readonly sequences: readonly CaseSequence[];
}

export interface CaseOutput {
  readonly type: 'f32' | 'bf16' | 'i32';
  readonly values: Float32Array | Uint16Array | Int32Array;
}
export type CaseOutputs = ReadonlyMap<string, CaseOutput>;

let tables: { readonly standalone: Uint16Array; readonly fused: Uint16Array } | undefined;

/** The two sigmoid tables, made once: they cost more than the cases. */
function sigmoidTables(): { readonly standalone: Uint16Array; readonly fused: Uint16Array } {
  return (tables ??= { standalone: sigmoidTableBf16('standalone'), fused: sigmoidTableBf16('fused') });
}

/** A quiet NaN as float32 and a number that no op makes by itself. */
const PATTERN = 0x7fc5a5a5;

/** Runs a case. Outputs: every written buffer as `OP.FIELD`, every output slab, every page. */
export async function runOpCase(backend: Backend, given: OpCase): Promise<CaseOutputs> {
  const blocks: MemoryBlock[] = [];
  const place = (bytes: Uint8Array, purpose: string): MemoryBlock => {
    const block = backend.allocate(Math.max(bytes.length, 4), purpose);
    block.bytes.set(bytes);
    blocks.push(block);
    return block;
  };
  const table = new WeightTable();
  try {
    const plan = buildPlan(given, backend, table, place);
    const loaded = backend.load(plan.program);
    const { workspace, before } = fillWorkspace(given, plan, place);
    const states = given.sequences.map((sequence) => ({
      fixedIn: place(bytesOf(sequence.slab), 'input slab'),
      fixedOut: place(pattern(sequence.slab.length), 'output slab'),
      pages: sequence.pages.map((page) => place(page, 'page')),
    }));
    const rows = given.sequences.map(({ tokens, startPosition, outRows }, s): CallSequence => {
      const { fixedIn, fixedOut, pages } = states[s]!;
      return {
        tokens,
        startPosition,
        outRows,
        fixedIn: fixedIn.address,
        fixedOut: fixedOut.address,
        pages: pages.map((page) => page.address),
      };
    });
    const call = place(new Uint8Array(callBlockBytes(callSizes(rows))), 'call');
    fillCallBlock(call, rows);
    assert.equal(await backend.execute({ plan: loaded, workspace, call }), 'done', given.name);
    loaded.free();
    const outputs = new Map<string, CaseOutput>(bufferOutputs(given, plan, workspace, before));
    states.forEach(({ fixedIn, fixedOut, pages }, s) => {
      assert.deepEqual(
        fixedIn.bytes.slice(0, 4 * given.sequences[s]!.slab.length),
        bytesOf(given.sequences[s]!.slab),
        'input slab',
      );
      outputs.set(`slab ${s}`, canonical('f32', floatsOf(fixedOut.bytes)));
      pages.forEach((page, p) => {
        const bytes = page.bytes.slice(0, given.sequences[s]!.pages[p]!.length);
        const elements = given.law.kvType === 1 ? new Uint16Array(bytes.buffer) : floatsOf(bytes);
        outputs.set(`sequence ${s} page ${p}`, canonical(given.law.kvType === 1 ? 'bf16' : 'f32', elements));
      });
    });
    return outputs;
  } finally {
    for (const block of blocks) block.free();
    table.free();
  }
}

type Place = (bytes: Uint8Array, purpose: string) => MemoryBlock;

/** Builds the plan of a case with weights in the backend's memory. */
export function buildPlan(given: OpCase, backend: Backend, table: WeightTable, place: Place): Plan {
  const weights = new Map(
    given.weights.map(({ name, dtype, bytes }) => [name, table.add(name, place(bytes, name).address, dtype)]),
  );
  const gated = given.law.act === 1;
  const standaloneTable = gated ? table.addBf16Bits('standalone', sigmoidTables().standalone) : -1;
  const fusedTable = gated ? table.addBf16Bits('fused', sigmoidTables().fused) : -1;
  table.commit(backend);
  const { law, pageTokens, rowCapacity, outCapacity } = given;
  const plan = new PlanBuilder({ law, pageTokens, rowCapacity, outCapacity, standaloneTable, fusedTable }, table);
  const buffers = new Map(given.buffers.map(({ name, width, rows }) => [name, plan.buffer(name, width, rows)]));
  const resolve = (
    field: { readonly name: string; readonly kind: string },
    value: number | string | undefined,
  ): number => {
    if (typeof value === 'number') return value;
    const found = field.kind.startsWith('weight') ? weights.get(value ?? '') : buffers.get(value ?? '')?.offset;
    assert.ok(found !== undefined, `${given.name}: ${field.name} = ${value}`);
    return found;
  };
  for (const { name, fields, segments = [] } of given.ops) {
    if (name === 'linear') {
      const [rows, input, inWidth] = [Number(fields.rows), buffers.get(String(fields.in))!, Number(fields.inWidth)];
      const list = segments.map((s) => ({
        weight: weights.get(s.weight)!,
        bias: s.bias === undefined ? undefined : weights.get(s.bias),
        out: buffers.get(s.out)!,
        outColumn: s.outColumn,
        outs: s.outs,
      }));
      const [first] = list;
      if (rows > 1) plan.linearOfSubrows(rows, input, inWidth, first!.weight, first!.out, first!.outs);
      else plan.linear(rows === 1 ? 'M' : 'R', input, inWidth, list);
    } else {
      const spec: OpSpec = OPS[name];
      plan.op(name, Object.fromEntries(spec.fields.map((field) => [field.name, resolve(field, fields[field.name])])));
    }
  }
  return plan.finish();
}

/** The workspace with the inputs in place and the pattern everywhere else, and a copy of it. */
function fillWorkspace(given: OpCase, plan: Plan, place: Place): { workspace: MemoryBlock; before: Int32Array } {
  const before = new Int32Array(plan.workspaceWords).fill(PATTERN);
  for (const { name, contents } of given.buffers) {
    if (contents)
      before.set(new Int32Array(contents.buffer, contents.byteOffset, contents.length), plan.buffers.get(name)!.offset);
  }
  return { workspace: place(bytesOf(before), 'workspace'), before };
}

/** What the ops wrote, and the assertion that they wrote nothing else. */
function bufferOutputs(given: OpCase, plan: Plan, workspace: MemoryBlock, before: Int32Array): [string, CaseOutput][] {
  const after = new Int32Array(workspace.bytes.slice(0, 4 * before.length).buffer);
  const counts = {
    rows: given.sequences.reduce((sum, { tokens }) => sum + tokens.length, 0),
    outRows: given.sequences.reduce((sum, { outRows }) => sum + outRows.length, 0),
  };
  const outputs: [string, CaseOutput][] = [];
  const untouched = new Uint8Array(before.length).fill(1);
  for (const op of decodeProgram(plan.program.code).ops) {
    for (const { field, access, type, offset, words } of opExtents(op, counts)) {
      if (access === 'in') continue;
      untouched.fill(0, offset, offset + words);
      const values = after.slice(offset, offset + words);
      outputs.push([`${op.name}.${field}`, canonical(type, type === 'i32' ? values : new Float32Array(values.buffer))]);
    }
  }
  const changed = after.findIndex((word, at) => untouched[at] === 1 && word !== before[at]);
  assert.equal(changed, -1, `${given.name}: an op wrote outside its output, at word ${changed} of the workspace`);
  return outputs;
}

function canonical(type: CaseOutput['type'], values: CaseOutput['values']): CaseOutput {
  if (values instanceof Float32Array)
    return { type, values: values.map((value) => (Number.isNaN(value) ? Number.NaN : value)) };
  if (type === 'bf16')
    return { type, values: (values as Uint16Array).map((bits) => ((bits & 0x7fff) > 0x7f80 ? 0x7fc0 : bits)) };
  return { type, values };
}

const pattern = (words: number): Uint8Array => bytesOf(new Int32Array(words).fill(PATTERN));

function bytesOf(values: Float32Array | Int32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength).slice();
}

function floatsOf(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.slice().buffer);
}

/** Asserts that two backends gave the same bits; the message names the first difference. */
export function assertSameOutputs(actual: CaseOutputs, expected: CaseOutputs, label: string): void {
  assert.deepEqual([...actual.keys()], [...expected.keys()], label);
  for (const [name, { values }] of expected) {
    const got = actual.get(name)!.values;
    const wrong = Array.from(values).findIndex((value, at) => !Object.is(value, got[at]));
    const where = `${label}: ${name}[${wrong}] is ${got[wrong]}, expected ${values[wrong]}`;
    assert.equal(wrong, -1, where);
    assert.equal(got.length, values.length, label);
  }
}
