import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { NonFiniteLogitsError, PlumblineError } from '../errors.js';
import { censusOf, checkRow, inspectRow, type RowContext } from './validity.js';

const CONTEXT: RowContext = { site: 'ar_step', phase: 'decode', step: 3 };

test('valid means: no NaN, no +inf, something finite', () => {
  const value = fc.oneof(fc.constantFrom(Number.NaN, Infinity, -Infinity, 0, -0), fc.float({ noNaN: true }));
  fc.assert(
    fc.property(fc.array(value, { minLength: 1, maxLength: 40 }), (values) => {
      const row = Float32Array.from(values);
      const entries = Array.from(row);
      const valid = !entries.some((x) => Number.isNaN(x) || x === Infinity) && entries.some(Number.isFinite);
      const verdict = inspectRow(row);
      assert.equal(verdict.valid, valid);
      if (verdict.valid) {
        assert.ok(verdict.max === Math.max(...entries)); // -0 equals 0 here
        assert.equal(
          verdict.argmax,
          entries.findIndex((x) => x === verdict.max),
        );
      } else {
        assert.deepEqual(verdict.census, {
          nanCount: entries.filter(Number.isNaN).length,
          infCount: entries.filter((x) => Math.abs(x) === Infinity).length,
          vocabSize: entries.length,
        });
      }
    }),
    { numRuns: 1000 },
  );
});

test('a NaN is seen wherever it stands, also behind the maximum', () => {
  for (let at = 0; at < 64; at++) {
    const row = Float32Array.from({ length: 64 }, (_, i) => 64 - i);
    row[at] = Number.NaN;
    assert.equal(inspectRow(row).valid, false, `NaN at ${at}`);
  }
});

test('the error says where and what', () => {
  const row = Float32Array.of(Number.NaN, Infinity, -Infinity, 1);
  assert.throws(
    () => checkRow(row, CONTEXT),
    (thrown) => {
      assert.ok(thrown instanceof NonFiniteLogitsError);
      assert.deepEqual(thrown.census, { ...CONTEXT, nanCount: 1, infCount: 2, vocabSize: 4 });
      return true;
    },
  );
  assert.throws(() => checkRow(new Float32Array(0), CONTEXT), NonFiniteLogitsError);
});

test('a token is made of ids that the row allows, and of no other', () => {
  const valid = checkRow(Float32Array.of(-Infinity, 2, 1), CONTEXT);
  assert.equal(valid.token(1), 1);
  for (const id of [0, 3, -1, 0.5, Number.NaN]) {
    assert.throws(
      () => valid.token(id),
      (thrown) => thrown instanceof PlumblineError && thrown.code === 'internal_error',
    );
  }
});

test('the census of a float64 row counts the same', () => {
  assert.deepEqual(censusOf(Float64Array.of(Number.NaN, -Infinity)), { nanCount: 1, infCount: 1, vocabSize: 2 });
});
