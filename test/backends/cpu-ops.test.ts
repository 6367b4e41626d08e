/**
 * The cpu backend gives the bits of the reference backend: on every op, every instruction set of this machine, one thread
 * and two, a sequence alone or among others.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { OPS, type OpName } from '../../src/engine/plan/ops.js';
import { aloneCase, partOf, ROW_OPS } from '../support/alone-case.js';
import { cpuAbsence, openCpuBackends } from '../support/cpu-backends.js';
import { assertSameOutputs, runOpCase } from '../support/op-case.js';
import { opCases } from '../support/op-cases.js';

describe('cpu ops', { skip: cpuAbsence() }, () => {
  const reference = new ReferenceBackend();
  const backends = openCpuBackends();
  after(() => Promise.all(backends.map(({ backend }) => backend.close())));

  for (const op of Object.keys(OPS) as OpName[]) {
    test(`cpu equals the reference bit for bit on every case of ${op}`, async () => {
      for (const given of opCases([op])) {
        const expected = await runOpCase(reference, given);
        for (const { name, backend } of backends) {
          assertSameOutputs(await runOpCase(backend, given), expected, `${given.name}, ${name}`);
          assert.equal(backend.memory().allocated, 0, given.name);
        }
      }
    });
  }

  for (const op of ROW_OPS) {
    test(`cpu computes a sequence of ${op} the same way alone and among others`, async () => {
      for (const given of opCases([op])) {
        if (given.sequences.length === 1) continue;
        for (const { name, backend } of backends.slice(-1)) {
          const together = await runOpCase(backend, given);
          for (const s of given.sequences.keys()) {
            const alone = aloneCase(given, s);
            assertSameOutputs(await runOpCase(backend, alone), partOf(given, together, s), `${alone.name}, ${name}`);
          }
        }
      }
    });
  }
});
