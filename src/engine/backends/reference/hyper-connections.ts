/** Hyper-connections: reading the block input from the parallel residual streams, and writing the block's output back. */
import type { OpFields } from '../../plan/ops.js';
import { fl } from './arithmetic.js';
import type { OpContext } from './context.js';

/** The activations of a read: silu of the low-rank mix, and the injection weights of the write that will follow. */
export function hcAct(op: OpFields<'hcAct'>, x: OpContext): void {
  const rows = x.rowCount(op.rows);
  const { math } = x;
  const quotient = (value: number): number => math.act(fl(value / op.streams));
  const down = x.floats(op.down, rows * op.rank);
  for (let i = 0; i < down.length; i++) down[i] = math.silu(quotient(down[i]!));
  if (op.inject < 0) return;
  const inject = x.floats(op.inject, rows * op.streams);
  for (let i = 0; i < inject.length; i++) inject[i] = math.act(fl(2 * math.gate(quotient(inject[i]!), op.lowering)));
}

/** The block input: the mean over streams of the normed residual, each element weighted by its mix. */
export function hcMix(op: OpFields<'hcMix'>, x: OpContext): void {
  const rows = x.rowCount(op.rows);
  const { hidden, streams } = op;
  const { math } = x;
  const mix = x.floats(op.mix, rows * streams * hidden);
  const normed = x.floats(op.normed, rows * streams * hidden);
  const out = x.floats(op.out, rows * hidden);
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < hidden; i++) {
      let sum = 0;
      for (let c = 0; c < streams; c++) {
        const at = (row * streams + c) * hidden + i;
        sum = fl(sum + math.act(fl(math.sigma(mix[at]!) * normed[at]!)));
      }
      out[row * hidden + i] = math.act(fl(sum / streams));
    }
  }
}

/** Adds the block's output to every stream, weighted by the stream's injection. */
export function hcWrite(op: OpFields<'hcWrite'>, x: OpContext): void {
  const { hidden, streams } = op;
  const { math } = x;
  const residual = x.floats(op.residual, x.call.rows * streams * hidden);
  const writes = x.call.rows * streams;
  const inject = op.inject >= 0 ? x.floats(op.inject, writes) : new Float32Array(writes).fill(1);
  const y = x.floats(op.y, x.call.rows * hidden);
  for (let stream = 0; stream < inject.length; stream++) {
    const row = Math.floor(stream / streams);
    for (let i = 0; i < hidden; i++) {
      const at = stream * hidden + i;
      residual[at] = math.act(fl(residual[at]! + math.act(fl(inject[stream]! * y[row * hidden + i]!))));
    }
  }
}
