import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PlumblineError } from '../../../errors.js';
import { ALIGNMENT, FreeList, rangeBytes } from './free-list.js';

const SPACE = 64 * ALIGNMENT;

/** Either takes so many bytes, or gives back the n-th range that is held. */
const steps = fc.array(
  fc.oneof(fc.record({ take: fc.integer({ min: 0, max: 8 * ALIGNMENT }) }), fc.record({ give: fc.nat(30) })),
  { maxLength: 120 },
);

test('ranges never overlap, stay aligned, and all of the space comes back in one piece', () => {
  fc.assert(
    fc.property(steps, (list) => {
      const free = new FreeList();
      free.give(ALIGNMENT, SPACE);
      const owner = new Uint8Array(SPACE / ALIGNMENT + 1);
      const held: { readonly start: number; readonly bytes: number }[] = [];
      const mark = (start: number, bytes: number, value: number): void => {
        const lines = owner.subarray(start / ALIGNMENT, (start + bytes) / ALIGNMENT);
        assert.ok(lines.every((line) => line === 1 - value), 'the range is as the list says');
        lines.fill(value);
      };
      for (const step of list) {
        if ('take' in step) {
          const bytes = rangeBytes(step.take);
          const start = free.take(bytes);
          if (start === undefined) continue;
          assert.equal(start % ALIGNMENT, 0);
          mark(start, bytes, 1);
          held.push({ start, bytes });
        } else if (held.length > 0) {
          const [range] = held.splice(step.give % held.length, 1);
          mark(range!.start, range!.bytes, 0);
          free.give(range!.start, range!.bytes);
        }
        assert.equal(free.free, SPACE - held.reduce((sum, { bytes }) => sum + bytes, 0));
      }
      for (const { start, bytes } of held) free.give(start, bytes);
      assert.equal(free.take(SPACE), ALIGNMENT, 'neighbours were joined');
    }),
  );
});

test('a range is refused only when no free range is long enough', () => {
  fc.assert(
    fc.property(steps, (list) => {
      const free = new FreeList();
      free.give(0, SPACE);
      const lines = new Array<boolean>(SPACE / ALIGNMENT).fill(true);
      const held: { readonly start: number; readonly bytes: number }[] = [];
      const longest = (): number => Math.max(...lines.map((line) => (line ? '1' : '0')).join('').split('0').map((run) => run.length)); // prettier-ignore
      for (const step of list) {
        if ('take' in step) {
          const bytes = rangeBytes(step.take);
          const fits = longest() * ALIGNMENT >= bytes;
          const start = free.take(bytes);
          assert.equal(start !== undefined, fits);
          if (start === undefined) continue;
          lines.fill(false, start / ALIGNMENT, (start + bytes) / ALIGNMENT);
          held.push({ start, bytes });
        } else if (held.length > 0) {
          const [range] = held.splice(step.give % held.length, 1);
          lines.fill(true, range!.start / ALIGNMENT, (range!.start + range!.bytes) / ALIGNMENT);
          free.give(range!.start, range!.bytes);
        }
      }
    }),
  );
});

test('giving back what is free already is found out', () => {
  const free = new FreeList();
  free.give(0, 10 * ALIGNMENT);
  const start = free.take(2 * ALIGNMENT)!;
  free.give(start, 2 * ALIGNMENT);
  const twice = (error: unknown): boolean => error instanceof PlumblineError && error.code === 'internal_error';
  assert.throws(() => free.give(start, 2 * ALIGNMENT), twice);
  assert.throws(() => free.give(9 * ALIGNMENT, 2 * ALIGNMENT), twice);
});

test('nothing is smaller than one range', () => {
  assert.deepEqual([0, 1, 64, 65, 128].map(rangeBytes), [64, 64, 64, 128, 128]);
});
