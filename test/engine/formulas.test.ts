/**
 * Every reference op against a float64 computation of its formula: to float32 precision without roundings, and with the
 * roundings of the bfloat16 laws nearly everywhere to the bit (a float32 and a float64 sum may round to two neighbours).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { OPS, type OpName } from '../../src/engine/plan/ops.js';
import { fromBf16Bits } from '../../src/numerics/rounding.js';
import { runOpCase, type CaseOutput } from '../support/op-case.js';
import { opCases } from '../support/op-cases.js';
import { CaseView } from './formulas/case-view.js';
import { FORMULAS } from './formulas/formulas.js';

/** Relative to the greater of the value and the output's rms. Attention's scores carry their float32 error into e^s. */
const FLOAT32_LIMIT = { default: 4e-6, attention: 1e-4 };
const ATTENTIONS: readonly OpName[] = ['attention', 'windowAttention', 'latentAttention'];

/** Ops whose results are float32 under every law. */
const UNROUNDED: readonly OpName[] = ['mhcWeights'];

interface Tally {
  compared: number;
  different: number;
}

function compare(label: string, output: CaseOutput, expected: readonly number[], limit: number, tally: Tally): void {
  const actual = output.type === 'bf16' ? Array.from(output.values, fromBf16Bits) : Array.from(output.values);
  assert.equal(actual.length, expected.length, label);
  const known = expected.filter((value) => !Number.isNaN(value));
  const rms = Math.sqrt(known.reduce((sum, value) => sum + value * value, 0) / Math.max(known.length, 1));
  expected.forEach((value, at) => {
    if (Number.isNaN(value)) return;
    const error = Math.abs(actual[at]! - value);
    assert.ok(error <= limit * Math.max(Math.abs(value), rms), `${label}[${at}]: ${actual[at]} instead of ${value}`);
    tally.compared++;
    if (error > 0) tally.different++;
  });
}

for (const op of Object.keys(OPS) as OpName[]) {
  test(`${op} follows its formula under every law`, async () => {
    const backend = new ReferenceBackend();
    const tally: Tally = { compared: 0, different: 0 };
    const floats: Tally = { compared: 0, different: 0 };
    const clean = opCases([op]).filter(({ name }) => !name.endsWith('poisoned'));
    for (const given of clean) {
      const outputs = await runOpCase(backend, given);
      const bf16 = given.law.act === 1 && !UNROUNDED.includes(op);
      const limit = bf16 ? 2 ** -6 : ATTENTIONS.includes(op) ? FLOAT32_LIMIT.attention : FLOAT32_LIMIT.default;
      for (const [name, values] of Object.entries(FORMULAS[op]!(new CaseView(given)))) {
        const exact = bf16 && !name.startsWith('slab'); // slabs are float32 under every law
        compare(`${given.name}: ${name}`, outputs.get(name)!, values, limit, exact ? tally : floats);
      }
    }
    assert.ok(tally.compared > 0 || (UNROUNDED.includes(op) && floats.compared > 0));
    assert.ok(
      tally.different <= 0.002 * tally.compared,
      `${tally.different} of ${tally.compared} bfloat16 results differ`,
    );
  });
}
