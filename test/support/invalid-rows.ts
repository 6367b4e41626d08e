/**
 * The rows of logits from which no token may be made, at a vocabulary's own size, with their census.
 */
export interface InvalidRow {
  readonly name: string;
  readonly fill: (row: Float32Array) => void;
  readonly nan: number;
  readonly inf: number;
}

export const invalidRows = (vocabSize: number): readonly InvalidRow[] => [
  { name: 'R1: all NaN', fill: (row) => row.fill(NaN), nan: vocabSize, inf: 0 },
  { name: 'R2: +infinity, then zeros', fill: (row) => row.fill(0).fill(Infinity, 0, 1), nan: 0, inf: 1 },
  { name: 'R3: one NaN, then zeros', fill: (row) => row.fill(0).fill(NaN, 0, 1), nan: 1, inf: 0 },
  { name: 'R4: all -infinity', fill: (row) => row.fill(-Infinity), nan: 0, inf: vocabSize },
];
