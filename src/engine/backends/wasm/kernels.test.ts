import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { compileKernels, kernelMemory, Kernels } from './kernels.js';

const DATA_SECTION = 11;

/** Ids of the sections of a WebAssembly binary. */
function sections(bytes: Uint8Array): number[] {
  const ids: number[] = [];
  for (let at = 8; at < bytes.length; ) {
    ids.push(bytes[at++]!);
    let size = 0;
    for (let shift = 0, more = true; more; shift += 7, at++) {
      size += (bytes[at]! & 0x7f) * 2 ** shift;
      more = bytes[at]! >= 0x80;
    }
    at += size;
  }
  return ids;
}

test('the kernels bring no data, so that a second instance on a memory disturbs nothing', async () => {
  const bytes = await readFile(new URL('../../../../wasm/kernels.wasm', import.meta.url));
  assert.ok(!sections(bytes).includes(DATA_SECTION));
  const memory = kernelMemory();
  new Uint8Array(memory.buffer).fill(0xa5);
  new Kernels(await compileKernels(), memory);
  assert.ok(new Uint8Array(memory.buffer).every((byte) => byte === 0xa5));
});

test('spinning for longer takes more looks, and never none', async () => {
  const kernels = new Kernels(await compileKernels(), kernelMemory());
  const [short, long] = [kernels.looksFor(0.001), kernels.looksFor(1000)];
  assert.ok(short >= 1);
  assert.ok(long > 100 * short, `${short} and ${long} looks`);
  assert.ok(kernels.reserved >= 64 && kernels.reserved % 64 === 0);
});
