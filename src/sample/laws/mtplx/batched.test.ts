import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NonFiniteLogitsError } from '../../../errors.js';
import { Pcg64 } from '../../rng/pcg64.js';
import { checkRow, type RowContext } from '../../validity.js';
import { LazyRows, PaddedRows } from './batched.js';
import { HostShaper } from './host-distribution.js';

const FILTERS = { temperature: 1, topP: 0.95, topK: 2 };
const contextOf = (step: number): RowContext => ({ site: 'verify', phase: 'verify', step });
const good = Float32Array.of(1, 2, 3, 0);
const bad = Float32Array.of(1, Number.NaN, 3, 0);

/** A window valid, valid, bad, valid. */
const window = (): LazyRows =>
  new LazyRows((i) => checkRow([good, good, bad, good][i]!, contextOf(i)), new HostShaper(4), FILTERS, contextOf);

test('a bad row raises when it is reached, not before, and not behind the rejection', () => {
  const rows = window();
  assert.deepEqual(Array.from(rows.at(0).ids), [1, 2]);
  assert.deepEqual(Array.from(rows.at(1).ids), [1, 2]);
  for (let again = 0; again < 2; again++) {
    assert.throws(
      () => rows.at(2),
      (thrown) => thrown instanceof NonFiniteLogitsError && thrown.census.step === 2 && thrown.census.nanCount === 1,
    );
  }
  assert.deepEqual(Array.from(rows.at(3).ids), [1, 2]);
});

test('a row does not depend on which rows were read before it', () => {
  const alone = new HostShaper(4).shape(checkRow(good, contextOf(3)), FILTERS, contextOf(3));
  const rows = window();
  rows.at(0);
  assert.deepEqual(rows.at(3), alone);
  assert.equal(rows.at(3), rows.at(3));
});

test('padded rows never give their padding', () => {
  const rows = PaddedRows.of([window().at(0), window().at(1)], 6, contextOf(0));
  assert.deepEqual(Array.from(rows.ids[0]!), [1, 2, -1, -1, -1, -1]);
  const random = new Pcg64(5n);
  for (let i = 0; i < 500; i++) assert.ok([1, 2].includes(rows.draw(i % 2, random)));
});
