/**
 * Cases of hyper-connections, per-channel decays, grouped maps and scored routing in shapes that reach every path of the
 * fast kernels: whole and partial vectors, several blocks of rows and columns, many experts in many groups.
 */
import type { OpCase } from './op-case.js';
import { CaseWriter, type CaseShape } from './op-case-writer.js';
import { CASE_LAWS } from './op-cases.js';
import { DTYPES } from './op-recipe.js';

const F32 = CASE_LAWS.find(({ name }) => name === 'f32')!;
const BF16 = CASE_LAWS.find(({ name }) => name === 'bf16')!;

/** One sequence of `rows` rows. */
const rowsOf = (rows: number): CaseShape => ({ pageTokens: 16, sequences: [[0, rows]] });

function kdaCases(): OpCase[] {
  const shape: CaseShape = { pageTokens: 16, sequences: [[9, 1], [0, 2], [30, 19]] }; // prettier-ignore
  return [64, 75, 128, 150].map((dim) => {
    const c = new CaseWriter(`kda ${dim}`, 'kda', F32, shape, false);
    const heads = 2;
    c.add('kda', {
      conv: c.input('conv', 3 * heads * dim),
      f: c.input('f', heads * dim, 3),
      b: c.input('b', heads, 2),
      out: c.output('out', heads * dim),
      ...{ heads, dim },
      bound: dim === 128 ? 0 : 5,
      expA: c.values('expA', Float32Array.of(0.3, 1.7)),
      dtBias: c.weight('dtBias', heads * dim),
      state: c.fixed(heads * dim * dim),
    });
    return c.finish();
  });
}

/** Streams of weights, blocks of rows, chunks of outs, panels of columns. */
function groupedCases(): OpCase[] {
  const sizes = [
    { rows: 1, groupIn: 1100, groupOut: 131 },
    { rows: 3, groupIn: 80, groupOut: 21 },
    { rows: 6, groupIn: 2100, groupOut: 7 },
    { rows: 130, groupIn: 48, groupOut: 70 },
  ];
  return DTYPES.flatMap((dtype) =>
    sizes.map(({ rows, groupIn, groupOut }) => {
      const c = new CaseWriter(
        `groupedLinear ${groupIn} ${groupOut} ${dtype}`,
        'groupedLinear',
        F32,
        rowsOf(rows),
        false,
      );
      const [groups, rowOffset] = [3, 4];
      const rowStride = groupOut + 9;
      c.add('groupedLinear', {
        rows: 0,
        in: c.input('in', groups * groupIn),
        out: c.output('out', groups * groupOut),
        ...{ groups, groupIn, groupOut },
        weight: c.weight('weight', groups * rowStride * groupIn, dtype),
        ...{ rowStride, rowOffset },
      });
      return c.finish();
    }),
  );
}

function routerCases(): OpCase[] {
  return [0, 1].map((score) => {
    const c = new CaseWriter(`scoreRouter wide ${score}`, 'scoreRouter', F32, rowsOf(40), false);
    const [experts, topK, groups, groupsKept] = [288, 8, 12, 5];
    c.add('scoreRouter', {
      ...{ logits: score === 0 ? c.coarseInput('logits', experts) : c.input('logits', experts), experts, topK },
      ...{ groups, groupsKept, score },
      normalise: 1,
      scaling: 2.5,
      bias: c.weight('bias', experts, 'F32', score === 0 ? 0 : 0.2),
      table: -1,
      ...{ outIndex: c.output('index', topK), outWeight: c.output('weight', topK) },
    });
    return c.finish();
  });
}

/** Rows that are cut into columns. */
function streamCases(): OpCase[] {
  return [F32, BF16].flatMap((law) =>
    [4, 8].flatMap((streams) => {
      const hidden = 1301;
      const weightsWidth = (2 + streams) * streams;
      const sum = new CaseWriter(`mhcSum wide ${law.name} ${streams}`, 'mhcSum', law, rowsOf(3), false);
      const weights = sum.input('weights', weightsWidth);
      const residual = sum.input('residual', streams * hidden, 2);
      const out = sum.output('out', hidden);
      sum.add('mhcSum', { rows: 0, weights, weightsWidth, residual, out, hidden, streams });
      const write = new CaseWriter(`mhcWrite wide ${law.name} ${streams}`, 'mhcWrite', law, rowsOf(3), false);
      write.add('mhcWrite', {
        residual: write.input('residual', streams * hidden, 2),
        weights: write.input('weights', weightsWidth),
        weightsWidth,
        y: write.input('y', hidden),
        ...{ hidden, streams },
      });
      return [sum.finish(), write.finish()];
    }),
  );
}

export function manifoldShapeCases(): OpCase[] {
  return [...kdaCases(), ...groupedCases(), ...routerCases(), ...streamCases()];
}
