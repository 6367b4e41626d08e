import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { PlumblineError } from '../errors.js';
import { isFinal, transition, type RequestPhase, type RequestState } from './request-state.js';

const STATES: Record<RequestPhase, RequestState> = {
  queued: { phase: 'queued' },
  prefilling: { phase: 'prefilling', startedAt: 1 },
  decoding: { phase: 'decoding', startedAt: 1, firstTokenAt: 2 },
  finished: { phase: 'finished', reason: 'stop' },
  failed: { phase: 'failed', error: new PlumblineError('queue_full', 'x') },
  cancelled: { phase: 'cancelled', during: 'queued' },
};
const PHASES = Object.keys(STATES) as RequestPhase[];
const LEGAL = new Set([
  'queued>prefilling',
  'queued>failed',
  'queued>cancelled',
  'prefilling>decoding',
  'prefilling>failed',
  'prefilling>cancelled',
  'decoding>finished',
  'decoding>failed',
  'decoding>cancelled',
]);

describe('request state', () => {
  for (const from of PHASES) {
    for (const to of PHASES) {
      const legal = LEGAL.has(`${from}>${to}`);
      test(`${from} ${legal ? 'may' : 'may not'} become ${to}`, () => {
        if (legal) assert.equal(transition(STATES[from], STATES[to]), STATES[to]);
        else
          assert.throws(() => transition(STATES[from], STATES[to]), {
            code: 'internal_error',
            message: new RegExp(`${from}.*${to}`),
          });
      });
    }
  }

  test('the three ends are final', () => {
    assert.deepEqual(
      PHASES.filter((phase) => isFinal(STATES[phase])),
      ['finished', 'failed', 'cancelled'],
    );
  });
});
