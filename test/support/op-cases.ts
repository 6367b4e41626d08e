/**
 * Seeded random cases for every op of the table: several sequences and rows, sizes that are no multiple of 16, every law,
 * kv type and lowering, with the values at which laws differ (gates of -6.84375, ties, -0) and, in the poisoned cases, NaN
 * and infinities in one row.
 */
import type { ActivationLaw } from '../../src/engine/plan/builder.js';
import { OPS, type OpName } from '../../src/engine/plan/ops.js';
import type { OpCase } from './op-case.js';
import { CaseWriter, type CaseShape } from './op-case-writer.js';
import { OP_RECIPES } from './op-recipes.js';

export const CASE_LAWS: readonly ActivationLaw[] = [
  { name: 'f32', act: 0, mtplx: 0, kvType: 0 },
  { name: 'f32-kv16', act: 0, mtplx: 0, kvType: 1 },
  { name: 'bf16', act: 1, mtplx: 0, kvType: 1 },
  { name: 'bf16-kv32', act: 1, mtplx: 0, kvType: 0 },
  { name: 'bf16-mtplx', act: 1, mtplx: 1, kvType: 1 },
];

/** Sequences as [start position, rows]. */
const SHAPES: readonly CaseShape[] = [
  { pageTokens: 8, sequences: [[0, 5]] },
  {
    pageTokens: 8,
    sequences: [
      [9, 1],
      [0, 3],
      [30, 7],
    ],
  },
  {
    pageTokens: 16,
    sequences: [
      [45, 2],
      [15, 1],
      [0, 17],
      [3, 4],
      [63, 1],
    ],
  },
];

/** Every case of these ops (all of them by default): laws x shapes x the op's own variants, each clean and poisoned. */
export function opCases(names: readonly OpName[] = Object.keys(OPS) as OpName[]): OpCase[] {
  const cases: OpCase[] = [];
  for (const op of names) {
    for (const law of CASE_LAWS) {
      for (const [s, shape] of SHAPES.entries()) {
        for (const poisoned of [false, true]) {
          const { variants, write } = OP_RECIPES[op];
          for (let variant = 0; variant < variants; variant++) {
            const name = `${op} ${law.name} shape ${s} variant ${variant}${poisoned ? ' poisoned' : ''}`;
            const writer = new CaseWriter(name, op, law, shape, poisoned);
            write(writer, variant);
            cases.push(writer.finish());
          }
        }
      }
    }
  }
  return cases;
}
