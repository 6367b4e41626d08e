/**
 * Op groupedLinear: every group of a row's inputs through weight rows of its own. A unit of work is a chunk of rows of one
 * group by up to UNIT_OUTS outputs.
 */
import { bufferField, field, rowsOf, weightAddress, weightDtype } from '../context';
import { dtypeShift } from '../dot';
import { beginChunk, chunkRows, matmul, matmulScratch, resultOf, rowEntry, UNIT_OUTS } from '../matmul';
import {
  GROUPED_LINEAR_GROUP_IN,
  GROUPED_LINEAR_GROUP_OUT,
  GROUPED_LINEAR_GROUPS,
  GROUPED_LINEAR_IN,
  GROUPED_LINEAR_OUT,
  GROUPED_LINEAR_ROW_OFFSET,
  GROUPED_LINEAR_ROW_STRIDE,
  GROUPED_LINEAR_ROWS,
  GROUPED_LINEAR_WEIGHT,
} from '../plan-ops';
import { act4, store4 } from '../rounding';
import { nextUnit } from '../sync';

export function groupedLinearWork(): f64 {
  const outs = <f64>field(GROUPED_LINEAR_GROUPS) * <f64>field(GROUPED_LINEAR_GROUP_OUT);
  return <f64>rowsOf(field(GROUPED_LINEAR_ROWS)) * <f64>field(GROUPED_LINEAR_GROUP_IN) * outs;
}

export function groupedLinearScratch(): usize {
  return matmulScratch(field(GROUPED_LINEAR_GROUP_IN));
}

export function groupedLinear(): void {
  const rows = rowsOf(field(GROUPED_LINEAR_ROWS));
  const groups = field(GROUPED_LINEAR_GROUPS);
  const k = field(GROUPED_LINEAR_GROUP_IN);
  const most = chunkRows(k);
  const unitsOfGroup = (field(GROUPED_LINEAR_GROUP_OUT) + UNIT_OUTS - 1) / UNIT_OUTS;
  const units = unitsOfGroup * groups * ((rows + most - 1) / most);
  let current = -1;
  for (let unit = nextUnit(); unit < units; unit = nextUnit()) {
    const part = unit / unitsOfGroup; // a chunk's group
    const group = part % groups;
    const first = (part / groups) * most;
    const count = min(most, rows - first);
    if (part != current) {
      current = part;
      beginChunk();
      const input = bufferField(GROUPED_LINEAR_IN);
      for (let i = 0; i < count; i++) {
        store<u32>(rowEntry(i), <u32>(input + (<usize>((first + i) * groups + group) * <usize>k << 2)));
      }
    }
    groupedUnit(group, (unit - part * unitsOfGroup) * UNIT_OUTS, first, count);
  }
}

/** Outputs `from` and on of a group, for `count` rows from row `first`. */
export function groupedUnit(group: i32, from: i32, first: i32, count: i32): void {
  const k = field(GROUPED_LINEAR_GROUP_IN);
  const width = field(GROUPED_LINEAR_GROUP_OUT);
  const groups = field(GROUPED_LINEAR_GROUPS);
  const outs = min(UNIT_OUTS, width - from);
  const weight = field(GROUPED_LINEAR_WEIGHT);
  const dtype = weightDtype(weight);
  const row = group * field(GROUPED_LINEAR_ROW_STRIDE) + field(GROUPED_LINEAR_ROW_OFFSET) + from;
  matmul(count, k, weightAddress(weight) + (<usize>row * <usize>k << <usize>dtypeShift(dtype)), dtype, outs, false);
  const out = bufferField(GROUPED_LINEAR_OUT) + (<usize>from << 2);
  for (let i = 0; i < count; i++) {
    const to = out + (<usize>((first + i) * groups + group) * <usize>width << 2);
    for (let o = 0; o < outs; o += 4) {
      const at = <usize>o << 2;
      store4(to + at, act4(v128.load(resultOf(i) + at)), outs - o);
    }
  }
}
