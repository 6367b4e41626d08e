/** Lifetimes, refusals and threads of the cpu backend: what JavaScript may do to it, and what it never lets happen. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import type { Backend } from '../../src/engine/backends/backend.js';
import {
  cpuBackendStatus,
  openCpuBackend,
  readBandwidth,
  type CpuBackendOptions,
} from '../../src/engine/backends/cpu/index.js';
import { cancelCall } from '../../src/engine/plan/call-block.js';
import { PlumblineError } from '../../src/errors.js';
import { cpuAbsence } from '../support/cpu-backends.js';
import { productChain as chain } from '../support/product-chain.js';

const failsWith =
  (code: string, message = /./) =>
  (error: unknown): boolean =>
    error instanceof PlumblineError && error.code === code && message.test(error.message);

function open(t: TestContext, options: CpuBackendOptions): Backend {
  const backend = openCpuBackend(options);
  t.after(() => backend.close());
  return backend;
}

function tempFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'plumbline-cpu-'));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

describe('cpu backend', { skip: cpuAbsence() }, () => {
  for (const threads of [1, 2, 5]) {
    test(`plans run to their end and all memory comes back, threads ${threads}`, async (t) => {
      const backend = open(t, { threads, sharedWork: 0 });
      assert.equal(backend.threads, threads);
      const work = chain(backend, 50);
      for (let i = 0; i < 20; i++) {
        work.output.fill(0);
        work.input.fill(i);
        assert.equal(await backend.execute(work.execution), 'done');
        assert.equal(work.opsDone(), 50);
        assert.ok(work.output.every((value) => value === i));
      }
      work.free();
      assert.deepEqual(backend.memory(), { allocated: 0, mapped: 0 });
    });

    test(`a running plan stops when its cancel word is set, threads ${threads}`, async (t) => {
      const backend = open(t, { threads });
      const long = chain(backend, 200_000);
      const running = backend.execute(long.execution);
      while (long.opsDone() < 3) await new Promise((resolve) => setTimeout(resolve, 1));
      cancelCall(long.execution.call);
      assert.equal(await running, 'cancelled');
      assert.ok(long.opsDone() < 200_000, `${long.opsDone()} ops`);
      const next = chain(backend, 3);
      assert.equal(await backend.execute(next.execution), 'done', 'the backend goes on');
      assert.ok(next.output.every((value) => value === 1.25));
    });

    test(`closing while plans run ends them as cancelled, and may be done twice, threads ${threads}`, async () => {
      const backend = openCpuBackend({ threads });
      const long = chain(backend, 200_000);
      const runs = [backend.execute(long.execution), backend.execute(chain(backend, 1).execution)];
      while (long.opsDone() < 1) await new Promise((resolve) => setTimeout(resolve, 1));
      await Promise.all([backend.close(), backend.close()]);
      assert.deepEqual(await Promise.all(runs), ['cancelled', 'cancelled']);
      await assert.rejects(backend.execute(long.execution), failsWith('backend_failed', /closed/));
      assert.throws(() => backend.allocate(1, 'a test'), failsWith('backend_failed', /closed/));
      assert.deepEqual(backend.memory(), { allocated: 0, mapped: 0 });
      long.free();
    });
  }

  test('a plan that is cancelled before it starts runs no op', async (t) => {
    const backend = open(t, { threads: 2 });
    const work = chain(backend, 5);
    cancelCall(work.execution.call);
    assert.equal(await backend.execute(work.execution), 'cancelled');
    assert.equal(work.opsDone(), 0);
  });

  test('plans run in the order of the calls, and the event loop stays free', async (t) => {
    const backend = open(t, { threads: 2 });
    const long = chain(backend, 20_000);
    const short = chain(backend, 1);
    const order: string[] = [];
    let turns = 0;
    const timer = setInterval(() => turns++, 1);
    await Promise.all([
      backend.execute(long.execution).then(() => order.push('long')),
      backend.execute(short.execution).then(() => order.push('short')),
    ]);
    clearInterval(timer);
    assert.deepEqual(order, ['long', 'short']);
    assert.ok(turns > 3, `${turns} turns`);
  });

  test('blocks are zeroed, aligned and counted, of any size', (t) => {
    const backend = open(t, { threads: 1 });
    for (const size of [0, 1, 63, 64, 65_535, 65_536, 100_000, 2 ** 21 - 1, 2 ** 21, 5_000_001]) {
      const block = backend.allocate(size, 'a test');
      assert.equal(block.address % 64, 0, `${size} bytes`);
      assert.equal(block.bytes.length, size);
      assert.ok(block.bytes.every((byte) => byte === 0));
      block.bytes.fill(7);
      assert.equal(backend.memory().allocated, size);
      block.free();
      assert.equal(block.bytes.length, 0, 'freed bytes are out of reach');
      block.free();
      assert.equal(backend.memory().allocated, 0);
    }
  });

  test('memory that cannot be had is out_of_memory with the figures', (t) => {
    const backend = open(t, { threads: 1 });
    for (const size of [2 ** 32, 2 ** 45, 2 ** 52]) {
      assert.throws(() => backend.allocate(size, 'the moon'), failsWith('out_of_memory', /for the moon/));
    }
    for (const size of [-1, 0.5, Number.NaN]) {
      assert.throws(() => backend.allocate(size, 'a test'), failsWith('internal_error'));
    }
    assert.equal(backend.memory().allocated, 0);
  });

  test('weights, plans and workspaces that are freed while a plan uses them stay until it is done', async (t) => {
    const backend = open(t, { threads: 2 });
    const work = chain(backend, 5000);
    const kept = work.output.length;
    const running = backend.execute(work.execution);
    work.free();
    assert.equal(work.output.length, 0, `${kept} values are out of reach at once`);
    assert.equal(await running, 'done');
    const again = chain(backend, 3);
    again.weights.free();
    assert.equal(await backend.execute(again.execution), 'done', 'a loaded plan holds its weights');
    assert.ok(again.output.every((value) => value === 1.25));
    again.free();
    assert.equal(backend.memory().allocated, 0);
  });

  test('programs that are not valid are plan_invalid and name the op and field', (t) => {
    const backend = open(t, { threads: 1 });
    const work = chain(backend, 2);
    const { code, weightAddresses, weightDtypes } = work.execution.plan.program;
    const changed = (at: number, value: number): Int32Array => code.map((word, index) => (index === at ? value : word));
    const refused = (program: Partial<typeof work.execution.plan.program>, message: RegExp): void => {
      const whole = { code, weightAddresses, weightDtypes, ...program };
      assert.throws(() => backend.load(whole), failsWith('plan_invalid', message));
    };
    refused({ code: changed(0, 1) }, /magic/);
    refused({ code: changed(16, 99) }, /op 0 \(unknown\): code 99/);
    refused({ code: code.slice(0, 20) }, /op 0 \(linear\): its length/);
    refused({ code: code.slice(0, 17) }, /length/);
    refused({ code: new Int32Array(0) }, /header/);
    refused({ code: changed(20, 0) }, /inWidth = 0/);
    refused({ weightAddresses: Float64Array.of(2 ** 33) }, /weight = 0: .* memory of this backend/);
    refused({ weightAddresses: weightAddresses.map((address) => address + 4) }, /elements do not lie/);
    refused({ weightDtypes: Int32Array.of(3) }, /dtype/);
    refused({ weightAddresses: Float64Array.of() }, /one dtype for each address/);
  });

  test('an execution that does not fit its plan is refused, and the backend goes on', async (t) => {
    const backend = open(t, { threads: 1 });
    const other = open(t, { threads: 1 });
    const work = chain(backend, 2);
    const small = backend.allocate(64, 'a workspace that is too small');
    await assert.rejects(backend.execute({ ...work.execution, workspace: small }), failsWith('backend_failed'));
    await assert.rejects(
      backend.execute({ ...work.execution, call: small }),
      failsWith('backend_failed', /call block/),
    );
    await assert.rejects(other.execute(work.execution), failsWith('backend_failed'));
    assert.equal(await backend.execute(work.execution), 'done');
    work.execution.plan.free();
    work.execution.plan.free();
    await assert.rejects(backend.execute(work.execution), failsWith('backend_failed', /freed/));
  });

  test('a whole file is mapped, used as weights, and counted; what cannot be mapped says why', async (t) => {
    const backend = open(t, { threads: 1 });
    const folder = tempFolder(t);
    const path = join(folder, 'weights with späce');
    const width = 512;
    const twice = new Float32Array(width * width);
    for (let i = 0; i < width; i++) twice[i * width + i] = 2;
    writeFileSync(path, new Uint8Array(twice.buffer));
    const file = backend.mapFile!(path);
    assert.equal(file.byteLength, 4 * width * width);
    assert.equal(backend.memory().mapped, file.byteLength);
    const work = chain(backend, 3, file.address);
    rmSync(path); // the mapping keeps the contents
    file.close();
    file.close();
    assert.equal(backend.memory().mapped, 0);
    assert.equal(await backend.execute(work.execution), 'done', 'a loaded plan holds the mapping');
    assert.ok(work.output.every((value) => value === 10));
    writeFileSync(path, '');
    const map = (name: string): unknown => backend.mapFile!(name);
    assert.throws(() => map(path), failsWith('checkpoint_unreadable', /empty/));
    assert.throws(() => map(folder), failsWith('checkpoint_unreadable', /regular file/));
    assert.throws(() => map(join(folder, 'absent')), failsWith('checkpoint_unreadable', /No such file/));
  });

  test('threads must be a whole number of at least 1, and an instruction set must exist', () => {
    for (const threads of [0, -1, 1.5, Number.NaN, 100_000]) {
      assert.throws(() => openCpuBackend({ threads }), failsWith('invalid_option'));
    }
    assert.throws(() => openCpuBackend({ isa: 'mmx' }), failsWith('backend_unavailable', /'mmx'/));
  });

  test('the status names the instruction set that a backend opens with', (t) => {
    const status = cpuBackendStatus();
    assert.ok(status.available);
    assert.equal(open(t, {}).isa, status.isa);
    assert.ok(status.cores >= 1);
  });

  test('the bandwidth probe reads at a plausible rate', async () => {
    const { best, median, rounds } = await readBandwidth(64 * 2 ** 20, 1, 0.05);
    assert.ok(rounds >= 3 && best >= median && median > 1e8, `${best} ${median} ${rounds}`);
    await assert.rejects(readBandwidth(2 ** 50, 1, 0.05), failsWith('out_of_memory'));
    await assert.rejects(readBandwidth(2 ** 20, 0, 0.05), failsWith('invalid_option'));
  });
});
