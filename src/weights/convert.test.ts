import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toFloat32 } from './convert.js';

/** The value of a float16 by its definition. */
function halfValue(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const mantissa = bits & 1023;
  if (exponent === 31) return mantissa ? NaN : sign * Infinity;
  return exponent === 0 ? sign * mantissa * 2 ** -24 : sign * (1 + mantissa / 1024) * 2 ** (exponent - 15);
}

const ALL_HALVES = Uint16Array.from({ length: 65536 }, (_, i) => i);

function convert(dtype: 'F16' | 'BF16', bytes: Uint8Array): Float32Array {
  const out = new Float32Array(65536);
  toFloat32(dtype, bytes, out);
  return out;
}

test('all 65,536 float16 patterns convert to their exact value', () => {
  const out = convert('F16', new Uint8Array(ALL_HALVES.buffer));
  for (let i = 0; i < 65536; i++) assert.ok(Object.is(out[i], halfValue(i)), `pattern ${i}: ${out[i]}`);
});

test('all 65,536 bfloat16 patterns are the upper half of a float32', () => {
  const out = new Uint32Array(convert('BF16', new Uint8Array(ALL_HALVES.buffer)).buffer);
  for (let i = 0; i < 65536; i++) assert.equal(out[i], (i << 16) >>> 0);
});

test('float32 keeps its bits, NaN payloads included', () => {
  const bits = Uint32Array.of(0x7fc00001, 0xffa00002, 0x80000000, 0x00000001);
  const out = new Float32Array(4);
  toFloat32('F32', new Uint8Array(bits.buffer), out);
  assert.deepEqual(new Uint32Array(out.buffer), bits);
});

test('bytes may begin anywhere', () => {
  for (const dtype of ['F16', 'BF16'] as const) {
    const shifted = new Uint8Array(1 + 2 * 65536);
    shifted.set(new Uint8Array(ALL_HALVES.buffer), 1);
    assert.deepEqual(convert(dtype, shifted.subarray(1)), convert(dtype, new Uint8Array(ALL_HALVES.buffer)));
  }
});
