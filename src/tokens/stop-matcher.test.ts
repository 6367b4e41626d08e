import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { StopMatcher } from './stop-matcher.js';

/** The law, said naively: over all occurrences the smallest end wins, then the longest stop string. */
function naive(text: string, stops: readonly string[]): { text: string; stop?: string } {
  const found = stops.flatMap((stop) => {
    const start = text.indexOf(stop);
    return start < 0 ? [] : [{ start, end: start + stop.length, stop }];
  });
  found.sort((a, b) => a.end - b.end || a.start - b.start);
  const first = found[0];
  return first === undefined ? { text } : { text: text.slice(0, first.start), stop: first.stop };
}

function stream(matcher: StopMatcher, pieces: readonly string[]): { text: string; stop?: string; steps: string[] } {
  let text = '';
  const steps: string[] = [];
  for (const piece of pieces) {
    const step = matcher.push(piece);
    text += step.text;
    steps.push(step.text);
    if (step.stop !== undefined) return { text, stop: step.stop, steps };
  }
  return { text: text + matcher.flush(), steps };
}

// Few letters, so that stop strings occur, overlap and have borders; one letter is a surrogate pair.
const letters = fc.string({ unit: fc.constantFrom('a', 'b', '😀'), maxLength: 5 });
const bordered = fc.string({ unit: fc.constantFrom('a', 'a', 'b'), minLength: 1, maxLength: 9 });
const stopString = fc.oneof(
  letters.filter((stop) => stop !== ''),
  bordered,
);
const stopStrings = fc.array(stopString, { maxLength: 4 });
const someText = fc.array(fc.oneof(letters, bordered), { maxLength: 10 });

describe('stop matcher', () => {
  test('any chunking gives what a search of the whole text gives', () => {
    fc.assert(
      fc.property(stopStrings, someText, (stops, pieces) => {
        const { text, stop } = stream(new StopMatcher(stops), pieces);
        assert.deepEqual(stop === undefined ? { text } : { text, stop }, naive(pieces.join(''), stops));
      }),
      { numRuns: 3000 },
    );
  });

  test('held back is exactly the longest suffix that may still become a stop string', () => {
    fc.assert(
      fc.property(stopStrings, someText, (stops, pieces) => {
        const matcher = new StopMatcher(stops);
        let read = '';
        let emitted = '';
        for (const piece of pieces) {
          const step = matcher.push(piece);
          if (step.stop !== undefined) return;
          read += piece;
          emitted += step.text;
          const points = [...read];
          const start = points.findIndex((_, i) => stops.some((stop) => stop.startsWith(points.slice(i).join(''))));
          assert.equal(emitted, start < 0 ? read : points.slice(0, start).join(''));
        }
      }),
      { numRuns: 2000 },
    );
  });

  test('the first complete stop string ends the text, even inside a longer candidate', () => {
    assert.deepEqual(stream(new StopMatcher(['abcd', 'bc']), ['xabcd']), { text: 'xa', stop: 'bc', steps: ['xa'] });
  });

  test('of two that end together the longest counts', () => {
    assert.deepEqual(stream(new StopMatcher(['bc', 'abc']), ['xabc']), { text: 'x', stop: 'abc', steps: ['x'] });
  });

  test('a stop string with borders inside borders is found', () => {
    assert.deepEqual(stream(new StopMatcher(['aabaaab']), ['aabaaaabaaabx']), {
      text: 'aabaa',
      stop: 'aabaaab',
      steps: ['aabaa'],
    });
    assert.deepEqual(stream(new StopMatcher(['aabaaac']), ['aabaaabaaac']), {
      text: 'aaba',
      stop: 'aabaaac',
      steps: ['aaba'],
    });
  });

  test('a candidate that fails gives its text back at once', () => {
    assert.deepEqual(stream(new StopMatcher(['\n\nUser:']), ['a\n', '\nUs', 'ed']), {
      text: 'a\n\nUsed',
      steps: ['a', '', '\n\nUsed'],
    });
  });

  test('flush returns the held text', () => {
    const matcher = new StopMatcher(['END']);
    assert.equal(matcher.push('x EN').text, 'x ');
    assert.equal(matcher.flush(), 'EN');
    assert.equal(matcher.flush(), '');
  });

  test('without stop strings text passes through', () => {
    assert.deepEqual(stream(new StopMatcher([]), ['a', 'b']), { text: 'ab', steps: ['a', 'b'] });
  });

  test('a lone surrogate matches no half of a pair', () => {
    assert.deepEqual(stream(new StopMatcher(['\ude00']), ['a😀b']), { text: 'a😀b', steps: ['a😀b'] });
  });

  test('an empty stop string is refused', () => {
    assert.throws(() => new StopMatcher(['a', '']), { code: 'invalid_request', param: 'stop' });
  });

  test('nothing may be pushed behind a match', () => {
    const matcher = new StopMatcher(['a']);
    matcher.push('a');
    assert.throws(() => matcher.push('b'), { code: 'internal_error' });
    assert.equal(matcher.flush(), '');
  });
});
