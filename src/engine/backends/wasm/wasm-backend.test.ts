import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { PlumblineError } from '../../../errors.js';
import { callBlockBytes, callSizes, cancelCall, fillCallBlock } from '../../plan/call-block.js';
import { PlanBuilder } from '../../plan/builder.js';
import { CALL_HEADER } from '../../plan/ops.js';
import { WeightTable } from '../../plan/weight-table.js';
import type { Backend, Execution, MemoryBlock } from '../backend.js';
import { openWasmBackend } from './wasm-backend.js';

const WIDTH = 512;
/** Above any memory that these tests allocate. */
const BEYOND = 2 ** 32 - 4096;
const OPS_DONE = CALL_HEADER.indexOf('opsDone');

const failsWith = (code: string) => (error: unknown): boolean => error instanceof PlumblineError && error.code === code; // prettier-ignore

async function open(t: TestContext, threads: number): Promise<Backend> {
  const backend = await openWasmBackend({ threads });
  t.after(() => backend.close());
  return backend;
}

interface Chain {
  readonly execution: Execution;
  readonly input: Float32Array;
  readonly output: Float32Array;
  readonly opsDone: () => number;
  readonly free: () => void;
}

interface ChainOptions {
  /** Where the weights are, if not where they should be. */
  readonly weightAddress?: number;
  /** Outputs that are computed; 64 or fewer are one unit of work. */
  readonly outs?: number;
  /** Puts a small op, which doubles its input in place, before every product. */
  readonly doubling?: boolean;
}

/** A plan of `length` products with the identity, back and forth between two buffers of 8 rows. */
function chain(backend: Backend, length: number, options: ChainOptions = {}): Chain {
  const { weightAddress, outs = WIDTH, doubling = false } = options;
  const blocks: MemoryBlock[] = [];
  const allocate = (bytes: number): MemoryBlock => {
    const block = backend.allocate(bytes, 'a test');
    blocks.push(block);
    return block;
  };
  const identity = allocate(4 * WIDTH * WIDTH);
  const values = new Float32Array(identity.bytes.buffer, identity.address, WIDTH * WIDTH);
  for (let i = 0; i < WIDTH; i++) values[i * WIDTH + i] = 1;
  const table = new WeightTable();
  const weight = table.add('identity', weightAddress ?? identity.address, 'F32');
  table.commit(backend);
  const builder = new PlanBuilder(
    { law: { name: 'f32', act: 0, mtplx: 0, kvType: 0 }, pageTokens: 16, rowCapacity: 8, outCapacity: 0, standaloneTable: -1, fusedTable: -1 }, // prettier-ignore
    table,
  );
  const buffers = [builder.buffer('a', WIDTH), builder.buffer('b', WIDTH)] as const;
  for (let i = 0; i < length; i++) {
    const [from, to] = i % 2 === 0 ? buffers : ([buffers[1], buffers[0]] as const);
    const at = from.offset;
    if (doubling) builder.op('add', { rows: 0, a: at, b: at, out: at, width: WIDTH });
    builder.linear('R', from, WIDTH, [{ weight, out: to, outs }]);
  }
  const plan = backend.load(builder.finish().program);
  const workspace = allocate(4 * builder.workspaceWords);
  const rows = [{ tokens: Array<number>(8).fill(0), startPosition: 0, fixedIn: 0, fixedOut: 0, pages: [], outRows: [] }];
  const call = allocate(callBlockBytes(callSizes(rows)));
  fillCallBlock(call, rows);
  const view = (buffer: { readonly offset: number }): Float32Array =>
    new Float32Array(workspace.bytes.buffer, workspace.address + 4 * buffer.offset, 8 * WIDTH);
  const input = view(buffers[0]).fill(1.25);
  return {
    execution: { plan, workspace, call },
    input,
    output: view(buffers[length % 2 === 0 ? 0 : 1]),
    opsDone: () => new Int32Array(call.bytes.buffer, call.address, 16)[OPS_DONE]!,
    free: () => {
      plan.free();
      table.free();
      for (const block of blocks) block.free();
    },
  };
}

