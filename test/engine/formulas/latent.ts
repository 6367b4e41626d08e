/** Float64 formulas of attention whose keys are their own values, and of what feeds it. */
import { cut, dot, PageWriter, rmsNorm, type CaseRow, type CaseView } from './case-view.js';
import type { FormulaTable } from './formulas.js';

export const LATENT_FORMULAS: FormulaTable = {
  ropeTail: (c) => {
    const [heads, dim, rows] = [c.n('heads'), c.n('dim'), c.n('rows')];
    const rope = c.weight('rope');
    const selected = c.rows.filter(({ sequence, at }) => sequence.outRows.includes(at));
    const trunk = rows === 1 ? selected : c.rows;
    const turned = c.buffer('in', dim).flatMap((head, h) => {
      const { position } = trunk[Math.floor(h / (heads * Math.max(rows, 1)))]!;
      return turnPairs(c, head, rope, position, c.n('rotary'), c.n('inverse') === 1);
    });
    return { 'ropeTail.out': turned };
  },
  latentStore: (c) => {
    const dim = c.n('dim');
    const pages = new PageWriter(c);
    c.buffer('in', dim).forEach((latent, r) => {
      const row = c.rows[r]!;
      pages.write(row, row.position, c.n('latent'), (row.position % c.given.pageTokens) * dim, latent);
    });
    return pages.expected;
  },
  pool: (c) => {
    const [channels, window, overlap] = [c.n('channels'), c.n('window'), c.n('overlap')];
    const width = (1 + overlap) * channels;
    const slots = (1 + overlap) * window;
    const [values, gates] = [c.buffer('values', width), c.buffer('gates', width)];
    const ape = cut(c.weight('ape'), width);
    const pages = new PageWriter(c);
    const slabs: Record<string, number[]> = {};
    /** Value and gate rows of a position as the sequence of `row` sees them; undefined before its first token. */
    const raw = (row: CaseRow, position: number): readonly [number[], number[]] | undefined => {
      if (position < 0) return undefined;
      const { startPosition, slab } = row.sequence;
      const from = c.n('state') / 4 + (position % slots) * 2 * width;
      if (position < startPosition) {
        return [Array.from(slab.slice(from, from + width)), Array.from(slab.slice(from + width, from + 2 * width))];
      }
      const at = row.row - row.at + position - startPosition;
      return [values[at]!, gates[at]!];
    };
    for (const row of c.rows) {
      const end = row.position + 1;
      if (row.at === row.sequence.tokens.length - 1) {
        const slab = Array<number>(row.sequence.slab.length).fill(Number.NaN);
        for (let age = 0; age < slots; age++) {
          const kept = raw(row, end - slots + age)?.flat() ?? Array<number>(2 * width).fill(0);
          const slot = (end + age) % slots;
          kept.forEach((value, i) => (slab[c.n('state') / 4 + slot * 2 * width + i] = value));
        }
        slabs[`slab ${row.sequenceIndex}`] = slab;
      }
      if (end % window !== 0) continue;
      const first = end - window;
      const from = first - overlap * window;
      const pooled = Array.from({ length: channels }, (_, ch) => {
        const terms = Array.from({ length: slots }, (__, s) => {
          const column = s < overlap * window ? ch : overlap * channels + ch;
          const source = raw(row, from + s);
          return source && { value: source[0][column]!, logit: source[1][column]! + ape[s % window]![column]! };
        }).filter((term) => term !== undefined);
        const most = Math.max(...terms.map(({ logit }) => logit));
        const total = terms.reduce((sum, { logit }) => sum + Math.exp(logit - most), 0);
        return c.A(terms.reduce((sum, { value, logit }) => sum + (Math.exp(logit - most) / total) * value, 0));
      });
      const normed = c.op.fields.gain === -1 ? pooled : rmsNorm(c, pooled, c.weight('gain'), c.n('eps'));
      const rotary = c.n('rotary');
      const out = rotary === 0 ? normed : turnPairs(c, normed, c.weight('rope'), first, rotary, false);
      pages.write(row, first, c.n('pooled'), ((first % c.given.pageTokens) / window) * channels, out);
    }
    return { ...pages.expected, ...slabs };
  },
  windowAttention: (c) => {
    const [heads, dim, window, block] = [c.n('heads'), c.n('dim'), c.n('window'), c.n('block')];
    const kv = c.buffer('kv', dim);
    const sink = c.op.fields.sink === -1 ? undefined : c.weight('sink');
    const slabs: Record<string, number[]> = {};
    const near = (row: CaseRow, position: number): number[] => {
      const { startPosition, slab } = row.sequence;
      const from = c.n('state') / 4 + (position % window) * dim;
      if (position < startPosition) return Array.from(slab.slice(from, from + dim));
      return kv[row.row - row.at + position - startPosition]!;
    };
    const out = c.buffer('q', dim).flatMap((query, at) => {
      const row = c.rows[Math.floor(at / heads)]!;
      const { position, sequence } = row;
      const keys: number[][] = [];
      for (let p = Math.max(0, position - window + 1); p <= position; p++) keys.push(near(row, p));
      const complete = block === 0 ? 0 : Math.floor((position + 1) / block);
      const chosen = selected(c, row);
      for (let b = 0; b < complete; b++) {
        if (chosen && !chosen.includes(b)) continue;
        const element = (((b * block) % c.given.pageTokens) / block) * dim;
        keys.push(c.page(sequence, b * block, c.n('compressed'), element, dim));
      }
      return attend(c, query, keys, sink?.[at % heads]);
    });
    for (const row of c.rows) {
      if (row.at !== row.sequence.tokens.length - 1) continue;
      const slab = Array<number>(row.sequence.slab.length).fill(Number.NaN);
      for (let p = row.position - window + 1; p <= row.position; p++) {
        const slot = (p + window) % window;
        const kept = p < 0 ? Array<number>(dim).fill(0) : near(row, p);
        kept.forEach((value, i) => (slab[c.n('state') / 4 + slot * dim + i] = value));
      }
      slabs[`slab ${row.sequenceIndex}`] = slab;
    }
    return { 'windowAttention.out': out, ...slabs };
  },
  latentAttention: (c) => {
    const [heads, dim, block] = [c.n('heads'), c.n('dim'), c.n('block')];
    const out = c.buffer('q', dim).flatMap((query, at) => {
      const row = c.rows[Math.floor(at / heads)]!;
      const complete = block === 0 ? 0 : Math.floor((row.position + 1) / block);
      const chosen = selected(c, row);
      const tail = c.op.fields.select === -1 || c.n('tail') === 1;
      const tokens = Array.from({ length: row.position + 1 }, (_, t) => t).filter((t) =>
        t >= complete * block ? tail : !chosen || chosen.includes(Math.floor(t / block)),
      );
      const read = (t: number): number[] => c.page(row.sequence, t, c.n('latent'), (t % c.given.pageTokens) * dim, dim);
      return attend(c, query, tokens.map(read));
    });
    return { 'latentAttention.out': out };
  },
};

