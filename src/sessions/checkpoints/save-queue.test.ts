import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CaptureKind, StateStamp, StateValue } from '../types.js';
import type { SaveOutcome } from './save.js';
import { SaveQueue, type QueueLimits, type SaveJob } from './save-queue.js';

class Value implements StateValue {
  holders = 1;

  constructor(
    readonly length: number,
    readonly pieces: readonly { readonly key: object; readonly bytes: number }[],
  ) {}

  retain(): this {
    this.holders++;
    return this;
  }

  release(): void {
    assert.ok(this.holders-- > 0);
  }

  holdings() {
    assert.ok(this.holders > 0, 'asked while it is alive');
    return this.pieces;
  }
}

const KIB = 1024;

/** A queue whose writer waits until it is told to go on. */
class Scene {
  readonly queue: SaveQueue<Value>;
  readonly values: Value[] = [];
  readonly told: string[] = [];
  readonly written: string[] = [];
  #goOn: () => void = () => undefined;

  constructor(limits: Partial<QueueLimits> = {}) {
    this.queue = new SaveQueue({ captures: 4, bytes: 1 << 30, ...limits }, async (job) => this.#write(job));
  }

  async #write({ request }: SaveJob<Value>): Promise<SaveOutcome> {
    this.written.push(nameOf(request.session, request.capture.kind, request.capture.tokens.length));
    await new Promise<void>((resolve) => (this.#goOn = resolve));
    return { kind: 'not-stored', reason: 'write_failed' };
  }

  put(session: string, kind: CaptureKind, tokens: readonly number[], pieces = [{ key: {}, bytes: KIB }]): void {
    const trunk = new Value(tokens.length, pieces);
    this.values.push(trunk);
    const capture = { kind, tokens: Int32Array.from(tokens), trunk };
    const stamp = { lane: 'ar' } as StateStamp;
    const name = nameOf(session, kind, tokens.length);
    this.queue.add({ capture, stamp, session, lineage: [{ session, epoch: 0 }] }, (outcome) => {
      this.told.push(`${name} ${outcome.kind === 'stored' ? 'stored' : outcome.reason}`);
    });
    trunk.release();
  }

  /** Lets everything be written. */
  async finish(): Promise<void> {
    while (this.queue.writing || this.queue.waiting > 0) {
      this.#goOn();
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.ok(
      this.values.every(({ holders }) => holders === 0),
      'every value is given back',
    );
    assert.equal(this.queue.heldBytes, 0);
    assert.equal(this.told.length, this.values.length, 'what became of each is told once');
  }
}

const nameOf = (session: string, kind: CaptureKind, length: number): string => `${session} ${kind} ${length}`;

test('a capture takes the place of one that it goes on from, and of no other: prompts and other branches wait on', async () => {
  const scene = new Scene();
  scene.put('busy', 'turn', [9]);
  scene.put('a', 'prompt', [1, 2]);
  scene.put('a', 'turn', [1, 2, 3]);
  scene.put('a', 'turn', [1, 2, 3, 4]);
  scene.put('a', 'turn', [1, 5, 6]);
  assert.deepEqual(scene.told, ['a turn 3 superseded']);
  assert.equal(scene.queue.waiting, 3);
  scene.put('a', 'prompt', [1, 2, 7]);
  await scene.finish();
  assert.deepEqual(scene.written, ['busy turn 1', 'a turn 4', 'a turn 3', 'a prompt 3']);
});

test('when too many wait, the oldest of the session with the most of them gives way', async () => {
  const scene = new Scene();
  scene.put('busy', 'turn', [9]);
  scene.put('quiet', 'turn', [8, 8]);
  for (const token of [1, 2, 3, 4]) scene.put('a', 'turn', [token]);
  assert.deepEqual(scene.told, ['a turn 1 queue_full']);
  assert.equal(scene.queue.waiting, 4);
  await scene.finish();
  assert.ok(scene.written.includes('quiet turn 2'));
});

test('the memory of what waits and is written is bounded, shared pieces counted once; one capture alone is always taken', async () => {
  const scene = new Scene({ bytes: 8 * KIB + 100 });
  const shared = { key: {}, bytes: 4 * KIB };
  scene.put('a', 'turn', [1], [shared]);
  scene.put('b', 'turn', [2, 3], [shared]);
  scene.put('c', 'turn', [3, 4], [{ key: {}, bytes: 4 * KIB }]);
  assert.deepEqual(scene.told, []);
  scene.put('d', 'turn', [4, 5], [{ key: {}, bytes: KIB }]);
  assert.deepEqual(scene.told, ['b turn 2 queue_full', 'c turn 2 queue_full'], 'until it fits');
  scene.put('e', 'turn', [5], [{ key: {}, bytes: 9 * KIB }]);
  assert.deepEqual(scene.told.slice(2), ['d turn 2 queue_full', 'e turn 1 queue_full']);
  await scene.finish();
  scene.put('f', 'turn', [6], [{ key: {}, bytes: 9 * KIB }]);
  assert.equal(scene.queue.writing, true);
  await scene.finish();
  assert.deepEqual(scene.written, ['a turn 1', 'f turn 1']);
});
