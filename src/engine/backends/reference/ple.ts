/** The per-layer embedding of hashed n-grams: gating its value per stream, and adding the result to the residual. */
import { laneSum } from '../../../numerics/lanes.js';
import type { OpFields } from '../../plan/ops.js';
import { fl } from './arithmetic.js';
import type { OpContext } from './context.js';

const LEAST = fl(1e-6);

export function pleGate(op: OpFields<'pleGate'>, x: OpContext): void {
  const { hidden, streams, rootHidden } = op;
  const { math } = x;
  const { rows } = x.call;
  const key = x.floats(op.key, rows * streams * hidden);
  const query = x.floats(op.query, rows * streams * hidden);
  const value = x.floats(op.value, rows * hidden);
  const out = x.floats(op.out, rows * streams * hidden);
  const products = new Float32Array(hidden);
  for (let stream = 0; stream < rows * streams; stream++) {
    const from = stream * hidden;
    for (let i = 0; i < hidden; i++) products[i] = math.act(fl(key[from + i]! * query[from + i]!));
    const a = math.act(fl(math.act(laneSum(products, 0, hidden)) / rootHidden));
    const magnitude = Math.abs(a) < LEAST ? LEAST : Math.abs(a);
    const score = fl(Math.sign(a) * math.act(fl(Math.sqrt(magnitude))));
    const gate = op.lowering === 1 ? math.gate(score, 1) : math.sigma(score);
    const row = Math.floor(stream / streams);
    for (let i = 0; i < hidden; i++) out[from + i] = math.act(fl(gate * value[row * hidden + i]!));
  }
}

export function pleAdd(op: OpFields<'pleAdd'>, x: OpContext): void {
  const { math } = x;
  const elements = x.call.rows * op.width;
  const residual = x.floats(op.residual, elements);
  const u = x.floats(op.u, elements);
  const conv = x.floats(op.conv, elements);
  for (let i = 0; i < elements; i++) residual[i] = math.act(fl(residual[i]! + math.act(fl(u[i]! + conv[i]!))));
}
