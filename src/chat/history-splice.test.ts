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

test('the note of the newest turn tells another process all that this one knows of the branch, and nothing in clear', () => {
  const call = { id: 'c1', name: 'f', arguments: '{"a": 1e999, "b": {"y": [0], "x": null}}' };
  const given = answer('hello', { reasoning: 'because', toolCalls: [call] });
  const committed = remembering(given);
  const again = { role: 'assistant', content: 'hello', toolCalls: [call] } as const;
  const longer = Int32Array.of(1, 2, 3, 4, 5);
  const history = committed.follow('s', talk(user('q'), again, user('r')));
  const note = committed.note(history, answer('two'), longer);
  for (const word of ['hello', 'because', 'two', 'c1']) assert.ok(!Buffer.from(note).includes(word), word);

  let recalls = 0;
  const recall = () => ({ notes: [{ note, tokens: longer }], unreadable: ++recalls > 1 ? 1 : 0 });
  const later = new CommittedTurns({ recall });
  const turns = [user('q'), again, user('r'), { role: 'assistant', content: 'two' }, user('z')] as const;
  const found = later.follow('s', talk(...turns));
  assert.deepEqual([found.last, found.spliced], [{ index: 3, tokens: longer }, 2]);
  const renamed = { ...again, toolCalls: [{ ...call, arguments: '{"b":{"x":null,"y":[-0]},"a":1e999}' }] };
  assert.equal(later.follow('s', talk(user('q'), renamed, user('r'))).declined, 'tool_calls_differ');
  const printed = { ...again, toolCalls: [{ ...call, arguments: '{"b":{"x":null,"y":[0.0]},"a":1e1000}' }] };
  assert.equal(later.follow('s', talk(user('q'), printed, user('r'))).spliced, 1);
  assert.equal(recalls, 1, 'asked once');
  assert.equal(later.drop('s'), 2);
  const other = new CommittedTurns({ recall, format: 'another template' });
  assert.equal(other.follow('s', talk(...turns)).declined, 'note_unreadable', 'and one that says something wrong');
  assert.equal(other.drop('s'), 0);
});

test('answers that are no beginning of the turn are not noted with it', () => {
  const committed = remembering(answer('hello'));
  const history = committed.follow('s', talk(user('q'), { role: 'assistant', content: 'hello' }, user('r')));
  const rewritten = Int32Array.of(1, 9, 3, 4);
  const note = committed.note(history, answer('two'), rewritten);
  const later = new CommittedTurns({ recall: () => ({ notes: [{ note, tokens: rewritten }], unreadable: 0 }) });
  later.follow('s', talk(user('q')));
  assert.equal(later.drop('s'), 1);
});
