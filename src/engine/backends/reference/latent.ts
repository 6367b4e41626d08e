/**
 * Attention whose keys are their own values, one row for all heads: over a window of recent rows and compressed rows of
 * the past, or over one row a token; and how such rows come into the pages.
 *
 * Invariants: a row sees what was there at its own position, so the order of its keys follows from that position alone;
 * the window is read from the input slab and from the call, and written whole to the output slab.
 */
import type { OpFields } from '../../plan/ops.js';
import { attend } from './attention.js';
import type { OpContext, SequenceRows } from './context.js';

export function ropeTail(op: OpFields<'ropeTail'>, x: OpContext): void {
  const { heads, dim, rotary } = op;
  const width = heads * dim;
  const rows = x.rowCount(op.rows);
  const source = x.floats(op.in, rows * width);
  const out = x.floats(op.out, rows * width);
  for (let row = 0; row < rows; row++) {
    const trunkRow = op.rows === 1 ? x.call.outRows[row]! : Math.floor(row / Math.max(op.rows, 1));
    const angles = x.weight(op.rope, x.call.positions[trunkRow]! * rotary, rotary);
    for (let h = 0; h < heads; h++) {
      const from = row * width + h * dim;
      if (op.in !== op.out) out.set(source.subarray(from, from + dim), from);
      x.math.ropePairs(out, from + dim - rotary, rotary, angles, op.inverse === 1);
    }
  }
}

export function latentStore(op: OpFields<'latentStore'>, x: OpContext): void {
  const { dim } = op;
  const rows = x.floats(op.in, x.call.rows * dim);
  for (let row = 0; row < x.call.rows; row++) {
    const position = x.call.positions[row]!;
    const latent = rows.subarray(row * dim, (row + 1) * dim);
    x.writePage(x.call.sequenceOf(row), position, op.latent, (position % x.pageTokens) * dim, latent);
  }
}

export function windowAttention(op: OpFields<'windowAttention'>, x: OpContext): void {
  const { heads, dim, window } = op;
  const { call } = x;
  const q = x.floats(op.q, call.rows * heads * dim);
  const out = x.floats(op.out, call.rows * heads * dim);
  const sinks = op.sink >= 0 ? x.weight(op.sink, 0, heads) : undefined;
  for (const sequence of call.sequences) {
    const near = nearRows(op, x, sequence);
    for (let row = sequence.rowStart; row < sequence.rowStart + sequence.rowCount; row++) {
      const position = call.positions[row]!;
      const keys: Float32Array[] = [];
      for (let p = Math.max(0, position - window + 1); p <= position; p++) keys.push(near(p));
      const compressed = compressedRows(op, x, row).map((b) => readRow(op, x, sequence, b * op.block, op.block));
      const list = joined([...keys, ...compressed], dim);
      for (let h = 0; h < heads; h++) {
        const at = (row * heads + h) * dim;
        out.set(attend(op, x, q.subarray(at, at + dim), list, list, sinks?.[h]), at);
      }
    }
    const end = sequence.startPosition + sequence.rowCount;
    const kept = new Float32Array(window * dim);
    for (let p = Math.max(0, end - window); p < end; p++) kept.set(near(p), (p % window) * dim);
    x.slab(sequence.fixedOut, op.state, window * dim).set(kept);
  }
}

/** The row of a position of the window: of the call, or of the state before it. */
function nearRows(
  op: OpFields<'windowAttention'>,
  x: OpContext,
  { rowStart, startPosition, fixedIn }: SequenceRows,
): (position: number) => Float32Array {
  const { dim, window } = op;
  const fresh = x.floats(op.kv, x.call.rows * dim);
  const past = x.slab(fixedIn, op.state, window * dim);
  return (position) =>
    position >= startPosition
      ? fresh.subarray((rowStart + position - startPosition) * dim).subarray(0, dim)
      : past.subarray((position % window) * dim).subarray(0, dim);
}

/** Blocks whose compressed rows a row of the call sees, ascending. */
function compressedRows(op: OpFields<'windowAttention'>, x: OpContext, row: number): number[] {
  if (op.block === 0) return [];
  return chosenBlocks(op, x, row) ?? upTo(Math.floor((x.call.positions[row]! + 1) / op.block));
}

export function latentAttention(op: OpFields<'latentAttention'>, x: OpContext): void {
  const { heads, dim } = op;
  const { call } = x;
  const q = x.floats(op.q, call.rows * heads * dim);
  const out = x.floats(op.out, call.rows * heads * dim);
  for (let row = 0; row < call.rows; row++) {
    const sequence = call.sequenceOf(row);
    const list = joined(
      latentTokens(op, x, row).map((token) => readRow({ dim, compressed: op.latent }, x, sequence, token, 1)),
      dim,
    );
    for (let h = 0; h < heads; h++) {
      const at = (row * heads + h) * dim;
      out.set(attend(op, x, q.subarray(at, at + dim), list, list), at);
    }
  }
}

/** Positions that a row of the call sees, ascending. */
function latentTokens(op: OpFields<'latentAttention'>, x: OpContext, row: number): number[] {
  const visible = x.call.positions[row]! + 1;
  if (op.select < 0) return upTo(visible);
  const complete = Math.floor(visible / op.block);
  const blocks = chosenBlocks(op, x, row) ?? upTo(complete);
  const tokens = blocks.flatMap((b) => upTo(op.block).map((i) => b * op.block + i));
  const tail = op.tail === 1 ? upTo(visible - complete * op.block).map((i) => complete * op.block + i) : [];
  return [...tokens, ...tail];
}

/** The selected blocks of a row of the call; undefined where all of them are. */
function chosenBlocks(
  { select, budgetBlocks }: { readonly select: number; readonly budgetBlocks: number },
  x: OpContext,
  row: number,
): number[] | undefined {
  if (select < 0) return undefined;
  const [count, ...blocks] = x.ints(select + row * (1 + budgetBlocks), 1 + budgetBlocks);
  return count === -1 ? undefined : blocks.slice(0, count);
}

/** The row of the `block` tokens from `token` on. */
function readRow(
  { dim, compressed }: { readonly dim: number; readonly compressed: number },
  x: OpContext,
  sequence: SequenceRows,
  token: number,
  block: number,
): Float32Array {
  return x.readPage(sequence, token, compressed, ((token % x.pageTokens) / block) * dim, dim);
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

function joined(rows: readonly Float32Array[], dim: number): Float32Array {
  const all = new Float32Array(rows.length * dim);
  rows.forEach((row, i) => {
    all.set(row, i * dim);
  });
  return all;
}