for (const threads of [1, 2, 3]) {
  test(`plans run to their end and all memory comes back, threads ${threads}`, async (t) => {
    const backend = await open(t, threads);
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

  test(`a running plan stops at the next op when its cancel word is set, threads ${threads}`, async (t) => {
    const backend = await open(t, threads);
    const long = chain(backend, 20_000);
    const run = backend.execute(long.execution);
    while (long.opsDone() < 3) await new Promise((resolve) => setTimeout(resolve, 1));
    cancelCall(long.execution.call);
    assert.equal(await run, 'cancelled');
    assert.ok(long.opsDone() >= 3 && long.opsDone() < 20_000, `${long.opsDone()} ops`);
    const next = chain(backend, 3);
    assert.equal(await backend.execute(next.execution), 'done', 'the backend goes on');
    assert.ok(next.output.every((value) => value === 1.25));
  });
}

test('a plan that is cancelled before it starts runs no op', async (t) => {
  const backend = await open(t, 2);
  const work = chain(backend, 5);
  cancelCall(work.execution.call);
  assert.equal(await backend.execute(work.execution), 'cancelled');
  assert.equal(work.opsDone(), 0);
});

test('plans run in the order of the calls, and the event loop stays free', async (t) => {
  const backend = await open(t, 2);
  const long = chain(backend, 2000);
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
  assert.ok(turns > 5, `${turns} turns`);
});

test('plans that share a weight table share its copy', async (t) => {
  const backend = await open(t, 1);
  const table = new WeightTable();
  for (let i = 0; i < 10_000; i++) table.add(`weight ${i}`, 4096, 'BF16');
  table.commit(backend);
  const before = backend.memory().allocated;
  const build = (): PlanBuilder =>
    new PlanBuilder({ law: { name: 'f32', act: 0, mtplx: 0, kvType: 0 }, pageTokens: 16, rowCapacity: 8, outCapacity: 0, standaloneTable: -1, fusedTable: -1 }, table); // prettier-ignore
  const plans = Array.from({ length: 5 }, () => backend.load(build().finish().program));
  assert.ok(backend.memory().allocated - before < 90_000, `${backend.memory().allocated - before} bytes`);
  for (const plan of plans) plan.free();
  assert.equal(backend.memory().allocated, before);
});

test('programs that are not valid are plan_invalid and leave no memory behind', async (t) => {
  const backend = await open(t, 1);
  const work = chain(backend, 2);
  const before = backend.memory().allocated;
  const { code, weightAddresses, weightDtypes } = work.execution.plan.program;
  const magic = code.slice();
  magic[0] = 1;
  const op = code.slice();
  op[16] = 99;
  for (const program of [
    { code: magic, weightAddresses, weightDtypes },
    { code: op, weightAddresses, weightDtypes },
    { code: code.slice(0, 20), weightAddresses, weightDtypes },
    { code, weightAddresses: Float64Array.of(2 ** 33), weightDtypes },
  ]) {
    assert.throws(() => backend.load(program), failsWith('plan_invalid'));
    assert.equal(backend.memory().allocated, before);
  }
});

test('an execution that does not fit its plan is refused, and the backend goes on', async (t) => {
  const backend = await open(t, 1);
  const other = await open(t, 1);
  const work = chain(backend, 2);
  const small = backend.allocate(64, 'a workspace that is too small');
  await assert.rejects(backend.execute({ ...work.execution, workspace: small }), failsWith('backend_failed'));
  await assert.rejects(other.execute(work.execution), failsWith('backend_failed'));
  assert.equal(await backend.execute(work.execution), 'done');
  work.execution.plan.free();
  await assert.rejects(backend.execute(work.execution), failsWith('backend_failed'));
});

for (const threads of [1, 2]) {
  test(`a trap in a kernel fails the running plan and all that follow, and nothing hangs, threads ${threads}`, async (t) => {
    const backend = await open(t, threads);
    const broken = chain(backend, 3, { weightAddress: BEYOND });
    const sound = chain(backend, 3);
    const runs = [backend.execute(broken.execution), backend.execute(sound.execution)];
    for (const run of runs) {
      await assert.rejects(run, (error) => {
        assert.ok(failsWith('backend_failed')(error));
        assert.match(String(error), /memory access out of bounds/);
        return true;
      });
    }
    await assert.rejects(backend.execute(sound.execution), failsWith('backend_failed'));
    await backend.close();
  });

  test(`closing while a plan runs stops it, ends the threads, and may be done twice, threads ${threads}`, async () => {
    const backend = await openWasmBackend({ threads });
    const long = chain(backend, 20_000);
    const runs = [backend.execute(long.execution), backend.execute(chain(backend, 1).execution)];
    while (long.opsDone() < 1) await new Promise((resolve) => setTimeout(resolve, 1));
    await Promise.all([backend.close(), backend.close()]);
    assert.deepEqual(await Promise.all(runs), ['cancelled', 'cancelled']);
    assert.equal(await backend.execute(long.execution), 'cancelled');
    long.free();
  });
}

test('a trap in one thread is never taken for the end of the plan by another', async () => {
  for (let round = 0; round < 8; round++) {
    const backend = await openWasmBackend({ threads: 2, sharedWork: 0 });
    const { execution } = chain(backend, 1, { weightAddress: BEYOND, outs: 64 }); // whichever thread takes the one unit
    await assert.rejects(backend.execute(execution), failsWith('backend_failed'));
    await backend.close();
  }
});

test('a small op, done by one thread, stands between shared ones as if all threads did it', async (t) => {
  const backend = await open(t, 2);
  const work = chain(backend, 30, { doubling: true });
  for (let i = 0; i < 40; i++) {
    work.input.fill(3);
    assert.equal(await backend.execute(work.execution), 'done');
    const wrong = work.output.findIndex((value) => value !== 3 * 2 ** 30);
    assert.equal(wrong, -1, `round ${i}: element ${wrong} is ${work.output[wrong]}`);
  }
});

test('an idle backend uses no processor', async (t) => {
  const backend = await open(t, 2);
  assert.equal(await backend.execute(chain(backend, 20).execution), 'done');
  await new Promise((resolve) => setTimeout(resolve, 50));
  const before = process.cpuUsage();
  await new Promise((resolve) => setTimeout(resolve, 400));
  const { user, system } = process.cpuUsage(before);
  assert.ok(user + system < 40_000, `${user + system} us of processor time in 400 ms`);
});

test('memory that a plan needs and cannot have is out_of_memory, and the backend goes on', async (t) => {
  const backend = await openWasmBackend({ threads: 2, maxBytes: 8 * 2 ** 20 });
  t.after(() => backend.close());
  const work = chain(backend, 2);
  const rest: MemoryBlock[] = [];
  assert.throws(() => {
    for (;;) rest.push(backend.allocate(65536, 'the rest'));
  }, failsWith('out_of_memory'));
  await assert.rejects(backend.execute(work.execution), failsWith('out_of_memory'));
  for (const block of rest) block.free();
  assert.equal(await backend.execute(work.execution), 'done');
});

test('a process with an idle backend ends by itself, and one with a running plan waits for it', async () => {
  const script = `
    const { openWasmBackend } = await import(${JSON.stringify(new URL('./wasm-backend.js', import.meta.url).href)});
    const backend = await openWasmBackend({ threads: 2 });
    process.on('exit', () => console.log('left'));
    console.log(backend.name, backend.isa, backend.floatLaw);
  `;
  const run = promisify(execFile);
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', script], { timeout: 20_000 });
  assert.deepEqual(stdout.trim().split('\n'), ['wasm simd128 mul-add', 'left']);
});

test('threads must be a whole number of at least 1', async () => {
  for (const threads of [0, -1, 1.5, Number.NaN]) {
    await assert.rejects(openWasmBackend({ threads }), failsWith('invalid_option'));
  }
});
