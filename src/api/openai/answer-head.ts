/** The members that every answer and chunk of the OpenAI dialect has, and the `plumbline` block of a finished answer. */
import { randomUUID } from 'node:crypto';
import type { FinishEvent, RequestContext } from '../answer.js';
import type { LogitsWarning } from '../../sample/row-watch.js';
import type { ServedModel } from '../served-model.js';
import { sessionBlock, type SessionBlock } from '../session-block.js';
import { wireCensus, type WireCensus } from './census.js';
import { openAiSpeculation, openAiTimings, type OpenAiSpeculation, type OpenAiTimings } from './usage.js';

export interface AnswerHead<Kind extends string> {
  readonly id: string;
  readonly object: Kind;
  /** Unix time in seconds. */
  readonly created: number;
  readonly model: string;
  readonly system_fingerprint: string;
}

export function answerHead<Kind extends string>(
  prefix: string,
  object: Kind,
  model: ServedModel,
  context: RequestContext,
): AnswerHead<Kind> {
  const { version, backend, activationLaw } = model.build;
  return {
    id: `${prefix}-${randomUUID().replaceAll('-', '')}`,
    object,
    created: Math.floor(context.now / 1000),
    model: model.id,
    system_fingerprint: `plumbline-${version}-${backend}-${activationLaw}`,
  };
}

/** How the answer was computed: enough to ask for the same bytes again. */
export interface PlumblineBlock {
  readonly request_id: string;
  /** Decimal digits, because JSON numbers end at 2^53. */
  readonly seed: string;
  readonly backend: string;
  readonly activation_law: string;
  /** The stop string or stop token id that ended the answer. */
  readonly stop_match: string | number | null;
  readonly timings: OpenAiTimings;
  /** What speculation did, or why it was not used. */
  readonly speculation: OpenAiSpeculation;
  /** What was reused and kept of the conversation; null where no sessions are kept. */
  readonly session: SessionBlock | null;
  /** Rows that were no numbers to choose from and were made into tokens all the same, as the model's law says. */
  readonly logits_warning?: WireLogitsWarning;
  /** Fields of the request that nothing read. */
  readonly ignored: readonly string[];
}

export interface WireLogitsWarning {
  readonly rows: number;
  readonly first: WireCensus;
}

function wireLogitsWarning({ rows, first }: LogitsWarning): WireLogitsWarning {
  return { rows, first: wireCensus(first) };
}

export function plumblineBlock(
  model: ServedModel,
  context: RequestContext,
  ignored: readonly string[],
  { usage, stopMatch }: FinishEvent,
): PlumblineBlock {
  return {
    request_id: context.requestId,
    seed: usage.seed.toString(),
    backend: model.build.backend,
    activation_law: model.build.activationLaw,
    stop_match: stopMatch ?? null,
    timings: openAiTimings(usage),
    speculation: openAiSpeculation(usage),
    session: sessionBlock(usage.session),
    ...(usage.logitsWarning && { logits_warning: wireLogitsWarning(usage.logitsWarning) }),
    ignored,
  };
}
