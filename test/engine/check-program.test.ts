/** The checker accepts every program that the builder makes and refuses every field that is out of its range. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PlanProgram } from '../../src/engine/backends/backend.js';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { checkProgram } from '../../src/engine/plan/check.js';
import { OPS, PLAN_HEADER, PLAN_HEADER_WORDS, type OpName, type OpSpec } from '../../src/engine/plan/ops.js';
import { WeightTable } from '../../src/engine/plan/weight-table.js';
import { PlumblineError } from '../../src/errors.js';
import { buildPlan } from '../support/op-case.js';
import { opCases } from '../support/op-cases.js';

/** Programs of the clean bfloat16 cases of an op. */
function programsOf(op: OpName): PlanProgram[] {
  const backend = new ReferenceBackend();
  const cases = opCases([op]).filter(
    ({ law, name }) => law.name === 'bf16-mtplx' && name.includes('shape 1') && !name.endsWith('poisoned'),
  );
  return cases.map((given) => {
    const place = (bytes: Uint8Array): ReturnType<ReferenceBackend['allocate']> =>
      backend.allocate(bytes.length, 'weight');
    return buildPlan(given, backend, new WeightTable(), place).program;
  });
}

function withWord(program: PlanProgram, at: number, value: number): PlanProgram {
  const code = program.code.slice();
  code[at] = value;
  return { ...program, code };
}

function refusal(program: PlanProgram): string {
  try {
    checkProgram(program);
  } catch (error) {
    assert.ok(error instanceof PlumblineError);
    assert.equal(error.code, 'plan_invalid');
    return error.message;
  }
  return '';
}

function assertRefused(program: PlanProgram, pattern: RegExp): void {
  assert.match(refusal(program), pattern);
}

for (const op of Object.keys(OPS) as OpName[]) {
  test(`every field of ${op} is held to its range`, () => {
    const spec: OpSpec = OPS[op];
    for (const program of programsOf(op)) {
      assert.equal(refusal(program), '');
      const words = [...spec.fields, ...(spec.repeated ?? [])];
      words.forEach((field, index) => {
        if (field.name === 'segments') return;
        const at = PLAN_HEADER_WORDS + 2 + index;
        const named = new RegExp(`^op 0 \\(${op}\\): (segment 0: )?${field.name} `);
        assertRefused(withWord(program, at, field.kind === 'float' ? 0x7fc00000 : -9), named);
        if (field.kind.startsWith('weight')) assertRefused(withWord(program, at, 10_000), named);
        if (field.kind === 'lowering') assertRefused(withWord(program, at, 2), named);
        if (field.name === 'rows') assertRefused(withWord(program, at, 65), named);
        if (field.kind === 'fixed' || field.kind === 'page') assertRefused(withWord(program, at, 3), named);
        if (field.kind.startsWith('buffer'))
          assertRefused(withWord(program, at, 0x7fffff00), /covers words|overlaps|too small/);
      });
    }
  });
}

test('every header word is held to its range', () => {
  const [program] = programsOf('attention');
  const wrong: Record<(typeof PLAN_HEADER)[number], readonly number[]> = {
    magic: [0],
    version: [0, 2],
    ops: [0, 2],
    act: [2, 0], // 0: mtplx needs bfloat16
    mtplx: [-1, 2],
    kvType: [2],
    pageTokens: [0],
    rowCapacity: [0, 10_000],
    outCapacity: [-1],
    workspaceWords: [-1, 64],
    standaloneTable: [-1, -2, 99],
    fusedTable: [-2, 99],
    weights: [0, 3],
  };
  for (const [index, name] of PLAN_HEADER.entries()) {
    for (const value of wrong[name])
      assert.notEqual(refusal(withWord(program!, index, value)), '', `${name} = ${value}`);
  }
});

test('a damaged encoding is refused with the place', () => {
  const [program] = programsOf('norm');
  const cut = (words: number): PlanProgram => ({ ...program!, code: program!.code.slice(0, words) });
  assertRefused(cut(7), /less than a header/);
  assertRefused(cut(PLAN_HEADER_WORDS + 1), /op 0 \(norm\): length/);
  assertRefused(cut(PLAN_HEADER_WORDS + 5), /op 0 \(norm\): length/);
  assertRefused(withWord(program!, PLAN_HEADER_WORDS, 99), /op 0: code 99/);
  assertRefused(withWord(program!, PLAN_HEADER_WORDS + 1, 3), /op 0 \(norm\): length 3/);
  assertRefused(withWord(programsOf('linear')[0]!, PLAN_HEADER_WORDS + 5, 2), /does not hold segments = 2/);
  assertRefused({ ...program!, weightDtypes: program!.weightDtypes.map(() => 9) }, /dtype code 9/);
  assertRefused({ ...program!, weightDtypes: program!.weightDtypes.map(() => 1) }, /gain = 0 has dtype BF16/);
  assertRefused({ ...program!, weightAddresses: program!.weightAddresses.map(() => 0.5) }, /weight 0: address 0.5/);
  assertRefused({ ...program!, weightAddresses: new Float64Array(1) }, /header: weights/);
});

