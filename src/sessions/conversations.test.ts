import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Conversations, isInferred } from './conversations.js';
import { NO_FENCES } from './fence-view.js';

test('a prompt that goes on with a conversation belongs to it; one that leaves it does not', () => {
  const known = new Conversations(NO_FENCES);
  const { id } = known.infer([1, 2, 3, 9], 3);
  assert.ok(isInferred(id));
  assert.equal(known.infer([1, 2, 3, 9, 7, 7], 6).id, id, 'its next turn');
  assert.equal(known.infer([1, 2, 3, 9, 7, 7, 8, 8], 8).id, id, 'and the one after');
  assert.notEqual(known.infer([1, 2, 3, 5], 4).id, id, 'its last prompt is not the whole beginning of this');
  assert.equal(
    new Conversations(NO_FENCES).infer([1, 2, 3, 8], 3).id,
    id,
    'the same beginning has the same name anywhere',
  );
});

test('the longest conversation wins, then what a disk has, and a failed one before all', () => {
  const known = new Conversations(NO_FENCES);
  const short = known.infer([1, 2], 2).id;
  const long = known.infer([1, 3, 4], 3).id;
  assert.notEqual(short, long);
  assert.equal(known.infer([1, 3, 4, 5], 4).id, long);
  assert.equal(known.infer([8, 8], 2, ['named', 'auto-stored']).id, 'auto-stored');
  assert.ok(isInferred(known.infer([7, 7], 2, ['named']).id), 'a name that a client gave is never inferred');
  const failed = new Conversations({ ...NO_FENCES, sessionOfPrompt: () => 'auto-failed' });
  assert.equal(failed.infer([1], 1).id, 'auto-failed');
});

test('a dropped conversation is not found again', () => {
  const known = new Conversations(NO_FENCES);
  const { id } = known.infer([1, 2, 3], 3);
  known.infer([1, 2, 3, 4], 4);
  assert.equal(known.drop(id), 1);
  assert.equal(known.drop(id), 0);
  assert.equal(known.size, 0);
});
