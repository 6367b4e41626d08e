import assert from 'node:assert/strict';
import { mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../../test/support/repository.js';
import { writeJson } from '../../test/support/write-checkpoint.js';
import { encodeSafetensors, floatBytes, int64Bytes, type TensorData } from '../../test/support/write-safetensors.js';
import { openCheckpoint } from './checkpoint.js';
import { SafetensorsFile } from './safetensors.js';

function floats(name: string, shape: number[], from = 0, dtype: 'BF16' | 'F16' | 'F32' = 'BF16'): TensorData {
  const count = shape.reduce((a, b) => a * b, 1);
  return {
    name,
    dtype,
    shape,
    bytes: floatBytes(
      dtype,
      Array.from({ length: count }, (_, i) => from + i),
    ),
  };
}

const ids: TensorData = { name: 'ids', dtype: 'I64', shape: [2], bytes: int64Bytes([-1n, 2n ** 62n]) };

test('a single file: names, places, shapes, exact values', (t) => {
  const dir = temporaryFolder(t, 'checkpoint');
  writeFileSync(
    join(dir, 'model.safetensors'),
    encodeSafetensors([floats('a', [2, 3]), ids, floats('b', [], 7, 'F32')], { format: 'pt' }),
  );
  const checkpoint = openCheckpoint(dir);
  t.after(() => checkpoint.close());
  assert.deepEqual([...checkpoint.names()], ['a', 'ids', 'b']);
  assert.deepEqual(checkpoint.get('a').shape, [2, 3]);
  assert.equal(checkpoint.get('ids').byteOffset, checkpoint.get('a').byteOffset + 12);
  assert.deepEqual(checkpoint.readFloat32('a'), Float32Array.of(0, 1, 2, 3, 4, 5));
  assert.deepEqual(checkpoint.readFloat32('b'), Float32Array.of(7));
  assert.deepEqual(checkpoint.readBigInt64('ids'), BigInt64Array.of(-1n, 2n ** 62n));
  assert.throws(() => checkpoint.readFloat32('ids'), { code: 'tensor_mismatch', message: /"ids" is I64/ });
  assert.throws(() => checkpoint.readBigInt64('a'), { code: 'tensor_mismatch' });
  assert.throws(() => checkpoint.get('c'), { code: 'tensor_missing', message: /"c"/ });
  assert.deepEqual([...(checkpoint.files[0]?.metadata ?? [])], [['format', 'pt']]);
});

test('tensors load off the event loop, whole, and stop on a signal', async (t) => {
  const dir = temporaryFolder(t, 'checkpoint');
  const tensor = floats('a', [3000]);
  writeFileSync(join(dir, 'model.safetensors'), encodeSafetensors([floats('lead', [1]), tensor]));
  const checkpoint = openCheckpoint(dir);
  t.after(() => checkpoint.close());
  const bytes = new Uint8Array(6000);
  await checkpoint.load('a', bytes);
  assert.deepEqual(bytes, tensor.bytes);
  await assert.rejects(checkpoint.load('a', bytes, AbortSignal.abort()), { code: 'request_cancelled' });
  await assert.rejects(checkpoint.load('a', new Uint8Array(5)), { code: 'internal_error' });
});

test('shards: a tensor is served from the shard that the index names, the rest is reported', (t) => {
  const dir = temporaryFolder(t, 'checkpoint');
  writeFileSync(join(dir, 'one.safetensors'), encodeSafetensors([floats('a', [2], 10), floats('b', [2], 20)]));
  writeFileSync(join(dir, 'two.safetensors'), encodeSafetensors([floats('b', [2], 30), floats('c', [2], 40)]));
  writeFileSync(join(dir, 'other.safetensors'), encodeSafetensors([floats('d', [2], 50)]));
  writeJson(dir, 'model.safetensors.index.json', { weight_map: { a: 'one.safetensors', b: 'two.safetensors' } });
  const checkpoint = openCheckpoint(dir);
  t.after(() => checkpoint.close());
  assert.deepEqual([...checkpoint.names()], ['a', 'b']);
  assert.deepEqual(checkpoint.readFloat32('b'), Float32Array.of(30, 31));
  assert.deepEqual(
    checkpoint.unmappedTensors.map(({ name, file }) => [name, file]),
    [
      ['b', join(dir, 'one.safetensors')],
      ['c', join(dir, 'two.safetensors')],
    ],
  );
  assert.deepEqual(checkpoint.unusedFiles, ['other.safetensors']);

  const extended = openCheckpoint(dir, { extraFiles: ['other.safetensors'] });
  t.after(() => extended.close());
  assert.deepEqual(extended.readFloat32('d'), Float32Array.of(50, 51));
  assert.deepEqual(extended.unusedFiles, []);
  for (const name of ['../one.safetensors', 'sub/x.safetensors', 'x.bin']) {
    assert.throws(() => openCheckpoint(dir, { extraFiles: [name] }), { code: 'checkpoint_unreadable' });
  }
});

test('an extra file may not bring a tensor that is there already', (t) => {
  const dir = temporaryFolder(t, 'checkpoint');
  writeFileSync(join(dir, 'model.safetensors'), encodeSafetensors([floats('a', [2])]));
  writeFileSync(join(dir, 'more.safetensors'), encodeSafetensors([floats('a', [2])]));
  assert.throws(() => openCheckpoint(dir, { extraFiles: ['more.safetensors'] }), {
    code: 'safetensors_invalid',
    message: /"a" is in both model\.safetensors and more\.safetensors/,
  });
});

test('files may be links, as in a download cache', (t) => {
  const dir = temporaryFolder(t, 'checkpoint');
  mkdirSync(join(dir, 'blobs'));
  mkdirSync(join(dir, 'snapshot'));
  writeFileSync(join(dir, 'blobs', 'f00'), encodeSafetensors([floats('a', [2])]));
  symlinkSync('../blobs/f00', join(dir, 'snapshot', 'model.safetensors'));
  const checkpoint = openCheckpoint(join(dir, 'snapshot'));
  assert.deepEqual(checkpoint.readFloat32('a'), Float32Array.of(0, 1));
  checkpoint.close();
});

test('an open checkpoint keeps reading the files that were checked; a closed one does not read', (t) => {
  const dir = temporaryFolder(t, 'checkpoint');
  const path = join(dir, 'model.safetensors');
  writeFileSync(path, encodeSafetensors([floats('a', [2])]));
  const checkpoint = openCheckpoint(dir);
  writeFileSync(join(dir, 'new'), encodeSafetensors([floats('a', [2], 99)]));
  renameSync(join(dir, 'new'), path);
  assert.deepEqual(checkpoint.readFloat32('a'), Float32Array.of(0, 1));
  checkpoint.close();
  checkpoint.close();
  assert.throws(() => checkpoint.readFloat32('a'), { code: 'internal_error' });
});

test('a file that shrinks after it was opened gives an error, not old bytes', (t) => {
  const dir = temporaryFolder(t, 'checkpoint');
  const path = join(dir, 'model.safetensors');
  const bytes = encodeSafetensors([floats('a', [2])]);
  writeFileSync(path, bytes);
  const file = SafetensorsFile.open(path);
  t.after(() => file.close());
  writeFileSync(path, bytes.subarray(0, bytes.length - 1));
  assert.throws(() => file.readFloat32('a'), {
    code: 'checkpoint_unreadable',
    message: /model\.safetensors ended at byte/,
  });
});

test('empty tensors, scalars and an empty file are in order', (t) => {
  const dir = temporaryFolder(t, 'checkpoint');
  const path = join(dir, 'model.safetensors');
  writeFileSync(path, encodeSafetensors([floats('none', [0, 5]), floats('one', []), floats('also', [3, 0])]));
  const file = SafetensorsFile.open(path);
  assert.equal(file.readFloat32('none').length, 0);
  assert.equal(file.readFloat32('one').length, 1);
  file.close();
  writeFileSync(path, encodeSafetensors([]));
  const empty = SafetensorsFile.open(path);
  assert.equal(empty.tensors.size, 0);
  empty.close();
});
