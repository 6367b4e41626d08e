/**
 * The work that each stage of a speculative sequence asks for.
 *
 * Invariant: nothing is changed here, so asking twice gives the same.
 */
import type { CommitRequest, DraftHead, SequenceState } from '../engine/model.js';
import type { SpeculativeSampler } from '../sample/speculation.js';
import type { HeldStates } from './held-states.js';
import type { HeadRows, OwedRows } from './owed-rows.js';
import { nextPromptChunk } from './prompt-chunk.js';
import type { Work } from './sequence.js';
import type { DueCommit, Stage } from './speculative-stage.js';

/** What the works are made of. */
export interface WorkParts {
  readonly options: {
    readonly promptTokens: readonly number[];
    readonly prefillChunk?: number | undefined;
    readonly stablePrefix?: number | undefined;
    readonly head: DraftHead | undefined;
    readonly sampler: SpeculativeSampler;
  };
  readonly held: HeldStates;
  readonly owed: OwedRows;
  readonly due: DueCommit | undefined;
  /** The hidden stream of the last committed token. */
  readonly stream: () => Float32Array;
}

export function workOf(stage: Stage, { options, held, owed, due, stream }: WorkParts): Work | undefined {
  switch (stage.at) {
    case 'prompt': {
      const { promptTokens, prefillChunk, stablePrefix } = options;
      const request = nextPromptChunk(held.get('trunk'), promptTokens, prefillChunk, stablePrefix);
      const hidden = options.head ? 'all' : request.logits;
      return { kind: 'forward', phase: 'prefill', request: { ...request, hidden } };
    }
    case 'append-prompt':
      return appendOf(held.get('head'), stage);
    case 'draft': {
      const { drafts, depth } = stage.round;
      const request = {
        state: held.get(drafts.length === 0 ? 'head' : 'draft'),
        ...owed.with(stage.token, stage.hidden),
        output: 'last' as const,
        drafts: options.sampler.greedyDrafts ? depth - drafts.length : 1,
      };
      return { kind: 'draft', request, commit: due && commitOf(held, due) };
    }
    case 'verify': {
      const { primary, drafts } = stage.round;
      const request = {
        state: held.get('trunk'),
        tokens: [primary, ...drafts.map(({ tokenId }) => tokenId)],
        logits: 'all' as const,
        hidden: 'all' as const,
        revocable: drafts.length > 0,
      };
      return { kind: 'forward', phase: 'verify', request };
    }
    case 'append':
      return appendOf(held.get('head'), owed.rows);
    case 'closing-append':
      return appendOf(held.get('head'), owed.with(stage.last, stream()));
    case 'closing-forward': {
      const request = { state: held.get('trunk'), tokens: [stage.last], logits: 'last', hidden: 'last' } as const;
      return { kind: 'forward', phase: 'final-primary', request };
    }
    case 'ended':
      return undefined;
  }
}

export function commitOf(held: HeldStates, { window, keep }: DueCommit): CommitRequest {
  return { before: held.get('trunk'), after: held.get('verified'), window, keep };
}

function appendOf(state: SequenceState, { tokens, hidden }: HeadRows): Work {
  return { kind: 'draft', request: { state, tokens, hidden, output: 'none' } };
}
