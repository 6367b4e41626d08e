/**
 * Shared-row attention and pooling on the cpu backend in shapes that reach every path of their kernels, judged by the
 * reference on every instruction set and with one thread and two.
 */
import { after, describe, test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { cpuAbsence, openCpuBackends } from '../support/cpu-backends.js';
import { farCase, latentShapeCases } from '../support/latent-shapes.js';
import { assertSameOutputs, runOpCase, type OpCase } from '../support/op-case.js';

describe('cpu shared-row attention', { skip: cpuAbsence() }, () => {
  const reference = new ReferenceBackend();
  const backends = openCpuBackends();
  after(() => Promise.all(backends.map(({ backend }) => backend.close())));

  async function judge(given: OpCase): Promise<void> {
    const expected = await runOpCase(reference, given);
    for (const { name, backend } of backends) {
      assertSameOutputs(await runOpCase(backend, given), expected, `${given.name}, ${name}`);
    }
  }

  for (const given of latentShapeCases()) test(`${given.name} equals the reference`, () => judge(given));

  test('keys beyond the context that a unit is sized for give the bits of the reference', () => judge(farCase()));
});
