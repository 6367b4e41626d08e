import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { OPS, type OpName } from '../../src/engine/plan/ops.js';
import { runOpCase } from '../support/op-case.js';
import { opCases } from '../support/op-cases.js';

for (const op of Object.keys(OPS) as OpName[]) {
  test(`the reference backend runs every case of ${op}, writes nothing else, and frees all memory`, async () => {
    const backend = new ReferenceBackend();
    for (const given of opCases([op])) await runOpCase(backend, given);
    assert.equal(backend.memory().allocated, 0);
  });
}
