/** Op cases of chosen shapes, and their judgement by the reference, for backends whose kernels have many paths. */
import assert from 'node:assert/strict';
import type { Backend } from '../../src/engine/backends/backend.js';
import type { ActivationLaw } from '../../src/engine/plan/builder.js';
import type { WeightDtype } from '../../src/engine/plan/ops.js';
import { CaseWriter, type CaseShape } from './op-case-writer.js';
import { assertSameOutputs, runOpCase, type CaseOutputs, type OpCase } from './op-case.js';

/** One sequence of `rows` rows. */
export const rowsOf = (rows: number): CaseShape => ({ pageTokens: 16, sequences: [[0, rows]] });

/** All backends give the bits of the reference and leave no memory behind. @param judged which backends, by name. @returns what is expected */
export async function judgeCases(
  reference: Backend,
  backends: readonly { readonly name: string; readonly backend: Backend }[],
  cases: readonly OpCase[],
  judged: (name: string) => boolean = () => true,
): Promise<CaseOutputs[]> {
  const all: CaseOutputs[] = [];
  for (const given of cases) {
    const expected = await runOpCase(reference, given);
    all.push(expected);
    for (const { name, backend } of backends) {
      if (!judged(name)) continue;
      assertSameOutputs(await runOpCase(backend, given), expected, `${given.name}, ${name}`);
      assert.equal(backend.memory().allocated, 0, given.name);
    }
  }
  return all;
}

/** A linear op; its name, and so its numbers, are the same for every number of rows. */
export function linearCase(
  law: ActivationLaw,
  rows: number,
  inWidth: number,
  outs: number,
  dtype: WeightDtype,
): OpCase {
  const c = new CaseWriter(`linear ${inWidth} to ${outs} ${dtype}`, 'linear', law, rowsOf(rows), false);
  const weight = c.weight('weight', outs * inWidth, dtype);
  const source = c.input('in', inWidth);
  c.output('out', outs);
  c.linear({ rows: 0, in: source, inWidth, segments: 1 }, [{ weight, out: 'out', outColumn: 0, outs }]);
  return c.finish();
}

export interface CrowdedExperts {
  readonly law: ActivationLaw;
  readonly rows: number;
  readonly dtype: WeightDtype;
  readonly hidden: number;
  readonly width: number;
  /** Where each expert's part of all pairs begins, and the end: of two choices a row, all first ones and then all second ones. */
  readonly offsets: readonly number[];
}

/** moeUp with experts that have many rows. */
export function crowdedExpertsCase({ law, rows, dtype, hidden, width, offsets }: CrowdedExperts): OpCase {
  const c = new CaseWriter(`moeUp crowded ${dtype}`, 'moeUp', law, rowsOf(rows), false);
  const [experts, topK] = [offsets.length - 1, 2];
  const perExpert = (kind: string): string[] =>
    Array.from({ length: experts }, (_, e) => c.weight(`${kind} ${e}`, width * hidden, dtype));
  const [gate, up] = [perExpert('gate'), perExpert('up')];
  const list = Array.from({ length: rows * topK }, (_, i) => (i % rows) * topK + Math.floor(i / rows));
  c.add('moeUp', {
    in: c.input('in', hidden),
    hidden,
    offsets: c.ints('offsets', experts + 1, offsets),
    list: c.ints('list', topK, list),
    gate: gate[0]!,
    up: up[0]!,
    ...{ experts, topK, width },
    out: c.output('out', topK * width),
    limit: 0,
  });
  return c.finish();
}
