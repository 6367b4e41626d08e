import assert from 'node:assert/strict';
import { test } from 'node:test';
import { f32Bits } from '../../numerics/rounding.js';
import { OPS, PLAN_MAGIC, PLAN_VERSION } from './ops.js';
import { printProgram } from './print.js';

const program = Int32Array.from([
  ...[PLAN_MAGIC, PLAN_VERSION, 3, 1, 1, 1, 16, 8, 2, 400, 5, 6, 7, 0, 0, 0],
  ...[OPS.norm.code, 9, 1, 16, 32, 24, 8, 3, f32Bits(1e-6)],
  ...[OPS.linear.code, 12, 0, 16, 24, 1, 2, -1, 64, 48, 24, 20],
  ...[OPS.attention.code, 15, 0, 16, -1, 32, 4, 2, 20, 0, 0, 1, f32Bits(20 ** -0.5), 0, 640],
]);

test('a printed plan names every field, lowerings in words, floats shortest', () => {
  assert.deepEqual(printProgram(program), [
    'plan version 1: activations bfloat16 at MTPLX rounding points, keys and values bfloat16, pages of 16 tokens, ' +
      'at most 8 rows (R) and 2 selected (M), workspace 400 words, 7 weights, sigmoid tables: standalone #5, fused #6; 3 ops',
    '0  norm             rows=M in=@16 out=@32 width=24 group=8 gain=#3 eps=0.000001',
    '1  linear           rows=R in=@16 inWidth=24 segments=1',
    '                    weight=#2 bias=none out=@64 outWidth=48 outColumn=24 outs=20',
    '2  attention        q=@0 packed=@16 select=none out=@32 heads=4 kvHeads=2 dim=20 block=0 budgetBlocks=0 ' +
      'lowering=fused scale=0.2236068 keys=0B values=640B',
  ]);
});

test('side tables give buffers and weights their names', () => {
  const lines = printProgram(program, {
    buffer: (offset) => (offset === 16 ? 'residual' : undefined),
    weight: (index) => (index === 3 ? 'hc_norm' : undefined),
  });
  assert.match(lines[1]!, /in=residual out=@32 .* gain=hc_norm /);
});
