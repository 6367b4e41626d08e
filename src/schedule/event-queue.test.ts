import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { EventQueue } from './event-queue.js';
import type { GenerationEvent } from './request.js';

const token = (tokenId: number): GenerationEvent => ({ type: 'token', tokenId, text: '' });
const prefill = (processed: number): GenerationEvent => ({ type: 'prefill', processed, total: 9 });
const queue = () => {
  let left = 0;
  const events = new EventQueue(() => left++);
  return { events, left: () => left };
};
const value = (event: GenerationEvent) => ({ done: false, value: event });
const done = { done: true, value: undefined };

describe('event queue', () => {
  test('events come in order, read before or after they are there', async () => {
    const { events } = queue();
    const early = events.next();
    events.push(token(1));
    events.push(token(2));
    events.close();
    assert.deepEqual(
      [await early, await events.next(), await events.next(), await events.next()],
      [value(token(1)), value(token(2)), done, done],
    );
  });

  test('a newer prefill event replaces an unread one, but no token', async () => {
    const { events } = queue();
    events.push(prefill(1));
    events.push(prefill(2));
    assert.equal(events.length, 1);
    events.push(token(1));
    events.push(prefill(3));
    assert.equal(events.length, 3);
    assert.deepEqual(await events.next(), value(prefill(2)));
  });

  test('an error comes behind the events, once', async () => {
    const { events } = queue();
    events.push(token(1));
    events.fail(new TypeError('first'));
    events.fail(new TypeError('second'));
    events.push(token(2));
    assert.deepEqual(await events.next(), value(token(1)));
    await assert.rejects(events.next(), /first/);
    assert.deepEqual(await events.next(), done);
  });

  test('of several waiting readers one gets the error, the others the end', async () => {
    const { events } = queue();
    const reads = [events.next(), events.next()];
    events.fail(new TypeError('broken'));
    const [first, second] = await Promise.allSettled(reads);
    assert.equal(first?.status, 'rejected');
    assert.deepEqual(second, { status: 'fulfilled', value: done });
    assert.deepEqual(await events.next(), done);
  });

  test('drop forgets what is unread', async () => {
    const { events } = queue();
    events.push(token(1));
    events.drop(new TypeError('gone'));
    await assert.rejects(events.next(), /gone/);
  });

  test('a consumer that leaves is reported once, and not behind the end', async () => {
    const { events, left } = queue();
    events.push(token(1));
    for await (const _ of events) break;
    await events.return();
    assert.equal(left(), 1);
    events.push(token(2));
    assert.equal(events.length, 0);
    assert.deepEqual(await events.next(), done);

    const ended = queue();
    ended.events.close();
    await ended.events.return();
    assert.equal(ended.left(), 0);
  });
});
