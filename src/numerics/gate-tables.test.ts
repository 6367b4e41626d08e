import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { gateF32, sigmoidTableBf16, sigmoidTableF16 } from './gate-tables.js';
import { f32Bits, fromBf16Bits, toBf16Bits } from './rounding.js';

const standalone = sigmoidTableBf16('standalone');
const fused = sigmoidTableBf16('fused');
const half = sigmoidTableF16();

const sha256 = (values: Iterable<number>): string => {
  const words = Uint16Array.from(values);
  return createHash('sha256').update(new Uint8Array(words.buffer)).digest('hex');
};

const allBits = Array.from({ length: 0x10000 }, (_, bits) => bits);
const finiteBf16 = allBits.filter((bits) => (bits & 0x7f80) !== 0x7f80);
const finiteF16 = allBits.filter((bits) => (bits & 0x7c00) !== 0x7c00);

test('the bfloat16 tables have the recorded hashes, whole and over the 65,280 finite inputs', () => {
  assert.equal(finiteBf16.length, 65280);
  assert.equal(sha256(standalone), 'c25c983e4e3f2f07c680694ea5c0f8885e702aff20863efbce9387a551654295');
  assert.equal(sha256(fused), '86bf3ac96f7efb7399fc48199c60ddaacffc62d7a3aa46e80fb46b80c55b5117');
  const finite = (table: Uint16Array): string => sha256(finiteBf16.map((bits) => table[bits]!));
  assert.equal(finite(standalone), 'c487ccb3208e0ad603a280dd5b17a28910f9487929a0ba9bdfb1f782b3722b32');
  assert.equal(finite(fused), '6d8c7069994a4298cd6aaf5e4ab8ef5464176df027e072082314de5ec6e7bd6b');
});

test('the half table has the hash of the model table', () => {
  assert.equal(finiteF16.length, 63488);
  assert.equal(sha256(half), 'd0182a278b9ee4377456cba8caf5704ec41306b1442343bb6543173c34e7e76e');
  assert.equal(
    sha256(finiteF16.map((bits) => half[bits]!)),
    'cc30193c5b8de84aea594ff673700d86a0ff5e5b6e9a6d1fff4094f10f1c76e1',
  );
});

test('the two lowerings differ at -6.84375 alone', () => {
  const differing = allBits.filter((bits) => standalone[bits] !== fused[bits]);
  assert.deepEqual(differing, [0xc0db]);
  assert.equal(standalone[0xc0db], 0x3a8b);
  assert.equal(fused[0xc0db], 0x3a8c);
  const outputs = [0x3e9a, 0x3f80, 0xbf80, 0x4000, 0x3dcd, 0xc2c8];
  const product = (table: Uint16Array, output: number): number =>
    toBf16Bits(fromBf16Bits(output) * fromBf16Bits(table[0xc0db]!));
  assert.deepEqual(
    outputs.map((output) => product(standalone, output)),
    [0x39a7, 0x3a8b, 0xba8b, 0x3b0b, 0x38df, 0xbdd9],
  );
  assert.deepEqual(
    outputs.map((output) => product(fused, output)),
    [0x39a8, 0x3a8c, 0xba8c, 0x3b0c, 0x38e0, 0xbddb],
  );
});

test('gates that expose a float32 sigmoid rounded once', () => {
  const law: Record<number, number> = {
    0x3f00: 0x3f20,
    0xbdcd: 0x3ef5,
    0xc000: 0x3df5,
    0xbee6: 0x3ec8,
    0xc080: 0x3c94,
    0xbfb3: 0x3e4a,
    0xc120: 0x383f,
    0xc0b1: 0x3b82,
    0xc1f0: 0x29d2,
    0x3c9f: 0x3f02,
    0x3ca3: 0x3f02,
    0x3c01: 0x3f00,
    0x403e: 0x3f74,
  };
  for (const [bits, expected] of Object.entries(law)) {
    assert.equal(standalone[Number(bits)], expected);
    assert.equal(fused[Number(bits)], expected);
  }
  const wrong = (bits: number): number => {
    const y = gateF32(fromBf16Bits(bits), 'standalone');
    return toBf16Bits(y < 2 ** -126 ? 0 : y); // with the flush to zero, so that the rounding alone is compared
  };
  assert.equal(finiteBf16.filter((bits) => wrong(bits) !== standalone[bits]).length, 1089);
});

test('edges of the bfloat16 law: saturation, flush to zero, infinities, NaN', () => {
  for (const table of [standalone, fused]) {
    assert.equal(table[0x40c8], 0x3f80);
    assert.notEqual(table[0x40c7], 0x3f80);
    assert.equal(table[toBf16Bits(-87)], 0x00b3);
    assert.equal(table[toBf16Bits(-87.5)], 0);
    assert.equal(table[0x7f80], 0x3f80);
    assert.equal(table[0xff80], 0);
    assert.equal(table[0x7fc0], 0x7fc0);
    assert.equal(table[0x8000], 0x3f00);
  }
});

test('float32 gates: the correctly rounded bits of both lowerings', () => {
  const rows: [number, number, number][] = [
    [-6.84375, 0x3a8b9638, 0x3a8b963b],
    [-20, 0x310da433, 0x310da432],
    [-3, 0x3d4241a2, 0x3d4241a3],
    [-30, 0x29d2b707, 0x29d2b717],
    [-10, 0x383e6998, 0x383e6997],
  ];
  for (const [x, plain, fast] of rows) {
    assert.equal(f32Bits(gateF32(x, 'standalone')), plain);
    assert.equal(f32Bits(gateF32(x, 'fused')), fast);
  }
  for (const x of [0.5, -0.5, 1, -1, 0, 10]) assert.equal(gateF32(x, 'standalone'), gateF32(x, 'fused'));
});

test('float32 gates: lowerings differ at about a third of -30 … 30 and stay within their error bounds', () => {
  const points = Array.from({ length: 65536 }, (_, i) => Math.fround(-30 + (60 * i) / 65535));
  let differing = 0;
  for (const x of points) {
    const truth = 1 / (1 + Math.exp(-x));
    const plain = gateF32(x, 'standalone');
    const fast = gateF32(x, 'fused');
    if (plain !== fast) differing++;
    assert.ok(Math.abs(plain / truth - 1) < 2e-7, `standalone ${x}`);
    assert.ok(Math.abs(fast / truth - 1) < 2e-6, `fused ${x}`);
  }
  assert.ok(differing > 0.2 * points.length && differing < 0.5 * points.length, `${differing} differ`);
});
