/**
 * The phase law of gates where it is felt: through the attention, hyper-connection, shared-expert and n-gram ops, at the
 * one bfloat16 input where the two lowerings differ, and at its neighbours, where they do not.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import type { ActivationLaw } from '../../src/engine/plan/builder.js';
import { fromBf16Bits, f32Bits, toBf16Bits } from '../../src/numerics/rounding.js';
import { runOpCase, type OpCase } from '../support/op-case.js';
import { CaseWriter } from '../support/op-case-writer.js';

const BF16: ActivationLaw = { name: 'bf16', act: 1, mtplx: 0, kvType: 1 };
const MTPLX: ActivationLaw = { name: 'bf16-mtplx', act: 1, mtplx: 1, kvType: 1 };
const F32: ActivationLaw = { name: 'f32', act: 0, mtplx: 0, kvType: 0 };
const ONE_ROW = { pageTokens: 8, sequences: [[0, 1]] as const };

async function runOnce(given: OpCase, output: string): Promise<number[]> {
  return Array.from((await runOpCase(new ReferenceBackend(), given)).get(output)!.values);
}

/** One row that sees one token only: the attention output is the value, so what comes out is value times gate. */
async function gatedValues(
  law: ActivationLaw,
  lowering: number,
  gates: readonly number[],
  values: readonly number[],
): Promise<number[]> {
  const dim = gates.length;
  const c = new CaseWriter('one token', 'attention', law, ONE_ROW, false);
  c.add('attention', {
    q: c.floats('q', dim, new Float32Array(dim)),
    packed: c.floats('packed', 2 * dim, Float32Array.from([...new Float32Array(dim), ...gates])),
    select: -1,
    out: c.output('out', dim),
    ...{ heads: 1, kvHeads: 1, dim, block: 0, budgetBlocks: 0, lowering, scale: 1 },
    keys: c.page(0),
    values: c.page(8 * dim),
  });
  const written = c.finish();
  const page = law.kvType === 1 ? new Uint16Array(8 * dim) : new Float32Array(8 * dim);
  values.forEach((value, i) => (page[i] = law.kvType === 1 ? toBf16Bits(value) : value));
  const keys = written.ops[0]!.fields.values as number; // keys are not used: whatever lies in the page has weight 1 alone
  const bytes = new Uint8Array(keys + page.byteLength);
  bytes.set(new Uint8Array(page.buffer), keys);
  return runOnce({ ...written, sequences: [{ ...written.sequences[0]!, pages: [bytes] }] }, 'attention.out');
}

const hex = (values: readonly number[]): string[] =>
  values.map((value) => toBf16Bits(value).toString(16).padStart(4, '0'));
const SENSITIVE = fromBf16Bits(0xc0db);

test('the sensitive gate, -6.84375, gives the pair of every listed product', async () => {
  const outputs = [0x3e9a, 0x3f80, 0xbf80, 0x4000, 0x3dcd, 0xc2c8].map(fromBf16Bits);
  const gates = outputs.map(() => SENSITIVE);
  for (const law of [BF16, MTPLX]) {
    assert.deepEqual(hex(await gatedValues(law, 0, gates, outputs)), ['39a7', '3a8b', 'ba8b', '3b0b', '38df', 'bdd9']);
    assert.deepEqual(hex(await gatedValues(law, 1, gates, outputs)), ['39a8', '3a8c', 'ba8c', '3b0c', '38e0', 'bddb']);
  }
});

test('all 65,280 finite gates differ between the lowerings at that one input only', async () => {
  const gates = Array.from({ length: 65536 }, (_, bits) => fromBf16Bits(bits)).filter((gate) => Number.isFinite(gate));
  const ones = gates.map(() => 1);
  const [standalone, fused] = [await gatedValues(BF16, 0, gates, ones), await gatedValues(BF16, 1, gates, ones)];
  assert.equal(gates.length, 65280);
  assert.deepEqual(
    gates.filter((_, i) => standalone[i] !== fused[i]),
    [SENSITIVE],
  );
});

