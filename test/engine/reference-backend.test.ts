/** What the reference backend promises besides arithmetic: order of calls, cancelling, clear failures. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MemoryBlock } from '../../src/engine/backends/backend.js';
import { REFERENCE_OPS, ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { PlanBuilder, type Plan } from '../../src/engine/plan/builder.js';
import { callBlockBytes, callSizes, cancelCall, fillCallBlock } from '../../src/engine/plan/call-block.js';
import { CALL_HEADER, OPS } from '../../src/engine/plan/ops.js';
import { WeightTable } from '../../src/engine/plan/weight-table.js';
import { assertSameOutputs, runOpCase } from '../support/op-case.js';
import { opCases } from '../support/op-cases.js';

const WIDTH = 4;

/** A plan that adds a buffer to itself `times` times. */
function doublingPlan(backend: ReferenceBackend, times: number): Plan {
  const table = new WeightTable();
  table.commit(backend);
  const law = { name: 'f32', act: 0, mtplx: 0, kvType: 0 } as const;
  const plan = new PlanBuilder(
    { law, pageTokens: 8, rowCapacity: 2, outCapacity: 1, standaloneTable: -1, fusedTable: -1 },
    table,
  );
  const x = plan.buffer('x', WIDTH).offset;
  for (let i = 0; i < times; i++) plan.op('add', { rows: 0, a: x, b: x, out: x, width: WIDTH });
  return plan.finish();
}

function callOf(backend: ReferenceBackend, rows: number): MemoryBlock {
  const sequence = {
    tokens: Array<number>(rows).fill(0),
    startPosition: 0,
    fixedIn: 0,
    fixedOut: 0,
    pages: [],
    outRows: [],
  };
  const call = backend.allocate(callBlockBytes(callSizes([sequence])), 'call');
  fillCallBlock(call, [sequence]);
  return call;
}

const opsDone = (call: MemoryBlock): number =>
  new Int32Array(call.bytes.buffer, call.bytes.byteOffset)[CALL_HEADER.indexOf('opsDone')]!;

test('every op of the table is implemented, documented, and has a code of its own', () => {
  assert.deepEqual(Object.keys(REFERENCE_OPS).sort(), Object.keys(OPS).sort());
  for (const [name, spec] of Object.entries(OPS)) assert.ok(spec.doc.length > 30, name);
  assert.equal(new Set(Object.values(OPS).map(({ code }) => code)).size, Object.keys(OPS).length);
});

test('plans run one at a time in the order of the calls', async () => {
  const backend = new ReferenceBackend();
  const plan = backend.load(doublingPlan(backend, 3).program);
  const workspace = backend.allocate(4 * 2 * WIDTH + 64, 'workspace');
  const x = new Float32Array(workspace.bytes.buffer, 0, 2 * WIDTH).fill(1);
  const seen: number[] = [];
  const runs = [1, 2, 3].map(async () => {
    await backend.execute({ plan, workspace, call: callOf(backend, 2) });
    seen.push(x[0]!);
  });
  await Promise.all(runs);
  assert.deepEqual(seen, [8, 64, 512]);
});

test('a cancelled call stops before its next op and says how many were done', async () => {
  const backend = new ReferenceBackend();
  const plan = backend.load(doublingPlan(backend, 50).program);
  const workspace = backend.allocate(4 * 2 * WIDTH + 64, 'workspace');
  const call = callOf(backend, 1);
  setTimeout(() => cancelCall(call), 0);
  const before = callOf(backend, 1);
  cancelCall(before);
  assert.equal(await backend.execute({ plan, workspace, call: before }), 'cancelled');
  assert.equal(opsDone(before), 0);
  setImmediate(() => cancelCall(call));
  assert.equal(await backend.execute({ plan, workspace, call }), 'cancelled');
  assert.ok(opsDone(call) < 50, `${opsDone(call)} ops`);
  assert.equal(await backend.execute({ plan, workspace, call: callOf(backend, 1) }), 'done', 'the next call runs');
});

test('calls beyond the capacities, small workspaces and foreign plans are refused and leave the backend usable', async () => {
  const backend = new ReferenceBackend();
  const plan = backend.load(doublingPlan(backend, 1).program);
  const workspace = backend.allocate(4 * 2 * WIDTH + 64, 'workspace');
  const refused = { code: 'backend_failed' };
  await assert.rejects(backend.execute({ plan, workspace, call: callOf(backend, 3) }), refused);
  const small = backend.allocate(8, 'small');
  await assert.rejects(backend.execute({ plan, workspace: small, call: callOf(backend, 1) }), refused);
  const foreign = { program: plan.program, free: () => undefined };
  await assert.rejects(backend.execute({ plan: foreign, workspace, call: callOf(backend, 1) }), refused);
  assert.equal(await backend.execute({ plan, workspace, call: callOf(backend, 1) }), 'done');
  assert.throws(() => backend.load({ ...plan.program, code: plan.program.code.slice(0, 20) }), {
    code: 'plan_invalid',
  });
});

test('the two float laws are told apart by the cases, and equal cases give equal bits', async () => {
  const [fma, again, mulAdd] = [
    new ReferenceBackend(),
    new ReferenceBackend(),
    new ReferenceBackend({ floatLaw: 'mul-add' }),
  ];
  for (const op of ['linear', 'attention', 'gatedDelta', 'conv', 'moeCombine'] as const) {
    const [given] = opCases([op]).filter(({ name }) => name === `${op} f32 shape 2 variant 0`);
    const expected = await runOpCase(fma, given!);
    assertSameOutputs(await runOpCase(again, given!), expected, op);
    const other = await runOpCase(mulAdd, given!);
    assert.throws(() => assertSameOutputs(other, expected, op), /expected/);
  }
});
