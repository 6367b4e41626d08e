/** Float64 formulas of manifold hyper-connections. */
import { cut, sigmoid, type CaseView } from './case-view.js';
import type { FormulaTable } from './formulas.js';

export const MANIFOLD_FORMULAS: FormulaTable = {
  mhcWeights: (c) => {
    const [H, iterations, eps] = [c.n('streams'), c.n('iterations'), c.n('eps')];
    const [scale, base] = [c.weight('scale'), c.weight('base')];
    const out = c.buffer('in', iterations === 0 ? H : (2 + H) * H).flatMap((row) => {
      const v = row.map((x, i) => x * scale[Math.min(Math.floor(i / H), 2)]! + base[i]!);
      const read = v.slice(0, H).map((x) => sigmoid(x) + eps);
      if (iterations === 0) return read;
      const write = v.slice(H, 2 * H).map((x) => 2 * sigmoid(x));
      return [...read, ...write, ...mixing(cut(v.slice(2 * H), H), iterations, eps).flat()];
    });
    return { 'mhcWeights.out': out };
  },
  mhcSum: (c) => {
    const [H, hidden] = [c.n('streams'), c.n('hidden')];
    const weights = c.op.fields.weights === -1 ? undefined : c.buffer('weights', c.n('weightsWidth'));
    const out = c.buffer('residual', H * hidden).flatMap((row, r) =>
      Array.from({ length: hidden }, (_, i) => {
        const terms = cut(row, hidden).map((stream, h) => stream[i]! * (weights?.[r]?.[h] ?? 1 / H));
        return c.A(terms.reduce((sum, x) => sum + x, 0));
      }),
    );
    return { 'mhcSum.out': out };
  },
  mhcWrite: (c: CaseView) => {
    const [H, hidden] = [c.n('streams'), c.n('hidden')];
    const weights = c.buffer('weights', c.n('weightsWidth'));
    const y = c.buffer('y', hidden);
    const out = c.buffer('residual', H * hidden).flatMap((row, r) => {
      const [streams, w] = [cut(row, hidden), weights[r]!];
      return streams.flatMap((_, k) =>
        y[r]!.map((fresh, i) =>
          c.A(streams.reduce((sum, stream, j) => sum + w[2 * H + j * H + k]! * stream[i]!, w[H + k]! * fresh)),
        ),
      );
    });
    return { 'mhcWrite.residual': out };
  },
};

/** Softmax of every row, then + eps; columns once, then rows and columns by turns. */
function mixing(logits: number[][], iterations: number, eps: number): number[][] {
  const divided = (list: readonly number[]): number[] => {
    const sum = list.reduce((a, b) => a + b, eps);
    return list.map((x) => x / sum);
  };
  const transposed = (m: number[][]): number[][] => m.map((_, k) => m.map((row) => row[k]!));
  const columns = (m: number[][]): number[][] => transposed(transposed(m).map(divided));
  let comb = logits.map((row) => {
    const e = row.map((x) => Math.exp(x - Math.max(...row)));
    return e.map((x) => x / e.reduce((a, b) => a + b, 0) + eps);
  });
  comb = columns(comb);
  for (let i = 1; i < iterations; i++) comb = columns(comb.map(divided));
  return comb;
}
