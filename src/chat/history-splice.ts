/**
 * Earlier answers put back into a prompt as the very tokens that were generated. A conversation that a client sends again
 * is text, and text renders and encodes into other tokens than a model makes: its reasoning may be left out, its calls
 * printed anew. Where a re-sent answer means the same, the tokens of then stand in for it, so that the state behind them
 * can be used again.
 *
 * Invariants: only answers of the same session come back, and only behind the very conversation that they answered; what
 * means something else stays text, with the reason; a turn is remembered only when it was kept as a whole.
 */
import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { ChatTurn, Conversation, ToolCall } from './conversation.js';

/** An answer as the client was given it. */
export interface GivenAnswer {
  readonly content: string;
  readonly reasoning: string;
  readonly toolCalls: readonly ToolCall[];
}

interface CommittedTurn extends GivenAnswer {
  /** All ids, prompt and answer. */
  readonly tokens: Int32Array;
}

/** Why the latest answer of a conversation is not put back. */
export type SpliceDeclined =
  /** No such answer was given here, or it is forgotten. */
  | 'unknown_turn'
  | 'content_differs'
  | 'tool_calls_differ'
  | 'reasoning_differs'
  /** The template does not say where an answer ends. */
  | 'template_rewrites'
  /** The answer ended with another token than the template writes. */
  | 'turn_end_differs';

/** How far a conversation is one that was had here. */
export interface KnownHistory {
  /** Names the whole conversation: the answer to it is remembered under this. */
  readonly key: string;
  /** The last turn that has tokens of its own, and where it stands. */
  readonly last?: { readonly index: number; readonly tokens: Int32Array } | undefined;
  readonly spliced: number;
  readonly declined?: SpliceDeclined | undefined;
}

/** Ids of all remembered turns together; the session that was not used for the longest time is forgotten first. */
const MOST_TOKENS = 8 << 20;
/** Answers to one and the same conversation: regenerated ones. */
const MOST_ANSWERS = 8;

export class CommittedTurns {
  /** By session, in the order of use; then by the conversation that was answered. */
  readonly #sessions = new Map<string, Map<string, CommittedTurn[]>>();
  #tokens = 0;

  /** Follows a conversation through what was answered here. @param session undefined: nothing is known */
  follow(session: string | undefined, { turns, tools, templateArguments }: Conversation): KnownHistory {
    const known = session === undefined ? undefined : this.#use(session);
    let key = digest('', JSON.stringify([tools, templateArguments]));
    let last: KnownHistory['last'];
    let declined: SpliceDeclined | undefined;
    let spliced = 0;
    turns.forEach((turn, index) => {
      if (turn.role !== 'assistant') {
        key = digest(key, JSON.stringify(turn));
        return;
      }
      const found = known && sameAnswer(turn, known.get(key) ?? []);
      if (typeof found === 'object') {
        last = { index, tokens: found.tokens };
        declined = undefined;
        spliced++;
        key = digest(key, Buffer.from(found.tokens.buffer, found.tokens.byteOffset, found.tokens.byteLength));
      } else {
        declined = found;
        key = digest(key, JSON.stringify(turn));
      }
    });
    return { key, last, spliced, declined };
  }

  /** @param key of the conversation that was answered */
  remember(session: string, key: string, answer: GivenAnswer, tokens: Int32Array): void {
    const turns = this.#use(session) ?? new Map<string, CommittedTurn[]>();
    this.#sessions.set(session, turns);
    const answers = [...(turns.get(key) ?? []), { ...answer, tokens }];
    this.#tokens += tokens.length;
    if (answers.length > MOST_ANSWERS) this.#tokens -= answers.shift()!.tokens.length;
    turns.set(key, answers);
    for (const oldest of this.#sessions.keys()) {
      if (this.#tokens <= MOST_TOKENS || oldest === session) break;
      this.drop(oldest);
    }
  }

  /** Forgets a session; how many answers that were. */
  drop(session: string): number {
    const answers = [...(this.#sessions.get(session)?.values() ?? [])].flat();
    for (const { tokens } of answers) this.#tokens -= tokens.length;
    this.#sessions.delete(session);
    return answers.length;
  }

  #use(session: string): Map<string, CommittedTurn[]> | undefined {
    const known = this.#sessions.get(session);
    if (known !== undefined) {
      this.#sessions.delete(session);
      this.#sessions.set(session, known);
    }
    return known;
  }
}

function digest(before: string, more: string | Buffer): string {
  return createHash('sha256').update(before).update('\0').update(more).digest('hex');
}

/** The newest answer that a re-sent turn means, or why it is none. */
function sameAnswer(turn: ChatTurn, answers: readonly CommittedTurn[]): CommittedTurn | SpliceDeclined {
  let declined: SpliceDeclined = 'unknown_turn';
  for (const answer of [...answers].reverse()) {
    if ((turn.content ?? '') !== answer.content) declined = 'content_differs';
    else if (!sameCalls(turn.toolCalls ?? [], answer.toolCalls)) declined = 'tool_calls_differ';
    else if (turn.reasoningContent !== undefined && turn.reasoningContent !== answer.reasoning)
      declined = 'reasoning_differs';
    else return answer;
  }
  return declined;
}

function sameCalls(sent: readonly ToolCall[], given: readonly ToolCall[]): boolean {
  return (
    sent.length === given.length &&
    sent.every((call, i) => {
      const { id, name, arguments: text } = given[i]!;
      return call.id === id && call.name === name && isDeepStrictEqual(parsed(call.arguments), parsed(text));
    })
  );
}

/** The value of a JSON text; text that is none is its own value. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return text;
    throw error;
  }
}
