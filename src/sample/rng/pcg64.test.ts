import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PlumblineError } from '../../errors.js';
import { Pcg64 } from './pcg64.js';

const hex = (generator: Pcg64): string => {
  const { high, low } = generator.nextUint64();
  return high.toString(16).padStart(8, '0') + low.toString(16).padStart(8, '0');
};

const VECTORS = [
  {
    seed: 0n,
    raw: ['a30febcfd9c2825f', '4510bdf882d9d721', '0a7d3da94ecde8b8'],
    doubles: [0.6369616873214543, 0.2697867137638703, 0.04097352393619469],
  },
  {
    seed: 7n,
    raw: ['a00641a9f1e54a8b', 'e5afcdbcaf266a95', 'c693565f940af962'],
    doubles: [0.625095466604667, 0.8972138009695755, 0.7756856902451935],
  },
  {
    seed: 1234n,
    raw: ['fa08fef3fab6bbba', '615481f7fce9ac81', 'ec59dd7c2bde3cb4'],
    doubles: [0.9766997666981422, 0.3801957350196178, 0.9232462337639554],
  },
];

test('the published vectors: raw outputs, doubles, and the state before the first draw', () => {
  for (const { seed, raw, doubles } of VECTORS) {
    const bits = new Pcg64(seed);
    assert.deepEqual(
      raw.map(() => hex(bits)),
      raw,
    );
    const unit = new Pcg64(seed);
    assert.deepEqual(
      doubles.map(() => unit.nextDouble()),
      doubles,
    );
  }
  const fresh = new Pcg64(7n);
  assert.equal(fresh.stateHex, '9d0aecc4e7b188919ae2415a6b292038');
  assert.equal(fresh.incrementHex, 'c4751896ce8acebf66887f5ac070d959');
});

test('the limb arithmetic is the 128-bit recurrence', () => {
  const mask = (1n << 128n) - 1n;
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 1n << 90n }), fc.integer({ min: 1, max: 40 }), (seed, steps) => {
      const generator = new Pcg64(seed);
      const increment = BigInt(`0x${generator.incrementHex}`);
      let state = BigInt(`0x${generator.stateHex}`);
      for (let i = 0; i < steps; i++) {
        state = (state * 0x2360ed051fc65da44385df649fccf645n + increment) & mask;
        const folded = (state >> 64n) ^ (state & 0xffffffffffffffffn);
        const rotation = state >> 122n;
        const rotated = ((folded >> rotation) | (folded << (64n - rotation))) & 0xffffffffffffffffn;
        assert.equal(hex(generator), rotated.toString(16).padStart(16, '0'));
      }
      assert.equal(BigInt(`0x${generator.stateHex}`), state);
    }),
    { numRuns: 200 },
  );
});

test('seeds that differ only above 32, 64 or 128 bits give different streams', () => {
  const seeds = [1n, 1n + (1n << 32n), 1n + (1n << 64n), 1n + (1n << 128n)];
  assert.equal(new Set(seeds.map((seed) => new Pcg64(seed).stateHex)).size, seeds.length);
});

test('a negative seed is refused', () => {
  assert.throws(
    () => new Pcg64(-1n),
    (thrown) => thrown instanceof PlumblineError && thrown.code === 'invalid_request' && thrown.param === 'seed',
  );
});
