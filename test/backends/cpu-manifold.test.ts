/**
 * Hyper-connections, per-channel decays, grouped maps and scored routing on the cpu backend in shapes that reach every path
 * of their kernels, judged by the reference on every instruction set and with one thread and two.
 */
import { after, describe, test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { cpuAbsence, openCpuBackends } from '../support/cpu-backends.js';
import { manifoldShapeCases } from '../support/manifold-shapes.js';
import { assertSameOutputs, runOpCase } from '../support/op-case.js';

describe('cpu hyper-connections and their models', { skip: cpuAbsence() }, () => {
  const reference = new ReferenceBackend();
  const backends = openCpuBackends();
  after(() => Promise.all(backends.map(({ backend }) => backend.close())));

  for (const given of manifoldShapeCases()) {
    test(`${given.name} equals the reference`, async () => {
      const expected = await runOpCase(reference, given);
      for (const { name, backend } of backends) {
        assertSameOutputs(await runOpCase(backend, given), expected, `${given.name}, ${name}`);
      }
    });
  }
});
