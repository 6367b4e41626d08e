/**
 * Row invariance at the level of one op: a case cut down to one of its sequences, and the part of the whole case's outputs
 * that the cut one must repeat bit by bit.
 *
 * Invariants: only ops whose outputs belong to rows, sequences or pages can be cut; grouping by expert (moeGroup and the
 * ops that read its list) is a property of the whole call.
 */
import { OPS, type OpName } from '../../src/engine/plan/ops.js';
import type { CaseOutput, CaseOutputs, OpCase } from './op-case.js';

/** Ops that can be cut. */
export const ROW_OPS = (Object.keys(OPS) as OpName[]).filter((op) => !['moeGroup', 'moeUp', 'moeDown'].includes(op));

interface RowRange {
  readonly from: number;
  readonly to: number;
}

/** The rows of sequence `s` among all rows, or among the selected ones. */
function rangeOf(given: OpCase, s: number, rows: 'R' | 'M'): RowRange {
  const counts = given.sequences.map(({ tokens, outRows }) => (rows === 'R' ? tokens.length : outRows.length));
  const from = counts.slice(0, s).reduce((sum, count) => sum + count, 0);
  return { from, to: from + counts[s]! };
}

/** The case of sequence `s` alone. */
export function aloneCase(given: OpCase, s: number): OpCase {
  const buffers = given.buffers.map((buffer) => {
    const { from, to } = rangeOf(given, s, buffer.rows);
    return { ...buffer, contents: buffer.contents?.slice(from * buffer.width, to * buffer.width) };
  });
  return { ...given, name: `${given.name}, sequence ${s} alone`, buffers, sequences: [given.sequences[s]!] };
}

/** What the outputs of the whole case say about sequence `s`, under the names that the cut case gives. */
export function partOf(given: OpCase, outputs: CaseOutputs, s: number): CaseOutputs {
  const part = new Map<string, CaseOutput>();
  for (const [name, { type, values }] of outputs) {
    const ofState = /^(slab|sequence) (\d+)(.*)$/.exec(name);
    if (!ofState) {
      const rows = given.op === 'gather' || given.ops[0]!.fields.rows === 1 ? 'M' : 'R';
      const last = given.sequences.length - 1;
      const width = values.length / rangeOf(given, last, rows).to;
      const { from, to } = rangeOf(given, s, rows);
      part.set(name, { type, values: values.slice(from * width, to * width) });
    } else if (Number(ofState[2]) === s) part.set(`${ofState[1]} 0${ofState[3]}`, { type, values });
  }
  return part;
}
