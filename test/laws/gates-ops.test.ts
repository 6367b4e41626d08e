/**
 * The gate laws on every backend and instruction set, through the ops of the four gated sites: all bfloat16 inputs against
 * the tables recorded on Metal, float32 inputs against correctly rounded exponentials, and the inputs that tell each wrong
 * contract apart.
 *
 * No activation law has half-precision activations, so no op ever sees a half gate: the half law is judged as a table, and
 * all half values are judged as the float32 gates that they become when a half checkpoint is run.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import type { Backend } from '../../src/engine/backends/backend.js';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { openWasmBackend } from '../../src/engine/backends/wasm/wasm-backend.js';
import { QWEN_ACTIVATION_LAWS } from '../../src/families/qwen/laws.js';
import { sigmoidTableBf16, sigmoidTableF16 } from '../../src/numerics/gate-tables.js';
import { f32Bits, fromBf16Bits, fromF16Bits, roundBf16, roundF16, toBf16Bits } from '../../src/numerics/rounding.js';
import { cpuAbsence, openCpuBackends } from '../support/cpu-backends.js';
import {
  exponential,
  RECORDED,
  recordedSigmoid,
  sigmoidByStepsF32,
  sigmoidRoundedOnce,
} from '../support/gate-oracle.js';
import { attentionGate, injection, ngramGate, sharedExpertGate } from '../support/gate-sites.js';
import { BF16, BF16_MTPLX, F32, LAWS, LOWERINGS, type GateRun, type Lowering } from '../support/gate-sites.js';
import { seededRandom } from '../support/op-case-writer.js';
import { fixture } from '../support/repository.js';

const SENSITIVE = -6.84375;
const FACTOR = 0.30078125;
const ALL_BITS = Array.from({ length: 65536 }, (_, bits) => bits);
const ALL_BF16 = Float32Array.from(ALL_BITS, fromBf16Bits);
const TABLE_LAWS = [BF16, BF16_MTPLX];

const bits16 = (values: Iterable<number>): string[] =>
  Array.from(values, (value) => toBf16Bits(value).toString(16).padStart(4, '0'));
const bits32 = (values: Iterable<number>): string[] =>
  Array.from(values, (value) => f32Bits(value).toString(16).padStart(8, '0'));
const repeated = (value: number, count: number): number[] => new Array<number>(count).fill(value);

/** Equal as numbers, NaN to NaN and zeros by their sign; names the first input that is not. */
function assertSame(actual: Float32Array, expected: Float32Array, inputs: ArrayLike<number>, label: string): void {
  assert.equal(actual.length, expected.length);
  const wrong = expected.findIndex((value, i) => !Object.is(value, actual[i]));
  assert.equal(wrong, -1, `${label}, input ${inputs[wrong]}: ${actual[wrong]}, expected ${expected[wrong]}`);
}

/** Dense over -30 … 30, then normal noise: 65,536 in all. */
const F32_GATES = ((): Float32Array => {
  const random = seededRandom('float32 gates');
  const normal = (): number => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return Float32Array.from({ length: 65536 }, (_, i) => (i < 49152 ? -30 + (60 * i) / 49151 : 3 * normal()));
})();

interface GateCase {
  readonly gate: number;
  readonly output: number;
  readonly products: Readonly<Record<Lowering, number>>;
}

/** Products around the sensitive gates, recorded on Metal; those with subnormal numbers are left out, no device pins them. */
function recordedProducts(): GateCase[] {
  const lines = gunzipSync(readFileSync(fixture('mlx', 'metal-gate-cases.jsonl.gz')))
    .toString()
    .trim()
    .split('\n');
  const value = (hex: string): number => fromBf16Bits(Number.parseInt(hex, 16));
  return lines.flatMap((line): GateCase[] => {
    const c = JSON.parse(line) as Record<string, string> & { readonly subnormal_involved?: boolean };
    if (c.op !== 'gate' || c.subnormal_involved !== false) return [];
    const products = { standalone: value(c.product_eager!), fused: value(c.product_fused!) };
    return [{ gate: value(c.gate!), output: value(c.output!), products }];
  });
}

type Open = () => Promise<{ readonly name: string; readonly backend: Backend }[]>;

const BACKENDS: Readonly<Record<string, { readonly skip: string | false; readonly open: Open }>> = {
  cpu: { skip: cpuAbsence(), open: async () => openCpuBackends() },
  wasm: {
    skip: false,
    open: async () => [{ name: 'wasm', backend: await openWasmBackend({ threads: 2, sharedWork: 0 }) }],
  },
  reference: { skip: false, open: async () => [{ name: 'reference', backend: new ReferenceBackend() }] },
};

