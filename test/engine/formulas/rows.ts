/** Float64 formulas of the ops that treat every row by itself. */
import { cut, dot, rmsNorm, sigmoid, type CaseView } from './case-view.js';
import type { FormulaTable } from './formulas.js';

export const ROW_FORMULAS: FormulaTable = {
  embed: (c) => {
    const table = cut(c.weight('weight'), c.n('width'));
    return {
      'embed.out': c.rows.flatMap(({ token }) =>
        Array.from({ length: c.n('copies') }, () => table[token]!.map(c.A)).flat(),
      ),
    };
  },
  norm: (c) => {
    const gain = c.op.fields.gain === -1 ? undefined : c.weight('gain');
    const [width, group] = [c.n('width'), c.n('group')];
    const out = c
      .buffer('in', width)
      .flatMap((row) => cut(row, group).flatMap((x, g) => rmsNorm(c, x, gain?.slice(g * group), c.n('eps'))));
    return { 'norm.out': out };
  },
  linear: (c) => {
    const input = c.buffer('in', c.n('inWidth'));
    const project = (name: string, bias?: string): number[][] => {
      const matrix = cut(c.weight(name), c.n('inWidth'));
      const added = bias === undefined ? undefined : c.weight(bias);
      return input.map((x) => matrix.map((taps, o) => c.A(dot(taps, x) + (added?.[o] ?? 0))));
    };
    const a = project('a');
    if (c.n('segments') === 1) return { 'linear.out[0]': a.flat() };
    const [b, last] = [project('b', 'bias'), project('c')];
    const wide = a.flatMap((row, r) => [Number.NaN, Number.NaN, ...row, ...last[r]!, Number.NaN]); // NaN: not written
    return { 'linear.out[0]': wide, 'linear.out[1]': b.flat(), 'linear.out[2]': wide };
  },
  groupedLinear: (c) => {
    const [groups, ins, outs] = [c.n('groups'), c.n('groupIn'), c.n('groupOut')];
    const matrix = cut(c.weight('weight'), ins);
    const out = c.buffer('in', ins).flatMap((x, at) => {
      const first = (at % groups) * c.n('rowStride') + c.n('rowOffset');
      return matrix.slice(first, first + outs).map((taps) => c.A(dot(taps, x)));
    });
    return { 'groupedLinear.out': out };
  },
  layerNorm: (c) => {
    const [gain, bias] = [c.weight('gain'), c.weight('bias')];
    const out = c.buffer('in', c.n('width')).flatMap((x) => {
      const mean = x.reduce((sum, v) => sum + v, 0) / x.length;
      const variance = x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / x.length;
      return x.map((v, i) => c.A(((v - mean) / Math.sqrt(variance + c.n('eps'))) * gain[i]! + bias[i]!));
    });
    return { 'layerNorm.out': out };
  },
  hcAct: (c) => {
    const streams = c.n('streams');
    const down = c
      .buffer('down', 1)
      .flat()
      .map((v) => c.silu(c.A(v / streams)));
    if (c.op.fields.inject === -1) return { 'hcAct.down': down };
    const inject = c
      .buffer('inject', 1)
      .flat()
      .map((v) => c.A(2 * c.gate(c.A(v / streams))));
    return { 'hcAct.down': down, 'hcAct.inject': inject };
  },
  hcMix: (c) => {
    const [hidden, streams] = [c.n('hidden'), c.n('streams')];
    const [mix, normed] = [c.buffer('mix', hidden * streams), c.buffer('normed', hidden * streams)];
    const mean = (row: number, i: number): number => {
      const terms = Array.from({ length: streams }, (_, s) => s * hidden + i);
      return c.A(terms.reduce((sum, at) => sum + c.A(c.sigma(mix[row]![at]!) * normed[row]![at]!), 0) / streams);
    };
    return { 'hcMix.out': mix.flatMap((_, row) => Array.from({ length: hidden }, (__, i) => mean(row, i))) };
  },
  hcWrite: (c) => {
    const [hidden, streams] = [c.n('hidden'), c.n('streams')];
    const y = c.buffer('y', hidden);
    const ones = y.map(() => Array<number>(streams).fill(1));
    const inject = c.op.fields.inject === -1 ? ones : c.buffer('inject', streams);
    const out = c
      .buffer('residual', hidden * streams)
      .flatMap((row, r) =>
        row.map((v, at) => c.A(v + c.A(inject[r]![Math.floor(at / hidden)]! * y[r]![at % hidden]!))),
      );
    return { 'hcWrite.residual': out };
  },
  gatedNorm: (c) => {
    const dim = c.n('dim');
    const weight = c.weight('weight');
    const z = c.buffer('z', dim);
    const gate = c.n('silu') === 1 ? (x: number): number => x * sigmoid(x) : sigmoid;
    const out = c.buffer('in', dim).flatMap((x, head) => {
      const scale = 1 / Math.sqrt(dot(x, x) / dim + c.n('eps'));
      return x.map((v, i) => c.A(c.A(c.A(v * scale) * weight[i]!) * gate(z[head]![i]!)));
    });
    return { 'gatedNorm.out': out };
  },
  swiglu: (c) => ({ 'swiglu.out': elementwise(c, ['gate', 'up'], (gate, up) => c.swiglu(gate, up)) }),
  add: (c) => ({ 'add.out': elementwise(c, ['a', 'b'], (a, b) => c.A(a + b)) }),
  pleGate: (c) => {
    const [hidden, streams] = [c.n('hidden'), c.n('streams')];
    const [key, query, value] = [c.buffer('key', hidden), c.buffer('query', hidden), c.buffer('value', hidden)];
    const out = key.flatMap((k, stream) => {
      const sum = c.A(k.reduce((total, v, i) => total + c.A(v * query[stream]![i]!), 0));
      const a = c.A(sum / Math.sqrt(hidden));
      const score = Math.sign(a) * c.A(Math.sqrt(Math.max(Math.abs(a), 1e-6)));
      const gate = c.n('lowering') === 1 ? c.gate(score) : c.sigma(score);
      return value[Math.floor(stream / streams)]!.map((v) => c.A(gate * v));
    });
    return { 'pleGate.out': out };
  },
  pleAdd: (c) => ({ 'pleAdd.residual': elementwise(c, ['residual', 'u', 'conv'], (r, u, w) => c.A(r + c.A(u + w))) }),
  gather: (c) => {
    const input = c.buffer('in', c.n('width'));
    const chosen = c.rows.filter(({ sequence, at }) => sequence.outRows.includes(at));
    return { 'gather.out': chosen.flatMap(({ row }) => input[row]!) };
  },
  embedGreedy: (c) => {
    const table = cut(c.weight('weight'), c.n('width'));
    const ids = c.buffer('logits', c.n('vocab')).map((row) => row.indexOf(Math.max(...row)));
    return {
      'embedGreedy.outIds': ids,
      'embedGreedy.out': ids.flatMap((id) => Array.from({ length: c.n('copies') }, () => table[id]!.map(c.A)).flat()),
    };
  },
  tap: (c) => ({ 'tap.out': c.buffer('in', c.n('width')).flat() }),
};

function elementwise(
  c: CaseView,
  fields: readonly string[],
  formula: (a: number, b: number, c: number) => number,
): number[] {
  const [a, b, third = a] = fields.map((field) => c.buffer(field, 1).flat());
  return a!.map((v, i) => formula(v, b![i]!, third![i]!));
}