/** The blocks that a row's selection names; undefined where all are visible. */
function selected(c: CaseView, { row }: CaseRow): number[] | undefined {
  if (c.op.fields.select === -1) return undefined;
  const [count, ...blocks] = c.buffer('select', 1 + c.n('budgetBlocks'))[row]!;
  return count === -1 ? undefined : blocks;
}

/** Softmax attention over rows that are keys and values; the sink takes its share and gives nothing. */
function attend(c: CaseView, query: readonly number[], keys: readonly number[][], sink?: number): number[] {
  const scores = keys.map((key) => c.A(c.A(dot(query, key)) / Math.sqrt(query.length)));
  const all = sink === undefined ? scores : [...scores, sink];
  const total = all.reduce((sum, s) => sum + Math.exp(s - Math.max(...all)), 0);
  const p = scores.map((s) => c.A(Math.exp(s - Math.max(...all)) / total));
  return query.map((_, i) => c.A(keys.reduce((sum, key, n) => sum + p[n]! * key[i]!, 0)));
}

/** Adjacent pairs of the last `rotary` elements turned as complex numbers; the table has cosines, then sines. */
function turnPairs(
  c: CaseView,
  x: readonly number[],
  table: readonly number[],
  position: number,
  rotary: number,
  inverse: boolean,
): number[] {
  const out = [...x];
  const inner = c.mtplx ? (v: number): number => v : c.A;
  for (let pair = 0; pair < rotary / 2; pair++) {
    const at = x.length - rotary + 2 * pair;
    const cos = table[position * rotary + pair]!;
    const sin = table[position * rotary + rotary / 2 + pair]! * (inverse ? -1 : 1);
    out[at] = c.A(inner(x[at]! * cos) - inner(x[at + 1]! * sin));
    out[at + 1] = c.A(inner(x[at + 1]! * cos) + inner(x[at]! * sin));
  }
  return out;
}