for (const [family, { skip, open }] of Object.entries(BACKENDS)) {
  describe(`${family} gates`, { skip }, () => {
    let backends: Awaited<ReturnType<Open>> = [];
    before(async () => {
      backends = await open();
    });
    after(() => Promise.all(backends.map(({ backend }) => backend.close())));

    /** Runs a judgement on every backend, under each of the laws, in both lowerings. */
    async function judge(
      laws: readonly GateRun['law'][],
      judgement: (run: GateRun, label: string) => Promise<void>,
    ): Promise<void> {
      for (const { name, backend } of backends) {
        for (const law of laws) {
          for (const lowering of LOWERINGS) {
            await judgement({ backend, law, lowering }, `${name} ${law.name} ${lowering}`);
          }
        }
      }
    }

    test('all 65,536 bfloat16 gates of the attention output give the recorded sigmoid', () =>
      judge(TABLE_LAWS, async (run, label) => {
        const expected = Float32Array.from(RECORDED[run.lowering], fromBf16Bits);
        assertSame(await attentionGate(run, ALL_BF16, repeated(1, 65536)), expected, ALL_BF16, label);
      }));

    test('all 65,536 bfloat16 logits of an injection give twice the recorded sigmoid of their share', () =>
      judge(TABLE_LAWS, async (run, label) => {
        for (const streams of [2, 4]) {
          const expected = ALL_BF16.map((raw) =>
            roundBf16(2 * recordedSigmoid(roundBf16(raw / streams), run.lowering)),
          );
          assertSame(await injection(run, streams, ALL_BF16), expected, ALL_BF16, `${label} ${streams}`);
        }
      }));

    test('all 65,536 bfloat16 gates of a shared expert give the recorded sigmoid at MTPLX rounding points', () =>
      judge([BF16_MTPLX], async (run, label) => {
        const expected = Float32Array.from(RECORDED[run.lowering], fromBf16Bits);
        assertSame(await sharedExpertGate(run, ALL_BF16, repeated(1, 65536)), expected, ALL_BF16, label);
      }));

    test('the lowerings differ at -6.84375 and at no other bfloat16 gate', async () => {
      for (const { backend } of backends) {
        for (const law of TABLE_LAWS) {
          const [standalone, fused] = await Promise.all(
            LOWERINGS.map((lowering) => attentionGate({ backend, law, lowering }, ALL_BF16, repeated(1, 65536))),
          );
          const differing = ALL_BITS.filter((i) => !Object.is(standalone![i], fused![i]));
          assert.deepEqual(differing, [0xc0db]);
        }
      }
    });

    test('the sensitive gate gives the pair of every listed output, at all elements of a probe', () =>
      judge(TABLE_LAWS, async (run, label) => {
        const outputs = [0x3e9a, 0x3f80, 0xbf80, 0x4000, 0x3dcd, 0xc2c8].map(fromBf16Bits);
        const expected = {
          standalone: ['39a7', '3a8b', 'ba8b', '3b0b', '38df', 'bdd9'],
          fused: ['39a8', '3a8c', 'ba8c', '3b0c', '38e0', 'bddb'],
        }[run.lowering];
        assert.deepEqual(bits16(await attentionGate(run, repeated(SENSITIVE, 6), outputs)), expected, label);
        const product = run.lowering === 'fused' ? 0.0003204345703125 : 0.0003185272216796875;
        const sigmoid = run.lowering === 'fused' ? 0.001068115234375 : 0.00106048583984375;
        const probe = await attentionGate(run, repeated(SENSITIVE, 8), repeated(FACTOR, 8));
        assert.deepEqual([...probe], repeated(product, 8), label);
        assert.deepEqual([...(await attentionGate(run, [SENSITIVE], [1]))], [sigmoid], label);
      }));

    test('the neighbours of the sensitive gate are equal in both lowerings and to the table', () =>
      judge(TABLE_LAWS, async (run, label) => {
        const bits = ALL_BITS.slice(0xc0d5, 0xc0e2).filter((gate) => gate !== 0xc0db);
        assert.equal(bits.length, 12);
        const gated = await attentionGate(run, bits.map(fromBf16Bits), repeated(1, bits.length));
        const tables = LOWERINGS.map((lowering) => bits.map((gate) => RECORDED[lowering][gate]!));
        for (const table of tables) assert.deepEqual(Array.from(gated, toBf16Bits), table, label);
      }));

    test('products around the sensitive gates are those that Metal gave', () => {
      const cases = recordedProducts();
      assert.ok(cases.length > 100);
      return judge(TABLE_LAWS, async (run, label) => {
        const gates = cases.map(({ gate }) => gate);
        const gated = await attentionGate(
          run,
          gates,
          cases.map(({ output }) => output),
        );
        assertSame(
          gated,
          Float32Array.from(cases, ({ products }) => products[run.lowering]),
          gates,
          label,
        );
      });
    });

    test('gates that expose a sigmoid rounded only once give the staged results', () =>
      judge(TABLE_LAWS, async (run, label) => {
        const gates = Object.keys(EXPOSING).map((hex) => fromBf16Bits(Number.parseInt(hex, 16)));
        const staged = await attentionGate(run, gates, repeated(1, gates.length));
        assert.deepEqual(
          bits16(staged),
          Object.values(EXPOSING).map(([law]) => law),
          label,
        );
        const products = await attentionGate(run, gates, repeated(FACTOR, gates.length));
        gates.forEach((gate, i) => {
          assert.notEqual(staged[i], sigmoidRoundedOnce(gate), label);
          const once = roundBf16(sigmoidRoundedOnce(gate) * FACTOR);
          if (gate !== -2) assert.notEqual(products[i], once, `${label} ${gate}`);
        });
      }));

    test('an injection of -27.375 over 4 streams and of -13.6875 over 2 follows the lowering', () =>
      judge(TABLE_LAWS, async (run, label) => {
        const [bits, value] = run.lowering === 'fused' ? ['3b0c', 0.00213623046875] : ['3b0b', 0.0021209716796875];
        assert.equal(fromBf16Bits(Number.parseInt(bits, 16)), value);
        assert.deepEqual([...(await injection(run, 4, repeated(-27.375, 8)))], repeated(value, 8), label);
        assert.deepEqual([...(await injection(run, 2, repeated(-13.6875, 8)))], repeated(value, 8), label);
      }));

    test('shared expert and n-gram value take the fused table only where the plan says so', () =>
      judge(TABLE_LAWS, async (run, label) => {
        // Without MTPLX's rounding points the ordinary sigmoid is rounded once, which gives the fused bits here.
        const expected = run.lowering === 'standalone' && run.law === BF16_MTPLX ? '3a8b' : '3a8c';
        assert.deepEqual(bits16(await sharedExpertGate(run, [SENSITIVE], [1])), [expected], label);
        // Both scores have the square root -6.84375 in bfloat16.
        assert.deepEqual(bits16(await ngramGate(run, [-46.75, -47], [1, 1])), [expected, expected], label);
      }));

    test('65,536 float32 gates are those of correctly rounded exponentials, at every site', () =>
      judge([F32], async (run, label) => {
        const { lowering } = run;
        const expected = F32_GATES.map((x) => sigmoidByStepsF32(x, lowering));
        assertSame(await attentionGate(run, F32_GATES, repeated(1, 65536)), expected, F32_GATES, label);
        const raw = F32_GATES.map((x) => 2 * x);
        assertSame(
          await injection(run, 2, raw),
          expected.map((s) => 2 * s),
          raw,
          label,
        );
        const products = expected.map((s) => s * FACTOR);
        assertSame(await attentionGate(run, F32_GATES, repeated(FACTOR, 65536)), products, F32_GATES, label);
        if (lowering === 'standalone') return; // there the two other sites have the ordinary sigmoid
        assertSame(await sharedExpertGate(run, F32_GATES, repeated(1, 65536)), expected, F32_GATES, label);
      }));

    test('float32 lowerings differ at a third of ordinary gates, each within its error bound', async () => {
      for (const { name, backend } of backends) {
        const [standalone, fused] = await Promise.all(
          LOWERINGS.map((lowering) => attentionGate({ backend, law: F32, lowering }, F32_GATES, repeated(1, 65536))),
        );
        const error = (values: Float32Array): number =>
          F32_GATES.reduce((most, x, i) => Math.max(most, Math.abs(values[i]! * (1 + Math.exp(-x)) - 1)), 0);
        assert.ok(error(standalone!) < 2e-7, name);
        assert.ok(error(fused!) < 2e-6, name);
        const differing = fused!.filter((value, i) => value !== standalone![i]).length / F32_GATES.length;
        assert.ok(differing > 0.25 && differing < 0.45, `${name}: ${differing} differ`);
      }
    });

    test('the named float32 gates have their named bits', () =>
      judge([F32], async (run, label) => {
        const named = await attentionGate(run, [-6.84375, -20, -3, -30, -10], repeated(1, 5));
        const expected = {
          standalone: ['3a8b9638', '310da433', '3d4241a2', '29d2b707', '383e6998'],
          fused: ['3a8b963b', '310da432', '3d4241a3', '29d2b717', '383e6997'],
        };
        assert.deepEqual(bits32(named), expected[run.lowering], label);
        const equal = [0.5, -0.5, 1, -1, 0, 10];
        const other = run.lowering === 'fused' ? 'standalone' : 'fused';
        assertSame(
          await attentionGate(run, equal, repeated(1, 6)),
          Float32Array.from(equal, (x) => sigmoidByStepsF32(x, other)),
          equal,
          label,
        );
      }));

    test('all half values, as float32 gates, are those of correctly rounded exponentials', () =>
      judge([F32], async (run, label) => {
        const gates = Float32Array.from(ALL_BITS, fromF16Bits);
        const expected = gates.map((x) => (Number.isNaN(x) ? x : sigmoidByStepsF32(x, run.lowering)));
        assertSame(await attentionGate(run, gates, repeated(1, 65536)), expected, gates, label);
      }));
  });
}

