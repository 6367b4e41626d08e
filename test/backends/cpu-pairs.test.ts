/**
 * Linear maps and experts whose rows and weights are bfloat16, where kernels may multiply pairs of them at once: the bits
 * are the reference's also among numbers whose products such an instruction would take for zeros, and which are no
 * bfloat16 numbers at all.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { cpuAbsence, openCpuBackends } from '../support/cpu-backends.js';
import { CaseWriter } from '../support/op-case-writer.js';
import type { OpCase } from '../support/op-case.js';
import { CASE_LAWS } from '../support/op-cases.js';
import { crowdedExpertsCase, judgeCases, rowsOf } from '../support/shape-cases.js';

const BF16 = CASE_LAWS.find(({ name }) => name === 'bf16')!;
const F32 = CASE_LAWS.find(({ name }) => name === 'f32')!;

/** Rows that are streamed, in panels, in whole tiles and a part of one, in two blocks. */
const ROWS = [1, 2, 3, 4, 7, 16, 17, 40, 130];
/** Columns and outs: one group of pairs, several, more than a panel has. */
const SIZES = [[32, 9], [256, 53], [1056, 7]] as const; // prettier-ignore

/** Planted powers of two: of all inputs, of all weights, or of one of them among ordinary ones. */
interface Planted {
  readonly name: string;
  readonly inputs?: number;
  readonly weights?: number;
  readonly oneInput?: number;
  readonly oneWeight?: number;
}

const SUBNORMAL = 2 ** -130;
const PLANTED: readonly Planted[] = [
  { name: 'ordinary numbers' },
  { name: 'the least factors that pairs may hold', inputs: 2 ** -55, weights: 2 ** -55 },
  { name: 'factors below them, whose products are subnormal', inputs: 2 ** -65, weights: 2 ** -66 },
  { name: 'subnormal weights', weights: SUBNORMAL },
  { name: 'subnormal inputs', inputs: SUBNORMAL },
  { name: 'one subnormal weight', weights: 0, oneWeight: SUBNORMAL },
  { name: 'one subnormal input', inputs: 0, oneInput: SUBNORMAL, weights: 2 ** 20 },
  { name: 'one infinite weight', oneWeight: Infinity },
  { name: 'one infinite input', oneInput: Infinity },
  { name: 'one input that is no bfloat16 number', oneInput: 1 + 2 ** -12 },
  { name: 'sums beyond the largest number', inputs: 2 ** 100, weights: 2 ** 100 },
];

/** A power of two with either sign, and up to three further bits of an odd number. */
function near(c: CaseWriter, power: number): number {
  return (c.below(2) === 0 ? 1 : -1) * power * (1 + c.below(8) / 8);
}

function linearCase(rows: number, inWidth: number, outs: number, planted: Planted): OpCase {
  const law = planted.oneInput === undefined ? BF16 : F32;
  const c = new CaseWriter(`pairs ${inWidth} to ${outs}`, 'linear', law, rowsOf(rows), false);
  const fill = (length: number, power: number | undefined, one: number | undefined): Float32Array => {
    const at = Math.floor(length / 2) + 5;
    return Float32Array.from({ length }, (_, i) => {
      if (i === at && one !== undefined) return one;
      return power === undefined ? near(c, 2 ** (c.below(6) - 3)) : near(c, power);
    });
  };
  const weight = c.values('weight', fill(outs * inWidth, planted.weights, planted.oneWeight), 'BF16');
  const source = c.floats('in', inWidth, fill(rows * inWidth, planted.inputs, planted.oneInput));
  c.output('out', outs);
  c.linear({ rows: 0, in: source, inWidth, segments: 1 }, [{ weight, out: 'out', outColumn: 0, outs }]);
  return c.finish();
}

describe('cpu pairs', { skip: cpuAbsence() }, () => {
  const reference = new ReferenceBackend();
  const backends = openCpuBackends();
  after(() => Promise.all(backends.map(({ backend }) => backend.close())));

  for (const planted of PLANTED) {
    test(`${planted.name}: every instruction set gives the bits of the reference`, async () => {
      let told = 0;
      for (const rows of ROWS) {
        const cases = SIZES.map(([inWidth, outs]) => linearCase(rows, inWidth, outs, planted));
        // Without a fused instruction many rows take long.
        const judged = (name: string): boolean => rows <= 17 || !name.startsWith('generic');
        for (const expected of await judgeCases(reference, backends, cases, judged))
          told += [...expected.get('linear.out[0]')!.values].filter((value) => value !== 0).length;
      }
      assert.ok(told > 0, 'not all sums are zeros');
    });
  }

  test('experts take the rows that they are given, however often one comes', async () => {
    for (const rows of [1, 3, 5, 40]) {
      const half = rows + Math.floor(rows / 2); // the first expert has every row, the others share the rest
      const offsets = [0, rows, half, 2 * rows];
      const given = crowdedExpertsCase({ law: BF16, rows, dtype: 'BF16', hidden: 64, width: 24, offsets });
      await judgeCases(reference, backends, [given]);
    }
  });
});
