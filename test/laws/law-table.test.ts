/**
 * docs/laws.md and docs/laws-*.md speak of every op of every plan: each op has a row, each row an op, and a gate's lowering
 * in the plan is what the row, the phase and the policy say.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Plan } from '../../src/engine/plan/builder.js';
import { decodeProgram, type DecodedOp } from '../../src/engine/plan/decode.js';
import { OPS, type OpSpec } from '../../src/engine/plan/ops.js';
import { PHASES, type GatePolicy } from '../../src/engine/plan/phase.js';
import { DEEPSEEK_LAWS_TABLE } from '../../src/families/deepseek/law-table.js';
import { GLM_LAWS_TABLE } from '../../src/families/glm/law-table.js';
import type { LawRow as PlainLawRow } from '../../src/families/law-row.js';
import { phaseLowering, siteLowering } from '../../src/families/qwen/laws.js';
import { QWEN_LAWS, type LawRow } from '../../src/families/qwen/law-table.js';
import type { QwenModel } from '../../src/families/qwen/model.js';
import { GLM_GOLDEN_CASES } from '../support/golden.js';
import { openPagedTestModel, openTestModel, type Checkpoint } from '../support/models.js';

const POLICIES: readonly GatePolicy[] = ['strict', 'mtplx', 'uniform'];
const ROW_OF_OP = new Map(QWEN_LAWS.flatMap((row) => row.ops.map((op) => [op, row] as const)));

/** The op as the table names it: its first buffer, for linear ops input and first output; layer numbers as #. */
function signature(op: DecodedOp, plan: Plan): string {
  const names = new Map([...plan.buffers].map(([name, { offset }]) => [offset, name.replace(/\.\d+\./, '.#.')]));
  if (op.name === 'linear') return `linear:${names.get(op.fields.in)}>${names.get(op.segments[0]!.out)}`;
  const spec: OpSpec = OPS[op.name];
  const first = spec.fields.find(({ kind }) => kind === 'buffer');
  const fields: Readonly<Record<string, number>> = op.fields;
  return `${op.name}:${first ? names.get(fields[first.name]!) : ''}`;
}

function ops(plan: Plan): { readonly op: DecodedOp; readonly signature: string; readonly row: LawRow | undefined }[] {
  return decodeProgram(plan.program.code).ops.map((op) => {
    const name = signature(op, plan);
    return { op, signature: name, row: ROW_OF_OP.get(name) };
  });
}

function trunkPlans(model: QwenModel): Plan[] {
  return (['trunk', 'revocable', 'commit'] as const).map((group) =>
    model.trunk.buildPlan(model.trunk.planKey({ group, lowering: 'standalone', rows: 4, outRows: 2 })),
  );
}

test('every op of every plan has a row in the law table, and every row an op', async (t) => {
  const seen = new Set<string>();
  for (const checkpoint of ['qwen4-exp-tiny', 'qwen3.5-dense-tiny', 'plumbline-tiny'] as const) {
    const { model } = await openTestModel(t, checkpoint, { dtype: 'bf16' });
    const plans = [...trunkPlans(model), ...model.draftPlans()];
    for (const plan of plans) {
      for (const { signature: name, row } of ops(plan)) {
        assert.ok(row, `${checkpoint}: ${name} is in no row`);
        seen.add(name);
      }
    }
  }
  assert.deepEqual(
    [...ROW_OF_OP.keys()].filter((name) => !seen.has(name)),
    [],
  );
});

test('the lowering of every gate in a plan is what its row, the phase and the policy say', async (t) => {
  for (const gatePolicy of POLICIES) {
    const { model } = await openTestModel(t, 'plumbline-tiny', { dtype: 'bf16', gatePolicy });
    for (const phase of PHASES) {
      const key = model.trunk.planKey({ group: 'trunk', lowering: phaseLowering(phase), rows: 1, outRows: 1 });
      assert.equal(key.gatePolicy, gatePolicy);
      let gates = 0;
      for (const { op, row } of ops(model.trunk.buildPlan(key))) {
        const { lowering } = op.fields as { readonly lowering?: number };
        if (lowering === undefined) continue;
        assert.ok(row?.gate, `${row?.site} has a lowering but no gate in the table`);
        const expected = siteLowering(row.gate, phaseLowering(phase), gatePolicy);
        assert.equal(lowering, expected === 'fused' ? 1 : 0, `${phase} ${gatePolicy} ${row.site}`);
        gates++;
      }
      assert.ok(gates > 20);
    }
    for (const plan of model.draftPlans()) {
      for (const { op } of ops(plan)) assert.equal((op.fields as { readonly lowering?: number }).lowering ?? 0, 0);
    }
  }
});

const PLAIN_TABLES: readonly (readonly [string, readonly PlainLawRow[], readonly Checkpoint[]])[] = [
  ['DeepSeek V4', DEEPSEEK_LAWS_TABLE, ['deepseek-v4-strong', 'deepseek-v4-plain-rope']],
  ['GLM', GLM_LAWS_TABLE, GLM_GOLDEN_CASES],
];

for (const [family, table, checkpoints] of PLAIN_TABLES) {
  test(`every op of every ${family} plan has a row in its law table, and every row an op`, async (t) => {
    const rows = new Set(table.flatMap((row) => row.ops));
    const seen = new Set<string>();
    for (const checkpoint of checkpoints) {
      const { model } = await openPagedTestModel(t, checkpoint);
      for (const phase of PHASES) {
        for (const { signature: name } of ops(model.trunk.buildPlan(model.trunk.phaseKey(phase, 4, 2)))) {
          assert.ok(rows.has(name), `${checkpoint}: ${name} is in no row`);
          seen.add(name);
        }
      }
    }
    assert.deepEqual(
      [...rows].filter((name) => !seen.has(name)),
      [],
    );
  });
}
