import { after, describe, test } from 'node:test';
import type { Backend } from '../../src/engine/backends/backend.js';
import { loadAddon } from '../../src/engine/backends/cpu/addon.js';
import { openCpuBackend } from '../../src/engine/backends/cpu/index.js';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { OPS, type OpName } from '../../src/engine/plan/ops.js';
import { assertSameOutputs, runOpCase } from '../support/op-case.js';
import { opCases } from '../support/op-cases.js';

const found = loadAddon();

/** Every instruction set of this machine with one thread, and the best one with two. */
function openAll(): Map<string, Backend> {
  if (found.kind === 'missing') return new Map();
  const names = ['avx512', 'avx2', 'neon', 'generic'].filter((isa) => found.addon.resolveIsa(isa) !== null);
  const backends = names.map((isa): [string, Backend] => [`${isa}, 1 thread`, openCpuBackend({ threads: 1, isa })]);
  return new Map([...backends, [`${names[0]}, 2 threads`, openCpuBackend({ threads: 2, isa: names[0] })]]);
}

describe('cpu ops', { skip: found.kind === 'missing' ? found.reason : false }, () => {
  const reference = new ReferenceBackend();
  const backends = openAll();
  after(async () => {
    for (const backend of backends.values()) await backend.close();
  });

  for (const op of Object.keys(OPS) as OpName[]) {
    test(`${op}: every instruction set and thread count gives the bits of the reference`, async () => {
      for (const given of opCases([op])) {
        const expected = await runOpCase(reference, given);
        for (const [label, backend] of backends) {
          assertSameOutputs(await runOpCase(backend, given), expected, `${given.name}, ${label}`);
        }
      }
    });
  }
});
