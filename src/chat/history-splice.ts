/**
 * Earlier answers put back into a prompt as the very tokens that were generated. A conversation that a client sends again
 * is text, and text renders and encodes into other tokens than a model makes: its reasoning may be left out, its calls
 * printed anew. Where a re-sent answer means the same, the tokens of then stand in for it, so that the state behind them
 * can be used again.
 *
 * Invariants: only answers of the same session come back, and only behind the very conversation that they answered; what
 * means something else stays text, with the reason; a turn is remembered only when it was kept as a whole. What the memory
 * of the process has not, the notes of stored turns have: they are read once, when a session that is not in it is asked for.
 */
import { createHash } from 'node:crypto';
import {
  callsMeaning,
  contentMeaning,
  decodeNote,
  encodeNote,
  meaningOf,
  reasoningMeaning,
  type AnswerMeaning,
  type GivenAnswer,
} from './answer-note.js';
import type { ChatTurn, Conversation } from './conversation.js';

export type { GivenAnswer } from './answer-note.js';

interface CommittedTurn {
  /** Of the conversation that was answered. */
  readonly key: string;
  readonly meaning: AnswerMeaning;
  /** All ids, prompt and answer. */
  readonly tokens: Int32Array;
}

/** Notes of stored turns. */
export interface RecalledNotes {
  /** The oldest first; each with all ids of its turn. */
  readonly notes: readonly { readonly note: Uint8Array; readonly tokens: Int32Array }[];
  /** Notes that could not be read or did not hold. */
  readonly unreadable: number;
}

export interface CommittedTurnsOptions {
  /** Names tokenizer and template: notes of another format do not count. */
  readonly format?: string | undefined;
  /** What is stored of a session beyond this process. */
  readonly recall?: ((session: string) => RecalledNotes) | undefined;
}

/** Why the latest answer of a conversation is not put back. */
export type SpliceDeclined =
  /** No such answer was given here, or it is forgotten. */
  | 'unknown_turn'
  /** The same, and a note that was stored with a turn could not be read. */
  | 'note_unreadable'
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
  /** The answers that were found, the oldest first. */
  readonly answers: readonly CommittedTurn[];
}

/** Ids of all remembered turns together; the session that was not used for the longest time is forgotten first. */
const MOST_TOKENS = 8 << 20;
/** Answers to one and the same conversation: regenerated ones. */
const MOST_ANSWERS = 8;

export class CommittedTurns {
  /** By session, in the order of use; then by the conversation that was answered. */
  readonly #sessions = new Map<string, Map<string, CommittedTurn[]>>();
  readonly #format: string;
  readonly #recall: (session: string) => RecalledNotes;
  #tokens = 0;

  constructor({ format = '', recall = () => ({ notes: [], unreadable: 0 }) }: CommittedTurnsOptions = {}) {
    this.#format = format;
    this.#recall = recall;
  }

  /** Follows a conversation through what was answered here. @param session undefined: nothing is known */
  follow(session: string | undefined, { turns, tools, templateArguments }: Conversation): KnownHistory {
    const unreadable = session === undefined || this.#sessions.has(session) ? 0 : this.#learn(session);
    const known = session === undefined ? undefined : this.#use(session);
    let key = digest('', JSON.stringify([tools, templateArguments]));
    let last: KnownHistory['last'];
    let declined: SpliceDeclined | undefined;
    const answers: CommittedTurn[] = [];
    turns.forEach((turn, index) => {
      if (turn.role !== 'assistant') {
        key = digest(key, JSON.stringify(turn));
        return;
      }
      const found = sameAnswer(turn, known?.get(key) ?? []);
      if (typeof found === 'object') {
        last = { index, tokens: found.tokens };
        declined = undefined;
        answers.push(found);
        key = digest(key, bytesOf(found.tokens));
      } else {
        declined = session === undefined ? undefined : found;
        key = digest(key, JSON.stringify(turn));
      }
    });
    if (declined === 'unknown_turn' && unreadable > 0) declined = 'note_unreadable';
    return { key, last, spliced: answers.length, declined, answers };
  }

