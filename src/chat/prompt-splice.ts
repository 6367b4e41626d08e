/**
 * Where the text of a prompt can be cut: behind an earlier answer whose tokens are known, and before the part that only
 * begins the answer to come.
 */
import { randomUUID } from 'node:crypto';
import type { ChatTurn, Conversation } from './conversation.js';
import type { KnownHistory, SpliceDeclined } from './history-splice.js';

/** An id that ends a turn, as the template writes it. */
export interface TurnEndToken {
  readonly id: number;
  readonly text: string;
}

/** A prompt of which the first part is known as ids. */
export interface SplicedPrompt {
  readonly head: readonly number[];
  /** The text behind them. */
  readonly tail: string;
}

/**
 * The tokens up to the end of an earlier answer, and the text behind it. Where that text begins is found by rendering the
 * conversation with a word in the place of the answer that stands nowhere else.
 * @param prompt the conversation as `render` gives it
 */
export function spliceAnswer(
  { index, tokens }: NonNullable<KnownHistory['last']>,
  turnEnds: readonly TurnEndToken[],
  conversation: Conversation,
  prompt: string,
  render: (conversation: Conversation) => string,
): SplicedPrompt | SpliceDeclined {
  const mark = `answer${randomUUID().replaceAll('-', '')}`;
  const turns = conversation.turns.map((turn, i): ChatTurn =>
    i === index ? { role: turn.role, content: mark } : turn,
  );
  const pieces = render({ ...conversation, turns }).split(mark);
  const tail = pieces[1];
  if (pieces.length !== 2 || tail === undefined || !prompt.endsWith(tail)) return 'template_rewrites';
  const end = turnEnds.find(({ text }) => tail.startsWith(text));
  if (end === undefined) return 'template_rewrites';
  const last = tokens.at(-1);
  if (last === end.id) return { head: [...tokens], tail: tail.slice(end.text.length) };
  // A turn that was cut at its length is ended by the template.
  return turnEnds.some(({ id }) => id === last) ? 'turn_end_differs' : { head: [...tokens], tail };
}

/**
 * How many of the prompt's last tokens stand before the part that only begins the answer.
 * @param closed the conversation without that part; undefined: nothing is known of it
 * @param tail ids of the end of the prompt
 */
export function stablePart(
  closed: string | undefined,
  prompt: string,
  tail: readonly number[],
  encode: (text: string) => readonly number[],
): number {
  if (closed === undefined) return tail.length;
  let shared = 0;
  while (shared < closed.length && closed[shared] === prompt[shared]) shared++;
  const opening = encode(prompt.slice(shared));
  const count = Math.max(0, tail.length - opening.length);
  if (opening.every((id, i) => tail[count + i] === id)) return count;
  // The cut goes through a token: as many as the part before it has in common.
  const before = encode(prompt.slice(0, shared));
  let same = 0;
  while (same < before.length && before[same] === tail[same]) same++;
  return same;
}
