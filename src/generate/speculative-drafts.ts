/**
 * The choice of a round's drafts from the rows that a draft forward brought.
 *
 * Invariants: every row is checked by the sampler before an id is made of it, in order, and the first invalid one raises;
 * rows behind a choice that the head did not go on with are not looked at; each state that came is kept or given back.
 */
import type { DraftResult, SequenceState } from '../engine/model.js';
import { PlumblineError } from '../errors.js';
import type { SpeculativeSampler } from '../sample/speculation.js';
import type { Round } from './speculative-stage.js';

/** The newest draft, and the head's stream that a further one would be made from. */
export interface NewestDraft {
  readonly token: number;
  readonly stream: Float32Array;
}

/**
 * Adds to the round's drafts, one a row, for as long as the head went on with what was chosen.
 * @param step index of the completion token that the round's first draft would be.
 * @param keep is handed the reference to the state of each further row that is used.
 */
export function chooseDrafts(
  sampler: SpeculativeSampler,
  round: Round,
  { logits, hidden, further = [] }: Omit<DraftResult, 'state'>,
  { step, keep }: { readonly step: number; readonly keep: (state: SequenceState) => void },
): NewestDraft {
  const left = [...further];
  try {
    for (let row = { logits, hidden }; ;) {
      if (!row.logits || !row.hidden) throw new PlumblineError('internal_error', 'a draft forward returned no row');
      const at = step + round.drafts.length;
      const choice = sampler.draft(row.logits, { site: 'draft', phase: 'draft', step: at });
      round.drafts.push(choice);
      const [next] = left;
      if (round.drafts.length === round.depth || next?.token !== choice.tokenId) {
        return { token: choice.tokenId, stream: row.hidden };
      }
      left.shift();
      keep(next.state);
      row = next;
    }
  } finally {
    for (const { state } of left) state.release();
  }
}
