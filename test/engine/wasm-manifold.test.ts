/**
 * Hyper-connections, per-channel decays, grouped maps and scored routing on the wasm backend in shapes that reach every path
 * of their kernels, judged by the reference under float law `mul-add`, with one thread and with two that share even the
 * smallest op.
 */
import { after, before, test } from 'node:test';
import type { Backend } from '../../src/engine/backends/backend.js';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { openWasmBackend } from '../../src/engine/backends/wasm/wasm-backend.js';
import { manifoldShapeCases } from '../support/manifold-shapes.js';
import { assertSameOutputs, runOpCase } from '../support/op-case.js';

const reference = new ReferenceBackend({ floatLaw: 'mul-add' });
const backends: Backend[] = [];

before(async () => {
  for (const threads of [1, 2]) backends.push(await openWasmBackend({ threads, sharedWork: 0 }));
});
after(() => Promise.all(backends.map((backend) => backend.close())));

for (const given of manifoldShapeCases()) {
  test(`${given.name} equals the reference`, async () => {
    const expected = await runOpCase(reference, given);
    for (const backend of backends) {
      assertSameOutputs(await runOpCase(backend, given), expected, `${given.name}, ${backend.threads} threads`);
    }
  });
}
