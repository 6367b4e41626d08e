/**
 * The wasm backend gives the bits of the reference backend under float law `mul-add`: on every op, with one thread and
 * with two that share even the smallest op, and for shapes that reach every path of its kernels.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Backend } from '../../src/engine/backends/backend.js';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { openWasmBackend } from '../../src/engine/backends/wasm/wasm-backend.js';
import { OPS, type OpName, type WeightDtype } from '../../src/engine/plan/ops.js';
import { fromBf16Bits, fromF16Bits } from '../../src/numerics/rounding.js';
import { runOpCase, type OpCase } from '../support/op-case.js';
import { CaseWriter, type CaseShape } from '../support/op-case-writer.js';
import { CASE_LAWS, opCases } from '../support/op-cases.js';
import { crowdedExpertsCase, judgeCases, linearCase, rowsOf } from '../support/shape-cases.js';

const reference = new ReferenceBackend({ floatLaw: 'mul-add' });
const backends: { readonly name: string; readonly backend: Backend }[] = [];

before(async () => {
  for (const threads of [1, 2]) {
    backends.push({ name: `threads ${threads}`, backend: await openWasmBackend({ threads, sharedWork: 0 }) });
  }
  backends.push({ name: 'threads 2, small ops unshared', backend: await openWasmBackend({ threads: 2 }) });
});
after(() => Promise.all(backends.map(({ backend }) => backend.close())));

const judge = async (cases: readonly OpCase[]): Promise<void> => {
  await judgeCases(reference, backends, cases);
};

for (const op of Object.keys(OPS) as OpName[]) {
  test(`wasm equals the reference bit for bit on every case of ${op}`, () => judge(opCases([op])));
}

const F32 = CASE_LAWS.find(({ name }) => name === 'f32')!;
const DTYPES: readonly WeightDtype[] = ['F32', 'BF16', 'F16'];

test('a linear map crosses its chunks of rows and units of outputs without a trace', async () => {
  const cases = DTYPES.flatMap((dtype) => [
    linearCase(F32, 130, 48, 70, dtype), // 3 chunks of 64 rows, 2 units
    linearCase(F32, 67, 33, 131, dtype),
    linearCase(F32, 19, 20_000, 5, dtype), // 3 chunks of 8 rows
  ]);
  await judge(cases);
});

test('a row of a linear map has the same bits alone and among any number of others', async () => {
  const [inWidth, outs] = [83, 37];
  for (const dtype of DTYPES) {
    const most = linearCase(F32, 70, inWidth, outs, dtype);
    const all = (await runOpCase(backends[1]!.backend, most)).get('linear.out[0]')!.values;
    const inputs = most.buffers.find(({ name }) => name === 'in')!.contents as Float32Array;
    for (const rows of [1, 2, 3, 4, 5, 8, 63, 64, 65]) {
      const given = linearCase(F32, rows, inWidth, outs, dtype);
      // The last rows of the long call, so that a row changes its place in chunk and tile.
      const from = 70 - rows;
      const contents = inputs.slice(from * inWidth);
      const alone = { ...given, weights: most.weights, buffers: given.buffers.map((b) => (b.name === 'in' ? { ...b, contents } : b)) }; // prettier-ignore
      for (const { name, backend } of backends) {
        const { values } = (await runOpCase(backend, alone)).get('linear.out[0]')!;
        assert.deepEqual([...values], [...all.slice(from * outs)], `${dtype}, ${rows} rows, ${name}`);
      }
    }
  }
});

test('every half and every bfloat16 is widened exactly, and NaNs of any payload stay NaN', async () => {
  const all = Uint16Array.from({ length: 65536 }, (_, bits) => bits);
  const cases = (['BF16', 'F16'] as const).map((dtype) => {
    const c = new CaseWriter(`embed every ${dtype}`, 'embed', F32, rowsOf(2), false);
    const values = Float32Array.from(all, dtype === 'BF16' ? fromBf16Bits : fromF16Bits);
    c.add('embed', { out: c.output('out', 65536), width: 65536, copies: 1, weight: c.values('table', values, dtype) });
    return c.finish();
  });
  const payloads = [0x7fffffff, 0xffffffff, 0x7f800001, 0xffbfffff, 0x7fff8000, 0x3f808000, 0x3f818000, 0x7f7fffff];
  const c = new CaseWriter(
    'add payloads',
    'add',
    CASE_LAWS.find(({ name }) => name === 'bf16')!,
    rowsOf(1),
    false,
  );
  const a = c.floats('a', payloads.length, new Float32Array(Uint32Array.from(payloads).buffer));
  const b = c.floats('b', payloads.length, new Float32Array(payloads.length));
  c.add('add', { rows: 0, a, b, out: c.output('out', payloads.length), width: payloads.length });
  await judge([...cases, c.finish()]);
});

test('attention over many pages and with heads of whole vectors equals the reference', async () => {
  const shape: CaseShape = { pageTokens: 16, sequences: [[700, 3], [0, 40]] }; // prettier-ignore
  const cases = CASE_LAWS.flatMap((law) =>
    [-1, 1].map((select) => {
      const c = new CaseWriter(`attention long ${law.name} ${select}`, 'attention', law, shape, false);
      const [heads, kvHeads, dim, block, budgetBlocks] = [6, 2, 32, 8, 5];
      const chosen = c.positions.flatMap((position) =>
        position + 1 < 200 ? [-1, 0, 0, 0, 0, 0] : [5, 0, 3, 4, 17, Math.floor((position + 1) / block) - 1],
      );
      const elements = kvHeads * c.pageTokens * dim;
      c.add('attention', {
        q: c.input('q', heads * dim),
        packed: c.input('packed', heads * 2 * dim, 3),
        select: select < 0 ? -1 : c.ints('select', 1 + budgetBlocks, chosen),
        out: c.output('out', heads * dim),
        ...{ heads, kvHeads, dim, block, budgetBlocks },
        lowering: select < 0 ? 0 : 1,
        scale: dim ** -0.5,
        keys: c.page(elements),
        values: c.page(elements),
      });
      return c.finish();
    }),
  );
  await judge(cases);
});

test('the choice among many blocks equals the reference, ties included', async () => {
  const shape: CaseShape = { pageTokens: 16, sequences: [[1500, 4]] };
  const sizes = [1, 31, 300].flatMap((budgetBlocks) => [false, true].map((weighted) => ({ budgetBlocks, weighted })));
  const cases = CASE_LAWS.flatMap((law) =>
    sizes.map(({ budgetBlocks, weighted }) => {
      const c = new CaseWriter(
        `indexSelect long ${law.name} ${budgetBlocks} ${weighted}`,
        'indexSelect',
        law,
        shape,
        false,
      );
      const [heads, dim, block] = [2, 16, 4];
      const q = budgetBlocks === 31 ? c.coarseInput('q', heads * dim) : c.input('q', heads * dim);
      const out = c.output('out', 1 + budgetBlocks);
      const blocks = c.page((c.pageTokens / block) * dim);
      const weights = weighted ? c.input('weights', heads) : -1;
      const fields = { heads, dim, block, budgetBlocks, blocks, weights, weightScale: 0.5, dotScale: 0.25 };
      c.add('indexSelect', { q, out, ...fields });
      return c.finish();
    }),
  );
  await judge(cases);
});

test('experts with more rows than a chunk equal the reference', async () => {
  const rows = 150;
  const cases = DTYPES.map((dtype) =>
    crowdedExpertsCase({ law: F32, rows, dtype, hidden: 40, width: 70, offsets: [0, rows, 2 * rows] }),
  );
  await judge(cases);
});
