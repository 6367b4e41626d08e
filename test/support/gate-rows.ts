/** Rows of forwards, by the engine and one token and one layer at a time, and their comparison bit by bit. */
import assert from 'node:assert/strict';
import type { ForwardResult, LanguageModel, SequenceState } from '../../src/engine/model.js';
import type { Phase } from '../../src/engine/plan/phase.js';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import type { SiteLowerings } from './layerwise-blocks.js';
import type { LayerwiseQwen, LayerwiseState } from './layerwise-qwen.js';

export interface Rows {
  readonly hidden: readonly Float32Array[];
  readonly logits: readonly Float32Array[];
}

/** Hidden streams and logits of `tokens` after `state`, by the judge. */
export function judgedRows(
  judge: LayerwiseQwen,
  state: LayerwiseState,
  tokens: readonly number[],
  sites: SiteLowerings,
): Rows & { readonly state: LayerwiseState } {
  const rows = { hidden: [] as Float32Array[], logits: [] as Float32Array[] };
  for (const token of tokens) {
    const { state: next, hidden, logits } = judge.step(state, token, sites);
    state = next;
    rows.hidden.push(hidden);
    rows.logits.push(logits);
  }
  return { ...rows, state };
}

/** One forward of one sequence with all its rows; the caller owns the new state. */
export async function forwardRows(
  model: LanguageModel,
  state: SequenceState,
  tokens: readonly number[],
  phase: Phase,
  revocable = false,
): Promise<Rows & { readonly state: SequenceState; readonly window: ForwardResult['window'] }> {
  const [result] = await model.forward([{ state, tokens, logits: 'all', hidden: 'all', revocable }], { phase });
  const { state: after, logits, hidden, window } = result!;
  return { state: after, logits, hidden: hidden!, window };
}

const bytesOf = (row: Float32Array): Buffer => Buffer.from(row.buffer, row.byteOffset, row.byteLength);

export const sameBits = (a: Float32Array, b: Float32Array): boolean => bytesOf(a).equals(bytesOf(b));

/** Equal bit by bit, row by row; the message names the row. */
export function assertSameRows(actual: Rows, expected: Rows, label: string): void {
  for (const part of ['hidden', 'logits'] as const) {
    assert.equal(actual[part].length, expected[part].length, `${label}: rows of ${part}`);
    expected[part].forEach((row, i) => {
      if (sameBits(actual[part][i]!, row)) return;
      const at = row.findIndex((value, j) => !Object.is(value, actual[part][i]![j]));
      assert.fail(`${label}: ${part} of row ${i} differ at ${at}: ${actual[part][i]![at]}, expected ${row[at]}`);
    });
  }
}

/** Equal in every part of the state, byte by byte. */
export function assertSameState(actual: SequenceState, expected: SequenceState, label: string): void {
  assert.deepEqual((actual as PagedState).tokens(), (expected as PagedState).tokens(), label);
  const parts = (actual as PagedState).snapshot();
  for (const [part, bytes] of (expected as PagedState).snapshot()) {
    assert.ok(Buffer.compare(parts.get(part)!, bytes) === 0, `${label}: ${part}`);
  }
}
