/** A plan of any length with a known result: products with one square matrix, back and forth between two buffers. */
import type { Backend, Execution, MemoryBlock } from '../../src/engine/backends/backend.js';
import { PlanBuilder } from '../../src/engine/plan/builder.js';
import { callBlockBytes, callSizes, fillCallBlock } from '../../src/engine/plan/call-block.js';
import { CALL_HEADER } from '../../src/engine/plan/ops.js';
import { WeightTable } from '../../src/engine/plan/weight-table.js';

const WIDTH = 512;
const ROWS = 8;
const OPS_DONE = CALL_HEADER.indexOf('opsDone');

export interface ProductChain {
  readonly execution: Execution;
  /** The block of the identity, which is the matrix unless another address is given. */
  readonly weights: MemoryBlock;
  /** [8, 512], filled with 1.25. */
  readonly input: Float32Array;
  readonly output: Float32Array;
  readonly opsDone: () => number;
  readonly free: () => void;
}

/** `length` products of eight rows with the matrix at `weightAddress`, float32 [512, 512]. */
export function productChain(backend: Backend, length: number, weightAddress?: number): ProductChain {
  const blocks: MemoryBlock[] = [];
  const allocate = (bytes: number): MemoryBlock => {
    const block = backend.allocate(bytes, 'a test');
    blocks.push(block);
    return block;
  };
  const floats = (block: MemoryBlock, from: number, count: number): Float32Array =>
    new Float32Array(block.bytes.buffer, block.bytes.byteOffset + 4 * from, count);
  const weights = allocate(4 * WIDTH * WIDTH);
  const identity = floats(weights, 0, WIDTH * WIDTH);
  for (let i = 0; i < WIDTH; i++) identity[i * WIDTH + i] = 1;
  const table = new WeightTable();
  const weight = table.add('matrix', weightAddress ?? weights.address, 'F32');
  table.commit(backend);
  const law = { name: 'f32', act: 0, mtplx: 0, kvType: 0 } as const;
  const tables = { standaloneTable: -1, fusedTable: -1 };
  const builder = new PlanBuilder({ law, pageTokens: 16, rowCapacity: ROWS, outCapacity: 0, ...tables }, table);
  const a = builder.buffer('a', WIDTH);
  const b = builder.buffer('b', WIDTH);
  for (let i = 0; i < length; i++) {
    builder.linear('R', i % 2 === 0 ? a : b, WIDTH, [{ weight, out: i % 2 === 0 ? b : a, outs: WIDTH }]);
  }
  const built = builder.finish();
  const plan = backend.load(built.program);
  const workspace = allocate(4 * built.workspaceWords);
  const tokens = Array<number>(ROWS).fill(0);
  const sequences = [{ tokens, startPosition: 0, fixedIn: 0, fixedOut: 0, pages: [], outRows: [] }];
  const call = allocate(callBlockBytes(callSizes(sequences)));
  fillCallBlock(call, sequences);
  return {
    execution: { plan, workspace, call },
    weights,
    input: floats(workspace, a.offset, ROWS * WIDTH).fill(1.25),
    output: floats(workspace, (length % 2 === 0 ? a : b).offset, ROWS * WIDTH),
    opsDone: () => (call.bytes.length === 0 ? 0 : new Int32Array(call.bytes.buffer, call.bytes.byteOffset)[OPS_DONE]!),
    free: () => {
      plan.free();
      table.free();
      for (const block of blocks) block.free();
    },
  };
}