/** Gates by their bits: what the law gives in both lowerings, and what one rounding would give. */
const EXPOSING: Readonly<Record<string, readonly [law: string, once: string]>> = {
  '3f00': ['3f20', '3f1f'],
  bdcd: ['3ef5', '3ef3'],
  c000: ['3df5', '3df4'],
  bee6: ['3ec8', '3ec7'],
  c080: ['3c94', '3c93'],
  bfb3: ['3e4a', '3e4b'],
  c120: ['383f', '383e'],
  c0b1: ['3b82', '3b81'],
  c1f0: ['29d2', '29d3'],
  '3c01': ['3f00', '3f01'],
  '403e': ['3f74', '3f73'],
  '3c9f': ['3f02', '3f01'],
  '3ca0': ['3f02', '3f01'],
  '3ca1': ['3f02', '3f01'],
  '3ca2': ['3f02', '3f01'],
  '3ca3': ['3f02', '3f01'],
};

test('one rounding of a float32 sigmoid is told apart by its own gates, and by none of the ordinary ones', () => {
  for (const [hex, [law, once]] of Object.entries(EXPOSING)) {
    const bits = Number.parseInt(hex, 16);
    assert.deepEqual(bits16([sigmoidRoundedOnce(fromBf16Bits(bits))]), [once], hex);
    for (const lowering of LOWERINGS) assert.equal(RECORDED[lowering][bits], Number.parseInt(law, 16), hex);
  }
  for (const gate of [1, -1, 2, 4, -0.5, -6.8125, -6.875, 6.84375, SENSITIVE]) {
    assert.equal(sigmoidRoundedOnce(gate), recordedSigmoid(gate, 'fused'));
  }
});

