import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { NonFiniteLogitsError, PlumblineError } from '../../../errors.js';
import type { RowContext } from '../../validity.js';
import { acceptProbability, residual } from './acceptance.js';
import { Distribution } from './distribution.js';

const CONTEXT: RowContext = { site: 'verify', phase: 'verify', step: 0 };
const sparse = (ids: number[], probs: number[]): Distribution =>
  Distribution.sparse(Int32Array.from(ids), Float64Array.from(probs), CONTEXT);

const distribution = fc.uniqueArray(fc.integer({ min: 0, max: 9 }), { minLength: 1, maxLength: 8 }).chain((ids) =>
  fc
    .array(fc.double({ min: 0.001, max: 1, noNaN: true }), { minLength: ids.length, maxLength: ids.length })
    .map((probs) =>
      sparse(
        ids.sort((a, b) => a - b),
        probs,
      ),
    ),
);

test('draft, accept or take the residual: the emitted token follows the target', () => {
  fc.assert(
    fc.property(distribution, distribution, fc.boolean(), (target, sparseDraft, dense) => {
      const draft = dense ? Distribution.dense(sparseDraft.ids, sparseDraft.probs, 10) : sparseDraft;
      const left = residual(target, draft, CONTEXT);
      const accepted = (id: number): number =>
        draft.probabilityOf(id) * acceptProbability(target.probabilityOf(id), draft.probabilityOf(id));
      let rejected = 1;
      for (const id of draft.ids) rejected -= accepted(id);
      for (let id = 0; id < 10; id++) {
        const emitted = accepted(id) + rejected * left.probabilityOf(id);
        assert.ok(Math.abs(emitted - target.probabilityOf(id)) < 1e-12);
      }
    }),
  );
});

test('a draft probability of zero is accepted exactly when the target has mass there', () => {
  assert.equal(acceptProbability(0.2, 0), 1);
  assert.equal(acceptProbability(0, 0), 0);
  assert.equal(acceptProbability(0.3, 0.6), 0.5);
  assert.equal(acceptProbability(0.6, 0.3), 1);
});

test('an empty residual is the target', () => {
  const target = sparse([1, 4], [0.25, 0.75]);
  assert.equal(residual(target, target, CONTEXT), target);
});

test('a distribution has no silent fallback', () => {
  const code = (expected: string) => (thrown: unknown) => thrown instanceof PlumblineError && thrown.code === expected;
  assert.throws(() => sparse([], []), code('invalid_distribution'));
  assert.throws(() => sparse([1], [0.5, 0.5]), code('invalid_distribution'));
  assert.throws(() => sparse([1, 2], [0.5, -0.5]), code('invalid_distribution'));
  assert.throws(() => sparse([1, 2], [0, 0]), NonFiniteLogitsError);
  assert.throws(() => sparse([1, 2], [1.7e308, 1.7e308]), NonFiniteLogitsError);
  assert.throws(
    () => sparse([1, 2], [Number.NaN, -Infinity]),
    (thrown) => thrown instanceof NonFiniteLogitsError && thrown.census.nanCount === 1 && thrown.census.infCount === 1,
  );
  assert.deepEqual(Array.from(sparse([1, 2], [Number.NaN, 3]).probs), [0, 1]);
});
