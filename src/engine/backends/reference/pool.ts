/**
 * Pooling of windows of tokens into one row each, every channel with a softmax of its own.
 *
 * Invariants: a pooled row depends on its own window and, where windows overlap, on the one before, and is written when
 * its last token comes; the ring of raw rows is read from the input slab and written whole to the output slab.
 */
import { expF32 } from '../../../numerics/exp.js';
import type { OpFields } from '../../plan/ops.js';
import { fl } from './arithmetic.js';
import type { OpContext, SequenceRows } from './context.js';

/** Values and gates of a token, (1 + overlap) * channels each. */
interface RawRow {
  readonly values: Float32Array;
  readonly gates: Float32Array;
}

export function pool(op: OpFields<'pool'>, x: OpContext): void {
  const { channels, window, overlap, rotary } = op;
  const { math, call } = x;
  const gain = op.gain >= 0 ? x.weight(op.gain, 0, channels) : undefined;
  for (const sequence of call.sequences) {
    const raw = rawRows(op, x, sequence);
    const end = sequence.startPosition + sequence.rowCount;
    for (let position = sequence.startPosition; position < end; position++) {
      if ((position + 1) % window !== 0) continue;
      const first = position + 1 - window;
      const row = pooledRow(op, x, first, raw);
      if (gain) math.norm(row, 0, channels, gain, 0, op.eps, row, 0);
      if (op.rope >= 0) {
        math.ropePairs(row, channels - rotary, rotary, x.weight(op.rope, first * rotary, rotary), false);
      }
      x.writePage(sequence, first, op.pooled, ((first % x.pageTokens) / window) * channels, row);
    }
    keepRows(op, x, sequence, (1 + overlap) * window, raw);
  }
}

/** The raw row of a position: of the call, or of the state before it. */
function rawRows(
  op: OpFields<'pool'>,
  x: OpContext,
  { rowStart, startPosition, fixedIn }: SequenceRows,
): (position: number) => RawRow {
  const width = (1 + op.overlap) * op.channels;
  const slots = (1 + op.overlap) * op.window;
  const values = x.floats(op.values, x.call.rows * width);
  const gates = x.floats(op.gates, x.call.rows * width);
  const past = x.slab(fixedIn, op.state, slots * 2 * width);
  return (position) => {
    if (position >= startPosition) {
      const from = (rowStart + position - startPosition) * width;
      return { values: values.subarray(from, from + width), gates: gates.subarray(from, from + width) };
    }
    const from = (position % slots) * 2 * width;
    return { values: past.subarray(from, from + width), gates: past.subarray(from + width, from + 2 * width) };
  };
}

/** The pooled row of the window that begins at `first`, before norm and rotation. */
function pooledRow(op: OpFields<'pool'>, x: OpContext, first: number, raw: (position: number) => RawRow): Float32Array {
  const { channels, window, overlap } = op;
  const width = (1 + overlap) * channels;
  const ape = x.weight(op.ape, 0, window * width);
  /** Position, column of the channel 0, and row of ape, of every slot. */
  const slots = Array.from({ length: window }, (_, j) => ({ row: raw(first + j), column: width - channels, j }));
  if (overlap === 1 && first > 0) {
    slots.unshift(...Array.from({ length: window }, (_, j) => ({ row: raw(first - window + j), column: 0, j })));
  }
  return Float32Array.from({ length: channels }, (_, c) => {
    const logits = slots.map(({ row, column, j }) => fl(row.gates[column + c]! + ape[j * width + column + c]!));
    const most = logits.reduce((m, l) => (l > m ? l : m), Number.NEGATIVE_INFINITY);
    const e = logits.map((l) => expF32(fl(l - most)));
    const total = e.reduce((sum, value) => fl(sum + value), 0);
    const mixed = slots.reduce(
      (sum, { row, column }, s) => x.math.fma(fl(e[s]! / total), row.values[column + c]!, sum),
      0,
    );
    return x.math.act(mixed);
  });
}

/** The ring of the last `slots` tokens; zeros where no token was. */
function keepRows(
  op: OpFields<'pool'>,
  x: OpContext,
  { fixedOut, startPosition, rowCount }: SequenceRows,
  slots: number,
  raw: (position: number) => RawRow,
): void {
  const width = (1 + op.overlap) * op.channels;
  const end = startPosition + rowCount;
  const kept = new Float32Array(slots * 2 * width);
  for (let position = Math.max(0, end - slots); position < end; position++) {
    const { values, gates } = raw(position);
    kept.set(values, (position % slots) * 2 * width);
    kept.set(gates, (position % slots) * 2 * width + width);
  }
  x.slab(fixedOut, op.state, kept.length).set(kept);
}
