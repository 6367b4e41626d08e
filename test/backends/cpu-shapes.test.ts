/**
 * Shapes that reach every path of the cpu kernels (streams and panels, blocks of rows, long rows, many pages, whole and
 * partial vectors), judged by the reference on every instruction set and with one thread and two.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import type { WeightDtype } from '../../src/engine/plan/ops.js';
import { cpuAbsence, openCpuBackends } from '../support/cpu-backends.js';
import { CaseWriter, type CaseShape } from '../support/op-case-writer.js';
import { runOpCase, type OpCase } from '../support/op-case.js';
import { CASE_LAWS } from '../support/op-cases.js';
import { crowdedExpertsCase, judgeCases, linearCase, rowsOf } from '../support/shape-cases.js';

const F32 = CASE_LAWS.find(({ name }) => name === 'f32')!;
const BF16 = CASE_LAWS.find(({ name }) => name === 'bf16')!;
const DTYPES: readonly WeightDtype[] = ['F32', 'BF16', 'F16'];

describe('cpu shapes', { skip: cpuAbsence() }, () => {
  const reference = new ReferenceBackend();
  const backends = openCpuBackends();
  after(() => Promise.all(backends.map(({ backend }) => backend.close())));

  const judge = async (cases: readonly OpCase[]): Promise<void> => {
    await judgeCases(reference, backends, cases);
  };

  test('a linear map crosses its blocks of rows, chunks of outs and panels of columns without a trace', async () => {
    await judge(
      DTYPES.flatMap((dtype) => [
        linearCase(F32, 1, 1100, 131, dtype), // a stream with heads, prefetch turns and a tail
        linearCase(F32, 2, 96, 19, dtype),
        linearCase(F32, 3, 80, 21, dtype),
        linearCase(F32, 4, 700, 9, dtype),
        linearCase(F32, 6, 2100, 7, dtype), // three panels
        linearCase(F32, 130, 48, 70, dtype), // two blocks of rows, two chunks of outs
        linearCase(F32, 101, 33, 50, dtype),
      ]),
    );
  });

  test('a row of a linear map has the same bits alone and among any number of others', async () => {
    const [inWidth, outs, most] = [1083, 37, 200];
    for (const dtype of DTYPES) {
      const whole = linearCase(F32, most, inWidth, outs, dtype);
      const all = (await runOpCase(backends[0]!.backend, whole)).get('linear.out[0]')!.values;
      const inputs = whole.buffers.find(({ name }) => name === 'in')!.contents as Float32Array;
      for (const rows of [1, 2, 3, 4, 5, 8, 63, 95, 96, 97, 193]) {
        const given = linearCase(F32, rows, inWidth, outs, dtype);
        const from = most - rows; // the last rows of the long call, so that a row changes its place in block and tile
        const contents = inputs.slice(from * inWidth);
        const buffers = given.buffers.map((b) => (b.name === 'in' ? { ...b, contents } : b));
        for (const { name, backend } of backends) {
          if (name.startsWith('generic') && rows > 8) continue; // without a fused instruction this takes long
          const { values } = (await runOpCase(backend, { ...given, weights: whole.weights, buffers })).get(
            'linear.out[0]',
          )!;
          assert.deepEqual(values, all.slice(from * outs), `${dtype}, ${rows} rows, ${name}`);
        }
      }
    }
  });

  /** Dense attention, or attention to four blocks far apart and the incomplete last one. */
  function attentionCase(law: (typeof CASE_LAWS)[number], shape: CaseShape, dim: number, sparse: boolean): OpCase {
    const where = shape.sequences.map(([start]) => start).join();
    const c = new CaseWriter(`attention ${law.name} ${dim} at ${where} ${sparse}`, 'attention', law, shape, false);
    const [heads, kvHeads, block, budgetBlocks] = [6, 2, 8, 4];
    const chosen = c.positions.flatMap((position) =>
      position + 1 < 200 ? [-1, 0, 0, 0, 0] : [4, 0, 3, 17, Math.floor((position + 1) / block) - 1],
    );
    const elements = kvHeads * c.pageTokens * dim;
    c.add('attention', {
      q: c.input('q', heads * dim),
      packed: c.input('packed', heads * 2 * dim, 3),
      select: sparse ? c.ints('select', 1 + budgetBlocks, chosen) : -1,
      out: c.output('out', heads * dim),
      ...{ heads, kvHeads, dim, block, budgetBlocks },
      lowering: sparse ? 1 : 0,
      scale: dim ** -0.5,
      keys: c.page(elements),
      values: c.page(elements),
    });
    return c.finish();
  }

  test('attention over many pages and sequences equals the reference', async () => {
    const shape: CaseShape = { pageTokens: 16, sequences: [[700, 3], [0, 40], [230, 1]] }; // prettier-ignore
    await judge(CASE_LAWS.flatMap((law) => [false, true].map((sparse) => attentionCase(law, shape, 32, sparse))));
    await judge([F32, BF16].map((law) => attentionCase(law, rowsOf(29), 200, false))); // several tiles of values, a tail
  });

  test('attention beyond the context that a block of rows is sized for equals the reference', async () => {
    const shape: CaseShape = { pageTokens: 64, sequences: [[30_000, 5]] };
    await judge([attentionCase(BF16, shape, 16, false)]);
  });

  test('the choice among many blocks equals the reference, ties included', async () => {
    const shape: CaseShape = { pageTokens: 16, sequences: [[1500, 4]] };
    const sizes = [1, 31, 300].flatMap((budgetBlocks) => [false, true].map((weighted) => ({ budgetBlocks, weighted })));
    await judge(
      CASE_LAWS.flatMap((law) =>
        sizes.map(({ budgetBlocks, weighted }) => {
          const c = new CaseWriter(
            `indexSelect long ${law.name} ${budgetBlocks} ${weighted}`,
            'indexSelect',
            law,
            shape,
            false,
          );
          const [heads, dim, block] = [budgetBlocks === 300 ? 7 : 2, 16, 4];
          const q = budgetBlocks === 31 ? c.coarseInput('q', heads * dim) : c.input('q', heads * dim);
          const blocks = c.page((c.pageTokens / block) * dim);
          const weights = weighted ? c.input('weights', heads) : -1;
          const fields = { heads, dim, block, budgetBlocks, blocks, weights, weightScale: 0.5, dotScale: 0.25 };
          c.add('indexSelect', { q, out: c.output('out', 1 + budgetBlocks), ...fields });
          return c.finish();
        }),
      ),
    );
  });

  test('the delta rule with several blocks of columns, whole and partial, equals the reference', async () => {
    const shape: CaseShape = { pageTokens: 16, sequences: [[9, 1], [0, 2], [30, 19]] }; // prettier-ignore
    await judge(
      [64, 75, 128, 150].map((valueDim) => {
        const c = new CaseWriter(`gatedDelta ${valueDim}`, 'gatedDelta', F32, shape, false);
        const [keyHeads, valueHeads, keyDim] = [1, 2, 40];
        c.add('gatedDelta', {
          conv: c.input('conv', 2 * keyHeads * keyDim + valueHeads * valueDim),
          a: c.input('a', valueHeads, 4),
          b: c.input('b', valueHeads, 2),
          out: c.output('out', valueHeads * valueDim),
          ...{ keyHeads, valueHeads, keyDim, valueDim },
          negExpA: c.values('negExpA', Float32Array.of(-0.3, -1.7)),
          dtBias: c.weight('dtBias', valueHeads),
          state: c.fixed(valueHeads * keyDim * valueDim),
        });
        return c.finish();
      }),
    );
  });

  test('experts with more rows than a block equal the reference', async () => {
    const rows = 130;
    await judge(
      DTYPES.map((dtype) =>
        crowdedExpertsCase({ law: F32, rows, dtype, hidden: 40, width: 53, offsets: [0, rows, rows + 3, 2 * rows] }),
      ),
    );
  });

  test('wide rows of the small ops are cut into columns without a trace', async () => {
    const shape = rowsOf(3);
    const hidden = 1301;
    const mix = new CaseWriter('hcMix wide', 'hcMix', BF16, shape, false);
    const [weights, normed] = [mix.input('mix', 2 * hidden, 3), mix.input('normed', 2 * hidden)];
    mix.add('hcMix', { rows: 0, mix: weights, normed, out: mix.output('out', hidden), hidden, streams: 2 });
    const combine = new CaseWriter('moeCombine wide', 'moeCombine', BF16, shape, false);
    combine.add('moeCombine', {
      down: combine.input('down', 2 * hidden),
      weights: combine.input('weights', 2, 0.3),
      shared: combine.input('shared', hidden),
      sharedGate: combine.input('sharedGate', 1, 3),
      ...{ hidden, topK: 2 },
      out: combine.output('out', hidden),
      lowering: 0,
    });
    const swiglu = new CaseWriter('swiglu wide', 'swiglu', BF16, shape, false);
    const gate = swiglu.input('gate', hidden, 3);
    swiglu.add('swiglu', {
      gate,
      up: swiglu.input('up', hidden),
      out: swiglu.output('out', hidden),
      width: hidden,
      limit: 0,
    });
    await judge([mix.finish(), combine.finish(), swiglu.finish()]);
  });
});
