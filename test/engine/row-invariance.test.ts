/** A row's bits do not depend on its company: every op on one sequence alone and among others, on the reference. */
import { test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { aloneCase, partOf, ROW_OPS } from '../support/alone-case.js';
import { assertSameOutputs, runOpCase } from '../support/op-case.js';
import { opCases } from '../support/op-cases.js';

for (const op of ROW_OPS) {
  test(`${op} computes a sequence the same way alone and among others`, async () => {
    const backend = new ReferenceBackend();
    for (const given of opCases([op])) {
      if (given.sequences.length === 1) continue;
      const together = await runOpCase(backend, given);
      for (const s of given.sequences.keys()) {
        const alone = aloneCase(given, s);
        assertSameOutputs(await runOpCase(backend, alone), partOf(given, together, s), alone.name);
      }
    }
  });
}
