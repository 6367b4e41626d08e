/**
 * What the matrix kernels of the wasm backend reach beside what its threads can read: npm run bench -- wasm-kernels
 *
 * Weights are larger than the caches and walked from one end to the other, so a product of one row is bound by memory; one
 * of 128 rows is bound by arithmetic. Figures are the medians of 15 rounds after 5, best in brackets.
 */
import { once } from 'node:events';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import type { Backend, MemoryBlock } from '../src/engine/backends/backend.js';
import { compileKernels, kernelMemory } from '../src/engine/backends/wasm/kernels.js';
import { openWasmBackend } from '../src/engine/backends/wasm/wasm-backend.js';
import { webAssembly, type WasmMemory, type WasmModule } from '../src/engine/backends/wasm/web-assembly.js';
import { PlanBuilder } from '../src/engine/plan/builder.js';
import { callBlockBytes, callSizes, fillCallBlock } from '../src/engine/plan/call-block.js';
import type { WeightDtype } from '../src/engine/plan/ops.js';
import { WeightTable } from '../src/engine/plan/weight-table.js';

const MATRIX_BYTES = 32 * 2 ** 20;
const MATRICES = 8;
const READ_BYTES = MATRICES * MATRIX_BYTES;
const WARM_UP = 5;
const ROUNDS = 15;

interface Reader {
  readonly module: WasmModule;
  readonly memory: WasmMemory;
  readonly from: number;
  readonly bytes: number;
}

/** Median and best of numbers of which smaller is better. */
function summary(times: readonly number[]): { readonly median: number; readonly best: number } {
  const sorted = [...times].sort((a, b) => a - b);
  return { median: sorted[sorted.length >> 1]!, best: sorted[0]! };
}

function print(label: string, milliseconds: readonly number[], amount: number, unit: string): void {
  const { median, best } = summary(milliseconds);
  const rate = (ms: number): string => (amount / ms / 1e6).toFixed(1);
  console.log(`${label.padEnd(44)} ${rate(median).padStart(7)} [${rate(best)}] ${unit}`);
}

/** Milliseconds of each round in which `threads` workers together read READ_BYTES. */
async function readRounds(threads: number): Promise<number[]> {
  const memory = kernelMemory();
  memory.grow(READ_BYTES / 65536);
  new Uint8Array(memory.buffer).fill(1);
  const module = await compileKernels();
  const bytes = READ_BYTES / threads;
  const workers = Array.from({ length: threads }, (_, thread) => {
    const reader: Reader = { module, memory, from: 65536 + thread * bytes, bytes };
    return new Worker(new URL(import.meta.url), { workerData: reader });
  });
  await Promise.all(workers.map((worker) => once(worker, 'online')));
  const rounds: number[] = [];
  for (let round = 0; round < WARM_UP + ROUNDS; round++) {
    const times = workers.map((worker) => once(worker, 'message') as Promise<[number]>);
    for (const worker of workers) worker.postMessage('read');
    rounds.push(Math.max(...(await Promise.all(times)).map(([time]) => time)));
  }
  await Promise.all(workers.map((worker) => worker.terminate()));
  return rounds.slice(WARM_UP);
}

function readWhenAsked({ module, memory, from, bytes }: Reader): void {
  const { exports } = new webAssembly.Instance(module, { env: { memory } });
  const readAll = exports.readAll as (at: number, bytes: number) => number;
  parentPort?.on('message', () => {
    const start = performance.now();
    for (let at = 0; at < bytes; at += 2 ** 20) readAll(from + at, 2 ** 20);
    parentPort?.postMessage(performance.now() - start);
  });
}

/** Milliseconds of each run of a plan with one product for every matrix. */
async function productRounds(backend: Backend, inWidth: number, dtype: WeightDtype, rows: number): Promise<number[]> {
  const outs = MATRIX_BYTES / inWidth / (dtype === 'F32' ? 4 : 2);
  const blocks: MemoryBlock[] = [];
  const allocate = (bytes: number): MemoryBlock => {
    const block = backend.allocate(bytes, 'a benchmark');
    blocks.push(block);
    return block;
  };
  const table = new WeightTable();
  const weights = Array.from({ length: MATRICES }, (_, i) => {
    const block = allocate(MATRIX_BYTES);
    block.bytes.fill(0x3c); // about 0.01 in every dtype
    return table.add(`matrix ${i}`, block.address, dtype);
  });
  table.commit(backend);
  const law = { name: 'f32', act: 0, mtplx: 0, kvType: 0 } as const;
  const options = { law, pageTokens: 16, rowCapacity: rows, outCapacity: 0, standaloneTable: -1, fusedTable: -1 };
  const builder = new PlanBuilder(options, table);
  const [input, out] = [builder.buffer('in', inWidth), builder.buffer('out', outs)];
  for (const weight of weights) builder.linear('R', input, inWidth, [{ weight, out, outs }]);
  const plan = backend.load(builder.finish().program);
  const workspace = allocate(4 * builder.workspaceWords);
  new Float32Array(workspace.bytes.buffer, workspace.address, rows * inWidth).fill(0.5);
  const tokens = Array<number>(rows).fill(0);
  const sequences = [{ tokens, startPosition: 0, fixedIn: 0, fixedOut: 0, pages: [], outRows: [] }];
  const call = allocate(callBlockBytes(callSizes(sequences)));
  fillCallBlock(call, sequences);
  const times: number[] = [];
  for (let round = 0; round < WARM_UP + ROUNDS; round++) {
    const start = performance.now();
    await backend.execute({ plan, workspace, call });
    times.push(performance.now() - start);
  }
  plan.free();
  table.free();
  for (const block of blocks) block.free();
  return times.slice(WARM_UP);
}

async function main(): Promise<void> {
  const weightBytes = MATRICES * MATRIX_BYTES;
  for (const threads of [1, 2]) {
    console.log(`threads ${threads}`);
    print('  read only', await readRounds(threads), READ_BYTES, 'GB/s');
    const backend = await openWasmBackend({ threads });
    for (const [inWidth, dtype] of [
      [4096, 'BF16'],
      [2048, 'BF16'],
      [2048, 'F32'],
      [2048, 'F16'],
    ] as const) {
      // prettier-ignore
      print(`  1 row, ${dtype}, ${inWidth} inputs`, await productRounds(backend, inWidth, dtype, 1), weightBytes, 'GB/s');
    }
    for (const rows of [4, 16, 128]) {
      const operations = 2 * rows * (weightBytes / 2);
      print(
        `  ${rows} rows, BF16, 2048 inputs`,
        await productRounds(backend, 2048, 'BF16', rows),
        operations,
        'GFLOP/s',
      );
    }
    await backend.close();
  }
}

if (isMainThread) await main();
else readWhenAsked(workerData as Reader);
