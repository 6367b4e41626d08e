/**
 * An answer as its parts make it, gathered while it is given to a client or read again from its tokens.
 *
 * Invariant: both ways give the same answer, because a reader's parts do not show how its text was cut.
 */
import type { AnswerPart } from '../chat/conversation.js';
import { PlumblineError } from '../errors.js';
import type { TextSink } from '../schedule/request.js';
import type { PartReader } from './served-model.js';

interface GivenCall {
  readonly id: string;
  readonly name: string;
  arguments: string;
}

export class GatheredAnswer {
  content = '';
  reasoning = '';
  readonly toolCalls: GivenCall[] = [];

  take(part: AnswerPart): void {
    switch (part.kind) {
      case 'content':
        this.content += part.text;
        return;
      case 'reasoning':
        this.reasoning += part.text;
        return;
      case 'tool-call':
        this.toolCalls[part.index] = { id: part.id, name: part.name, arguments: '' };
        return;
      case 'tool-arguments': {
        const call = this.toolCalls[part.index];
        if (call !== undefined) call.arguments += part.text;
      }
    }
  }
}

export interface AnswerReading {
  /** Fresh ones. */
  readonly text: TextSink;
  readonly reader: PartReader;
  readonly stopTokenIds: readonly number[];
  /** How many tokens make the answer complete without a stop token; undefined: none do. */
  readonly completedAt: number | undefined;
}

/** The answer that completion tokens make; undefined when the client is given none of them, or not all. */
export function readAnswer(
  completion: ArrayLike<number>,
  { text, reader, stopTokenIds, completedAt = Infinity }: AnswerReading,
): GatheredAnswer | undefined {
  const answer = new GatheredAnswer();
  const ids = Array.from(completion);
  const stopped = stopTokenIds.includes(ids.at(-1)!);
  const steps = (stopped ? ids.slice(0, -1) : ids).map((id) => text.push(id));
  steps.push(text.flush());
  if (steps.some(({ stop }) => stop !== undefined)) return undefined;
  const cut = !stopped && ids.length < completedAt;
  try {
    for (const step of steps) for (const part of reader.push(step.text)) answer.take(part);
    for (const part of reader.finish(cut)) answer.take(part);
  } catch (error) {
    // The client is told the same instead of an answer.
    if (error instanceof PlumblineError && error.code === 'tool_call_unterminated') return undefined;
    throw error;
  }
  return answer;
}
