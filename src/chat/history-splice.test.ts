import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ChatTurn, Conversation } from './conversation.js';
import { CommittedTurns, type GivenAnswer } from './history-splice.js';

const talk = (...turns: ChatTurn[]): Conversation => ({ turns, tools: [], templateArguments: {} });
const user = (content: string): ChatTurn => ({ role: 'user', content });
const answer = (content: string, more: Partial<GivenAnswer> = {}): GivenAnswer => ({
  content,
  reasoning: '',
  toolCalls: [],
  ...more,
});
const TOKENS = Int32Array.of(1, 2, 3);

/** A memory of one question and one answer to it. */
function remembering(given: GivenAnswer): CommittedTurns {
  const committed = new CommittedTurns();
  committed.remember('s', committed.follow('s', talk(user('q'))).key, given, TOKENS);
  return committed;
}

test('an answer that means the same is put back; the reason is told where it does not', () => {
  const call = { id: 'c1', name: 'f', arguments: '{"a": 1, "b": [2]}' };
  const committed = remembering(answer('hello', { reasoning: 'because', toolCalls: [call] }));
  const again = (turn: Partial<ChatTurn>) => {
    const { last, spliced, declined } = committed.follow(
      's',
      talk(user('q'), { role: 'assistant', ...turn }, user('x')),
    );
    return last ? [last.index, spliced] : declined;
  };
  const same = { content: 'hello', toolCalls: [{ ...call, arguments: '{"b":[2],"a":1.0}' }] };
  assert.deepEqual(again(same), [1, 1], 'reasoning left out, arguments printed anew');
  assert.deepEqual(again({ ...same, reasoningContent: 'because' }), [1, 1]);
  assert.equal(again({ ...same, reasoningContent: 'no' }), 'reasoning_differs');
  assert.equal(again({ ...same, content: 'hello!' }), 'content_differs');
  assert.equal(again({ content: 'hello' }), 'tool_calls_differ');
  assert.equal(again({ ...same, toolCalls: [{ ...call, id: 'c2' }] }), 'tool_calls_differ');
  assert.equal(again({ ...same, toolCalls: [{ ...call, arguments: '{"a": 2, "b": [2]}' }] }), 'tool_calls_differ');
});

test('an answer comes back only in its session, and only behind what it answered', () => {
  const committed = remembering(answer('hello'));
  const turns = [user('q'), { role: 'assistant', content: 'hello' }, user('x')] as const;
  assert.equal(committed.follow('s', talk(...turns)).spliced, 1);
  assert.equal(committed.follow('t', talk(...turns)).spliced, 0);
  assert.equal(committed.follow(undefined, talk(...turns)).spliced, 0);
  assert.equal(committed.follow('s', talk(user('Q'), ...turns.slice(1))).declined, 'unknown_turn');
  assert.equal(committed.follow('s', { ...talk(...turns), tools: [{ type: 'function' }] }).spliced, 0);
  assert.equal(committed.drop('s'), 1);
  assert.equal(committed.follow('s', talk(...turns)).spliced, 0);
});

test('later turns are remembered behind the tokens of earlier ones, and the last stands for all', () => {
  const committed = remembering(answer('one'));
  const first = [user('q'), { role: 'assistant', content: 'one' }, user('r')] as const;
  const longer = Int32Array.of(1, 2, 3, 4, 5);
  committed.remember('s', committed.follow('s', talk(...first)).key, answer('two'), longer);
  const found = committed.follow('s', talk(...first, { role: 'assistant', content: 'two' }, user('z')));
  assert.deepEqual([found.last, found.spliced, found.declined], [{ index: 3, tokens: longer }, 2, undefined]);
  const edited = committed.follow('s', talk(...first, { role: 'assistant', content: 'TWO' }, user('z')));
  assert.deepEqual([edited.last?.index, edited.spliced, edited.declined], [1, 1, 'content_differs']);
});
