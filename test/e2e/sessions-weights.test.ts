/** States on a disk belong to every byte of the weights that they were computed with. */
import assert from 'node:assert/strict';
import { closeSync, cpSync, openSync, readFileSync, readSync, statSync, utimesSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ContainedServer } from '../support/contained-server.js';
import { EMBEDDED_MODEL, temporaryFolder } from '../support/repository.js';

/** One bit in the middle of the largest tensor, the times of the file put back. */
function flipWeight(path: string): void {
  const { atime, mtime } = statSync(path);
  const fd = openSync(path, 'r+');
  const length = Buffer.alloc(8);
  readSync(fd, length, 0, 8, 0);
  const header = Buffer.alloc(Number(length.readBigUInt64LE()));
  readSync(fd, header, 0, header.length, 8);
  const tensors = Object.values(JSON.parse(header.toString()) as Record<string, { data_offsets?: [number, number] }>);
  const sizes = tensors.flatMap(({ data_offsets: place }) => (place ? [place] : []));
  const [from, to] = sizes.reduce((a, b) => (b[1] - b[0] > a[1] - a[0] ? b : a));
  const at = 8 + header.length + from + Math.floor((to - from) / 3);
  const byte = Buffer.alloc(1);
  readSync(fd, byte, 0, 1, at);
  byte[0]! ^= 1;
  writeSync(fd, byte, 0, 1, at);
  closeSync(fd);
  utimesSync(path, atime, mtime);
}

test('one bit of a weight that was edited in place: no state of before matches, and the reason is told', async (t) => {
  const model = join(temporaryFolder(t, 'weights'), 'model');
  cpSync(EMBEDDED_MODEL, model, { recursive: true });
  const folder = temporaryFolder(t, 'weights');
  const open = async (): Promise<ContainedServer> => {
    const server = await ContainedServer.open({ model: `plumbline-tiny=${model}`, sessionRamMib: 0 }, folder);
    t.after(() => server.close());
    return server;
  };
  const asked = [{ role: 'user' as const, content: 'What does fs.readFile do?' }];
  const first = await open();
  const { text } = await first.ask(undefined, asked, { max_tokens: 4 });
  await first.close();
  const next = [
    ...asked,
    { role: 'assistant' as const, content: text },
    { role: 'user' as const, content: 'And stat?' },
  ];

  const same = await open();
  const warm = await same.ask(undefined, next, { max_tokens: 1 });
  assert.deepEqual([warm.session?.restore, warm.session?.from], ['restored', 'disk']);
  await same.close();

  flipWeight(join(model, 'model.safetensors'));
  const edited = await open();
  const cold = await edited.ask(undefined, next, { max_tokens: 1 });
  assert.deepEqual([cold.cached, cold.session?.reason], [0, 'stamp_mismatch']);
  await edited.close();
  assert.ok(readFileSync(join(folder, 'plumbline-sessions')).length === 0, 'and the folder is still one');
});
