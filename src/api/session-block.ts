/** What an answer tells of its session: which it was, what was reused, what is kept, and why not more. */
import type { SessionReport } from '../schedule/request.js';

export interface SessionBlock {
  readonly id: string;
  /** Where the id comes from: `x-session-id`, `prompt_cache_key`, or the prompt itself. */
  readonly source: SessionReport['source'];
  readonly restore: 'restored' | 'no-match' | 'rejected';
  /** Of what was restored. */
  readonly from: 'ram' | 'disk' | null;
  /** Why nothing was. */
  readonly reason: string | null;
  readonly reused_tokens: number;
  /** What the state was known by: its tokens, its text, or its text without what the client was not shown. */
  readonly matched_by: 'tokens' | 'text' | 'visible_text' | null;
  /** Why a state that was found by its text was not gone on from. */
  readonly text_declined: string | null;
  /** Earlier answers that stand in the prompt with the tokens that were generated. */
  readonly spliced_turns: number;
  /** Why the latest earlier answer does not. */
  readonly splice_declined: string | null;
  /** Whether the state behind this answer is kept, or why not. */
  readonly stored: { readonly ram: string; readonly disk: string };
}

export function sessionBlock(report: SessionReport | undefined): SessionBlock | null {
  if (report === undefined) return null;
  const { restore } = report;
  return {
    id: report.id,
    source: report.source,
    restore: restore.kind,
    from: restore.kind === 'restored' ? restore.from : null,
    reason: restore.kind === 'restored' ? null : restore.reason,
    reused_tokens: report.reusedTokens,
    matched_by: report.matchedBy ?? null,
    text_declined: report.textDeclined ?? null,
    spliced_turns: report.splicedTurns,
    splice_declined: report.spliceDeclined ?? null,
    stored: report.stored,
  };
}
