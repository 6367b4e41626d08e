/** Float64 formulas of attention and of the indexer that chooses its blocks. */
import { cut, dot, PageWriter, rmsNorm, rotate, type CaseRow } from './case-view.js';
import type { FormulaTable } from './formulas.js';

export const ATTENTION_FORMULAS: FormulaTable = {
  attentionPrep: (c) => {
    const [heads, kvHeads, dim, rotary] = [c.n('heads'), c.n('kvHeads'), c.n('dim'), c.n('rotary')];
    const [q, k, v] = [c.buffer('q', 2 * dim), c.buffer('k', dim), c.buffer('v', dim)];
    const [qGain, kGain, rope] = [c.weight('qGain'), c.weight('kGain'), c.weight('rope')];
    const turned = (x: number[], gain: number[], position: number): number[] =>
      rotate(c, rmsNorm(c, x.slice(0, dim), gain, c.n('eps')), rope, position, rotary);
    const pages = new PageWriter(c);
    for (const row of c.rows) {
      for (let h = 0; h < kvHeads; h++) {
        const element = (h * c.given.pageTokens + (row.position % c.given.pageTokens)) * dim;
        pages.write(row, row.position, c.n('keys'), element, turned(k[row.row * kvHeads + h]!, kGain, row.position));
        pages.write(row, row.position, c.n('values'), element, v[row.row * kvHeads + h]!);
      }
    }
    const outQ = q.flatMap((x, at) => turned(x, qGain, c.rows[Math.floor(at / heads)]!.position));
    return { 'attentionPrep.outQ': outQ, ...pages.expected };
  },
  indexPrep: (c) => {
    const [heads, dim] = [c.n('heads'), c.n('dim')];
    const [gain, rope] = [c.weight('qGain'), c.weight('rope')];
    const pages = new PageWriter(c);
    const outQ = c.buffer('qk', (heads + 1) * dim).flatMap((x, r) => {
      const row = c.rows[r]!;
      pages.write(row, row.position, c.n('raw'), (row.position % c.given.pageTokens) * dim, x.slice(heads * dim));
      return cut(x.slice(0, heads * dim), dim).flatMap((head) =>
        rotate(c, rmsNorm(c, head, gain, c.n('eps')), rope, row.position, c.n('rotary')),
      );
    });
    return { 'indexPrep.outQ': outQ, ...pages.expected };
  },
  indexBlocks: (c) => {
    const [dim, block] = [c.n('dim'), c.n('block')];
    const pages = new PageWriter(c);
    for (const row of c.rows) {
      if (row.position % block !== block - 1) continue;
      const first = row.position - block + 1;
      const slot = first % c.given.pageTokens;
      const raws = Array.from({ length: block }, (_, i) =>
        c.page(row.sequence, first, c.n('raw'), (slot + i) * dim, dim),
      );
      const mean = raws[0]!.map((_, i) => c.A(raws.reduce((sum, raw) => sum + raw[i]!, 0) / block));
      const key = rotate(c, rmsNorm(c, mean, c.weight('kGain'), c.n('eps')), c.weight('rope'), first, c.n('rotary'));
      pages.write(row, first, c.n('blocks'), (slot / block) * dim, key);
    }
    return pages.expected;
  },
  indexSelect: (c) => {
    const [heads, dim, block, budget] = [c.n('heads'), c.n('dim'), c.n('block'), c.n('budgetBlocks')];
    const q = c.buffer('q', heads * dim);
    const weights = c.op.fields.weights === -1 ? undefined : c.buffer('weights', heads);
    const out = c.rows.flatMap(({ row, position, sequence }) => {
      const complete = Math.floor((position + 1) / block);
      if (complete <= budget) return [-1, ...Array<number>(budget).fill(Number.NaN)];
      const scores = Array.from({ length: complete }, (_, b) => {
        const slot = (b * block) % c.given.pageTokens;
        const key = c.page(sequence, b * block, c.n('blocks'), (slot / block) * dim, dim);
        return cut(q[row]!, dim).reduce((sum, head, h) => {
          const positive = Math.max(0, dot(head, key) * c.n('dotScale'));
          return sum + (weights ? weights[row]![h]! * c.n('weightScale') : 1) * positive;
        }, 0);
      });
      // A block is chosen when fewer than `budget` blocks beat it; an equal one beats it from a lower place.
      const beats = (a: number, b: number): boolean => scores[a]! > scores[b]! || (scores[a] === scores[b] && a < b);
      const chosen = scores.flatMap((_, b) => (scores.filter((__, a) => beats(a, b)).length < budget ? [b] : []));
      return [budget, ...chosen];
    });
    return { 'indexSelect.out': out };
  },
  attention: (c) => {
    const [heads, kvHeads, dim, block] = [c.n('heads'), c.n('kvHeads'), c.n('dim'), c.n('block')];
    const [q, packed] = [c.buffer('q', dim), c.buffer('packed', 2 * dim)];
    const select = c.op.fields.select === -1 ? undefined : c.buffer('select', 1 + c.n('budgetBlocks'));
    const visible = ({ row, position }: CaseRow): number[] => {
      const all = Array.from({ length: position + 1 }, (_, t) => t);
      const chosen = select?.[row];
      if (!chosen || chosen[0] === -1) return all;
      const complete = Math.floor((position + 1) / block);
      return all.filter((t) => t >= complete * block || chosen.slice(1).includes(Math.floor(t / block)));
    };
    const out = q.flatMap((query, at) => {
      const row = c.rows[Math.floor(at / heads)]!;
      const kvHead = Math.floor(((at % heads) * kvHeads) / heads);
      const read = (base: string, t: number): number[] =>
        c.page(row.sequence, t, c.n(base), (kvHead * c.given.pageTokens + (t % c.given.pageTokens)) * dim, dim);
      const tokens = visible(row);
      const scores = tokens.map((t) => c.A(c.A(dot(query, read('keys', t))) / Math.sqrt(dim)));
      const weights = scores.map((s) => Math.exp(s - Math.max(...scores)));
      const total = weights.reduce((sum, w) => sum + w, 0);
      const p = weights.map((w) => c.A(w / total));
      const mixed = query.map((_, i) => c.A(tokens.reduce((sum, t, n) => sum + p[n]! * read('values', t)[i]!, 0)));
      return mixed.map((o, i) => c.A(o * c.gate(packed[at]![dim + i]!)));
    });
    return { 'attention.out': out };
  },
};