test('gates that expose a float32 sigmoid rounded once give the staged results', async () => {
  const gates = [
    0.5, -2, -4, -10, -30, 0.00787353515625, -0.10009765625, -0.44921875, -1.3984375, -5.53125, 0.0194091796875,
    2.96875,
  ];
  const expected = ['3f20', '3df5', '3c94', '383f', '29d2', '3f00', '3ef5', '3ec8', '3e4a', '3b82', '3f02', '3f74'];
  for (const lowering of [0, 1]) {
    assert.deepEqual(
      hex(
        await gatedValues(
          BF16,
          lowering,
          gates,
          gates.map(() => 1),
        ),
      ),
      expected,
    );
  }
});

test('float32 gates differ between the lowerings in their last bits', async () => {
  const gates = [-6.84375, -3, -10, -20, -30, 0.5, 1, 0, 10];
  const bits = async (lowering: number): Promise<string[]> =>
    (
      await gatedValues(
        F32,
        lowering,
        gates,
        gates.map(() => 1),
      )
    ).map((v) => f32Bits(v).toString(16));
  const [standalone, fused] = [await bits(0), await bits(1)];
  assert.deepEqual(standalone.slice(0, 5), ['3a8b9638', '3d4241a2', '383e6998', '310da433', '29d2b707']);
  assert.deepEqual(fused.slice(0, 5), ['3a8b963b', '3d4241a3', '383e6997', '310da432', '29d2b717']);
  assert.deepEqual(standalone.slice(5), fused.slice(5));
});

async function injection(law: ActivationLaw, lowering: number, streams: number, raw: number): Promise<string> {
  const c = new CaseWriter('injection', 'hcAct', law, ONE_ROW, false);
  const down = c.floats('down', 1, new Float32Array(1));
  const inject = c.floats('inject', streams, new Float32Array(streams).fill(raw));
  c.add('hcAct', { rows: 0, down, rank: 1, inject, streams, lowering });
  return hex(await runOnce(c.finish(), 'hcAct.inject'))[0]!;
}

test('the injection of raw -27.375 over 4 streams and -13.6875 over 2 follows the phase', async () => {
  for (const law of [BF16, MTPLX]) {
    for (const [streams, raw] of [
      [4, -27.375],
      [2, -13.6875],
    ] as const) {
      assert.equal(await injection(law, 0, streams, raw), '3b0b');
      assert.equal(await injection(law, 1, streams, raw), '3b0c');
    }
  }
});

/** The shared expert's gate of -6.84375 times a shared output of 1. */
async function sharedExpert(law: ActivationLaw, lowering: number): Promise<string> {
  const c = new CaseWriter('shared', 'moeCombine', law, ONE_ROW, false);
  const one = (name: string, value: number): string => c.floats(name, 1, Float32Array.of(value));
  const fields = {
    down: one('down', 0),
    weights: one('weights', 0),
    shared: one('shared', 1),
    sharedGate: one('gate', -6.84375),
  };
  c.add('moeCombine', { ...fields, hidden: 1, topK: 1, out: c.output('out', 1), lowering });
  return hex(await runOnce(c.finish(), 'moeCombine.out'))[0]!;
}

/** The n-gram gate with a score of -6.84375 (from -46.75 before the square root) times a value of 1. */
async function ngramGate(law: ActivationLaw, lowering: number): Promise<string> {
  const c = new CaseWriter('ngram', 'pleGate', law, ONE_ROW, false);
  const one = (name: string, value: number): string => c.floats(name, 1, Float32Array.of(value));
  const fields = { key: one('key', -46.75), query: one('query', 1), value: one('value', 1), out: c.output('out', 1) };
  c.add('pleGate', { ...fields, hidden: 1, streams: 1, rootHidden: 1, lowering });
  return hex(await runOnce(c.finish(), 'pleGate.out'))[0]!;
}

test('shared expert and n-gram gate take the fused table only where the plan says so', async () => {
  for (const site of [sharedExpert, ngramGate]) {
    assert.equal(await site(MTPLX, 0), '3a8b');
    assert.equal(await site(MTPLX, 1), '3a8c');
    assert.equal(await site(BF16, 0), '3a8c', 'without MTPLX the ordinary sigmoid is rounded once');
  }
});