  /** @param key of the conversation that was answered */
  remember(session: string, key: string, answer: GivenAnswer, tokens: Int32Array): void {
    this.#add(session, { key, meaning: meaningOf(answer), tokens });
  }

  /**
   * What is to be stored with a turn, so that its answer and those before it are known again.
   * @param history of the conversation that was answered
   */
  note({ key, answers }: KnownHistory, answer: GivenAnswer, tokens: Int32Array): Uint8Array {
    // Answers that the template wrote anew are no beginning of the turn; nothing behind them is found without them.
    const before = answers.filter((earlier) => startsWith(tokens, earlier.tokens));
    const all = [...before, { key, meaning: meaningOf(answer), tokens }];
    return encodeNote(
      this.#format,
      all.map((turn) => ({ ...turn, tokens: turn.tokens.length })),
    );
  }

  /** Takes in what was stored of a session since it was asked for. Of one that is not in memory this is done when it is. */
  refresh(session: string): void {
    if (this.#sessions.has(session)) this.#learn(session);
  }

  /** Forgets a session; how many answers that were. */
  drop(session: string): number {
    const answers = [...(this.#sessions.get(session)?.values() ?? [])].flat();
    for (const { tokens } of answers) this.#tokens -= tokens.length;
    this.#sessions.delete(session);
    return answers.length;
  }

  /** How many notes could not be read. */
  #learn(session: string): number {
    const { notes, unreadable } = this.#recall(session);
    for (const { note, tokens } of notes) {
      for (const { key, meaning, tokens: count } of decodeNote(this.#format, note)) {
        if (count <= tokens.length) this.#add(session, { key, meaning, tokens: tokens.subarray(0, count) });
      }
    }
    return unreadable;
  }

  #add(session: string, turn: CommittedTurn): void {
    const turns = this.#use(session) ?? new Map<string, CommittedTurn[]>();
    this.#sessions.set(session, turns);
    const before = turns.get(turn.key) ?? [];
    const others = before.filter((other) => !isSame(other, turn));
    const answers = [...others, turn];
    if (others.length === before.length) this.#tokens += turn.tokens.length;
    if (answers.length > MOST_ANSWERS) this.#tokens -= answers.shift()!.tokens.length;
    turns.set(turn.key, answers);
    for (const oldest of this.#sessions.keys()) {
      if (this.#tokens <= MOST_TOKENS || oldest === session) break;
      this.drop(oldest);
    }
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
  return createHash('sha256').update(before).update('\0').update(more).digest('base64url');
}

const bytesOf = (tokens: Int32Array): Buffer => Buffer.from(tokens.buffer, tokens.byteOffset, tokens.byteLength);

const startsWith = (tokens: Int32Array, prefix: Int32Array): boolean =>
  prefix.length <= tokens.length && bytesOf(prefix).equals(bytesOf(tokens.subarray(0, prefix.length)));

const isSame = (a: CommittedTurn, b: CommittedTurn): boolean =>
  a.tokens.length === b.tokens.length &&
  startsWith(a.tokens, b.tokens) &&
  a.meaning.content === b.meaning.content &&
  a.meaning.reasoning === b.meaning.reasoning &&
  a.meaning.calls === b.meaning.calls;

/** The newest answer that a re-sent turn means, or why it is none. */
function sameAnswer(turn: ChatTurn, answers: readonly CommittedTurn[]): CommittedTurn | SpliceDeclined {
  if (answers.length === 0) return 'unknown_turn';
  let declined: SpliceDeclined = 'unknown_turn';
  const content = contentMeaning(turn.content ?? '');
  const calls = callsMeaning(turn.toolCalls ?? []);
  const reasoning = turn.reasoningContent === undefined ? undefined : reasoningMeaning(turn.reasoningContent);
  for (const answer of [...answers].reverse()) {
    const { meaning } = answer;
    if (content !== meaning.content) declined = 'content_differs';
    else if (calls !== meaning.calls) declined = 'tool_calls_differ';
    else if (reasoning !== undefined && reasoning !== meaning.reasoning) declined = 'reasoning_differs';
    else return answer;
  }
  return declined;
}
