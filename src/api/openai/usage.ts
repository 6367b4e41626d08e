/** Token counts and times of a finished generation, as the wire shows them. */
import type { GenerationUsage } from '../../schedule/request.js';

export interface OpenAiUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
}

export function openAiUsage(usage: GenerationUsage): OpenAiUsage {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
  };
}

export interface OpenAiTimings {
  readonly prefill_ms: number;
  readonly decode_ms: number;
  /** Prompt tokens that were forwarded, a second; null when none were or the time is too short to say. */
  readonly prefill_tokens_per_second: number | null;
  readonly decode_tokens_per_second: number | null;
}

export function openAiTimings(usage: GenerationUsage): OpenAiTimings {
  return {
    prefill_ms: rounded(usage.prefillMs, 3),
    decode_ms: rounded(usage.decodeMs, 3),
    prefill_tokens_per_second: rate(usage.promptTokens - usage.cachedTokens, usage.prefillMs),
    decode_tokens_per_second: rate(usage.completionTokens, usage.decodeMs),
  };
}

export type OpenAiSpeculation =
  | { readonly mode: 'off'; readonly reason: string }
  | {
      readonly mode: string;
      readonly depth_policy: string;
      readonly max_depth: number;
      readonly rounds: number;
      /** Drafts decided, and those accepted, by depth from 1. */
      readonly offered: readonly number[];
      readonly accepted: readonly number[];
      readonly copy_rounds: number;
      readonly copy_offered: number;
      readonly copy_accepted: number;
      /** Windows of which only a part was kept. */
      readonly partial_commits: number;
      /** Rounds without a draft, by reason. */
      readonly skipped: Readonly<Record<string, number>>;
    };

export function openAiSpeculation({ speculation }: GenerationUsage): OpenAiSpeculation {
  if (speculation === undefined) return { mode: 'off', reason: 'not asked for' };
  if (speculation.mode === 'off') return speculation;
  return {
    mode: speculation.mode,
    depth_policy: speculation.depthPolicy,
    max_depth: speculation.maxDepth,
    rounds: speculation.rounds,
    offered: speculation.offered,
    accepted: speculation.accepted,
    copy_rounds: speculation.copyRounds,
    copy_offered: speculation.copyOffered,
    copy_accepted: speculation.copyAccepted,
    partial_commits: speculation.commits,
    skipped: speculation.skipped,
  };
}

const rounded = (value: number, digits: number): number => Number(value.toFixed(digits));

const rate = (tokens: number, milliseconds: number): number | null =>
  tokens > 0 && milliseconds > 0 ? rounded((tokens * 1000) / milliseconds, 2) : null;