/** The word of a field of the only op. */
function wordOf(op: OpName, field: string): number {
  const spec: OpSpec = OPS[op];
  return PLAN_HEADER_WORDS + 2 + [...spec.fields, ...(spec.repeated ?? [])].findIndex(({ name }) => name === field);
}

test('fields that do not fit each other are refused', () => {
  const wrong: readonly (readonly [OpName, string, number, RegExp])[] = [
    ['norm', 'group', 7, /group = 7 does not divide width/],
    ['linear', 'outColumn', 20, /passes outWidth/],
    ['gatedDelta', 'keyHeads', 4, /keyHeads = 4 does not divide valueHeads/],
    ['attentionPrep', 'kvHeads', 3, /kvHeads = 3 does not divide heads/],
    ['attentionPrep', 'rotary', 22, /rotary = 22 is odd or above/],
    ['indexPrep', 'rotary', 7, /rotary = 7 is odd/],
    ['indexBlocks', 'block', 3, /block = 3 does not divide pageTokens/],
    ['indexSelect', 'block', 5, /block = 5 does not divide pageTokens/],
    ['router', 'topK', 99, /topK = 99 passes experts/],
    ['moeUp', 'gate', 9, /pass the table/],
    ['moeDown', 'down', 3, /pass the table/],
    ['mhcWeights', 'streams', 9, /streams = 9 passes 8/],
    ['mhcSum', 'weightsWidth', 3, /weightsWidth = 3 is below 4/],
    ['mhcWrite', 'weightsWidth', 23, /weightsWidth = 23 is below 24/],
    ['groupedLinear', 'rowOffset', 1, /rowOffset \+ groupOut = 12 passes rowStride = 11/],
    ['scoreRouter', 'topK', 99, /topK = 99 passes experts/],
    ['scoreRouter', 'groups', 2, /groups = 2 does not divide experts = 7/],
    ['scoreRouter', 'groupsKept', 2, /groupsKept = 2 passes groups = 1/],
    ['scoreRouter', 'score', 2, /score = 2 is neither 0 nor 1/],
    ['ropeTail', 'rotary', 7, /rotary = 7 is odd or above dim = 20/],
    ['ropeTail', 'rotary', 22, /rotary = 22 is odd or above dim = 20/],
    ['pool', 'window', 3, /window = 3 does not divide pageTokens/],
    ['windowAttention', 'block', 5, /block = 5 does not divide pageTokens/],
    ['latentAttention', 'tail', 2, /tail = 2 is neither 0 nor 1/],
    ['indexSelect', 'dotScale', 0, /dotScale = 0 is not a positive finite number/],
  ];
  for (const [op, field, value, pattern] of wrong)
    assertRefused(withWord(programsOf(op)[0]!, wordOf(op, field), value), pattern);
});

test('an output may lie on an input only where the op table says so', () => {
  for (const [op, output, input] of [
    ['norm', 'out', 'in'],
    ['add', 'out', 'a'],
    ['add', 'out', 'b'],
    ['swiglu', 'out', 'gate'],
    ['ropeTail', 'out', 'in'],
    ['mhcWeights', 'out', 'in'],
    ['layerNorm', 'out', 'in'],
  ] as const) {
    const [program] = programsOf(op);
    const place = program!.code[wordOf(op, input)]!;
    assert.equal(refusal(withWord(program!, wordOf(op, output), place)), '');
    assertRefused(withWord(program!, wordOf(op, output), place + 1), /overlaps/);
  }
  for (const [op, output, input] of [
    ['conv', 'out', 'in'],
    ['swiglu', 'out', 'up'],
    ['gather', 'out', 'in'],
    ['linear', 'out', 'in'],
    ['hcWrite', 'y', 'residual'],
    ['windowAttention', 'out', 'q'],
    ['windowAttention', 'out', 'kv'],
    ['latentAttention', 'out', 'q'],
    ['mhcSum', 'out', 'residual'],
    ['mhcWrite', 'y', 'residual'],
    ['groupedLinear', 'out', 'in'],
    ['kda', 'out', 'f'],
  ] as const) {
    const [program] = programsOf(op);
    assertRefused(withWord(program!, wordOf(op, output), program!.code[wordOf(op, input)]!), /overlaps/);
  }
});

test('a gate site needs the table of its lowering', () => {
  const [table, fused] = [PLAN_HEADER.indexOf('standaloneTable'), PLAN_HEADER.indexOf('fusedTable')];
  const [program] = programsOf('attention');
  const [act, mtplx] = [PLAN_HEADER.indexOf('act'), PLAN_HEADER.indexOf('mtplx')];
  const plain = withWord(program!, mtplx, 0);
  assertRefused(withWord(plain, table, -1), /lowering = 0 needs the standalone table/);
  assert.equal(refusal(withWord(plain, fused, -1)), '');
  const verify = withWord(plain, wordOf('attention', 'lowering'), 1);
  assertRefused(withWord(verify, fused, -1), /lowering = 1 needs the fused table/);
  assert.equal(refusal(withWord(withWord(verify, act, 0), fused, -1)), '', 'float32 gates are computed');
});