test('the tables of the engine are the recorded ones, all 65,536 inputs of each', () => {
  for (const lowering of LOWERINGS) {
    const table = sigmoidTableBf16(lowering);
    const isNaN = (bits: number): boolean => (bits & 0x7fff) > 0x7f80;
    const wrong = ALL_BITS.filter((bits) => table[bits] !== RECORDED[lowering][bits] && !isNaN(bits));
    assert.deepEqual(wrong, []);
  }
  const half = sigmoidTableF16();
  const isNaN = (bits: number): boolean => (bits & 0x7fff) > 0x7c00;
  assert.deepEqual(
    ALL_BITS.filter((bits) => half[bits] !== RECORDED.half[bits] && !isNaN(bits)),
    [],
  );
});

test('half gates have one table: with either exponential every finite input gives the recorded entry', () => {
  const finite = ALL_BITS.filter((bits) => (bits & 0x7c00) !== 0x7c00);
  assert.equal(finite.length, 63488);
  for (const lowering of LOWERINGS) {
    for (const bits of finite) {
      const x = fromF16Bits(bits);
      const y = roundF16(1 / roundF16(1 + roundF16(exponential(Math.abs(x), lowering))));
      assert.equal(x < 0 ? y : roundF16(1 - y), fromF16Bits(RECORDED.half[bits]!), `${lowering} ${bits.toString(16)}`);
    }
  }
});

test('no activation law has half gates, and gate and output always have one type', () => {
  // A plan has one activation type; a law with another one must bring its gates to the tests above.
  assert.deepEqual(QWEN_ACTIVATION_LAWS, LAWS);
  for (const { act } of QWEN_ACTIVATION_LAWS) assert.ok(act === 0 || act === 1);
});
