/** Float64 formulas of the ops that carry state from token to token: convolution and the gated delta rule. */
import { cut, dot, type CaseView } from './case-view.js';
import type { Expected, FormulaTable } from './formulas.js';

export const SEQUENCE_FORMULAS: FormulaTable = {
  conv: (c) => {
    const [channels, kernel, dilation] = [c.n('channels'), c.n('kernel'), c.n('dilation')];
    const taps = cut(c.weight('weight'), kernel);
    const input = c.buffer('in', channels);
    const history = (kernel - 1) * dilation;
    const expected: Record<string, number[]> = { 'conv.out': [] };
    perSequence(c, (rows, s) => {
      const { slab } = c.given.sequences[s]!;
      const start = c.n('state') / 4;
      const all = [
        ...cut(Array.from(slab.slice(start, start + history * channels)), channels),
        ...rows.map((row) => input[row]!),
      ];
      rows.forEach((_, t) => {
        for (let ch = 0; ch < channels; ch++) {
          const sum = taps[ch]!.reduce(
            (total, w, j) => total + w * all[history + t - (kernel - 1 - j) * dilation]![ch]!,
            0,
          );
          expected['conv.out']!.push(c.silu(c.A(sum)));
        }
      });
      expected[`slab ${s}`] = slabWith(slab.length, start, all.slice(all.length - history).flat());
    });
    return expected;
  },
  gatedDelta: (c) => {
    const [Nk, Nv, Dk, Dv] = [c.n('keyHeads'), c.n('valueHeads'), c.n('keyDim'), c.n('valueDim')];
    const conv = c.buffer('conv', 2 * Nk * Dk + Nv * Dv);
    const [a, b] = [c.buffer('a', Nv), c.buffer('b', Nv)];
    const [negExpA, dtBias] = [c.weight('negExpA'), c.weight('dtBias')];
    const round = c.mtplx ? c.A : (x: number): number => x;
    const l2 = (x: number[]): number[] => x.map((v) => round(v / Math.sqrt(dot(x, x) + 1e-6)));
    const expected: Record<string, number[]> = { 'gatedDelta.out': [] };
    perSequence(c, (rows, s) => {
      const { slab } = c.given.sequences[s]!;
      const start = c.n('state') / 4;
      const states = cut(Array.from(slab.slice(start, start + Nv * Dk * Dv)), Dk * Dv).map((flat) => cut(flat, Dv));
      for (const row of rows) {
        states.forEach((S, h) => {
          const group = Math.floor((h * Nk) / Nv);
          const part = (from: number, length: number): number[] => conv[row]!.slice(from, from + length);
          const q = l2(part(group * Dk, Dk)).map((v) => round(v * round(1 / Math.sqrt(Dk))));
          const k = l2(part((Nk + group) * Dk, Dk));
          const v = part(2 * Nk * Dk + h * Dv, Dv);
          const decay = Math.exp(negExpA[h]! * Math.log1p(Math.exp(round(a[row]![h]! + dtBias[h]!))));
          const beta = c.sigma(b[row]![h]!);
          for (let j = 0; j < Dv; j++) {
            for (const line of S) line[j] = line[j]! * decay;
            const delta = beta * (v[j]! - S.reduce((sum, line, i) => sum + line[j]! * k[i]!, 0));
            S.forEach((line, i) => (line[j] = line[j]! + k[i]! * delta));
            expected['gatedDelta.out']!.push(c.A(S.reduce((sum, line, i) => sum + line[j]! * q[i]!, 0)));
          }
        });
      }
      expected[`slab ${s}`] = slabWith(slab.length, start, states.flat(2));
    });
    return expected;
  },
  kda: (c) => {
    const [heads, dim] = [c.n('heads'), c.n('dim')];
    const conv = c.buffer('conv', dim);
    const [f, b] = [c.buffer('f', dim), c.buffer('b', heads)];
    const [expA, dtBias] = [c.weight('expA'), cut(c.weight('dtBias'), dim)];
    const bound = c.n('bound');
    const l2 = (x: number[]): number[] => x.map((v) => v / Math.sqrt(dot(x, x) + 1e-6));
    const expected: Record<string, number[]> = { 'kda.out': [] };
    perSequence(c, (rows, s) => {
      const { slab } = c.given.sequences[s]!;
      const start = c.n('state') / 4;
      const states = cut(cut(Array.from(slab.slice(start, start + heads * dim * dim)), dim).flat(), dim * dim);
      for (const row of rows) {
        states.forEach((flat, h) => {
          const [q, k, v] = [0, 1, 2].map((part) => conv[(row * 3 + part) * heads + h]!) as [
            number[],
            number[],
            number[],
          ];
          const [query, key] = [l2(q).map((x) => x / Math.sqrt(dim)), l2(k)];
          const decay = f[row * heads + h]!.map((x, i) => {
            const z = x + dtBias[h]![i]!;
            return Math.exp(bound === 0 ? -expA[h]! * Math.log1p(Math.exp(z)) : -bound / (1 + Math.exp(-expA[h]! * z)));
          });
          const beta = c.sigma(b[row]![h]!);
          for (let j = 0; j < dim; j++) {
            for (let i = 0; i < dim; i++) flat[i * dim + j]! *= decay[i]!;
            const delta = beta * (v[j]! - key.reduce((sum, x, i) => sum + flat[i * dim + j]! * x, 0));
            for (let i = 0; i < dim; i++) flat[i * dim + j]! += key[i]! * delta;
            expected['kda.out']!.push(c.A(query.reduce((sum, x, i) => sum + flat[i * dim + j]! * x, 0)));
          }
        });
      }
      expected[`slab ${s}`] = slabWith(slab.length, start, states.flat());
    });
    return expected;
  },
};

function perSequence(c: CaseView, visit: (rows: number[], sequence: number) => void): void {
  c.given.sequences.forEach((_, s) => {
    const rows = c.rows.filter(({ sequenceIndex }) => sequenceIndex === s).map(({ row }) => row);
    visit(rows, s);
  });
}

/** An output slab: NaN (not written) but for `values` from word `start`. */
function slabWith(length: number, start: number, values: Expected): number[] {
  const slab = Array<number>(length).fill(Number.NaN);
  values.forEach((value, i) => (slab[start + i] = value));
  return slab;
}
