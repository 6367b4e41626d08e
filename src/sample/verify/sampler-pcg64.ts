/** pcg64.jsonl: seeding, raw 64-bit outputs, and doubles of the request's generator. */
import { Pcg64, type Uint64 } from '../rng/pcg64.js';
import { seedWords } from '../rng/seed-sequence.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import { fieldFormat } from './format.js';

const hexOf = ({ high, low }: Uint64): string => high.toString(16).padStart(8, '0') + low.toString(16).padStart(8, '0');

function judge(line: Fields, check: Checker): void {
  const seed = line.bigint('seed');
  check.sequence('words', seedWords(seed), line.integers('words'));
  const raw = new Pcg64(seed);
  check.equal('state', raw.stateHex, line.text('state'));
  check.equal('increment', raw.incrementHex, line.text('inc'));
  check.sequence(
    'raw',
    line.texts('raw').map(() => hexOf(raw.nextUint64())),
    line.texts('raw'),
  );
  check.equal('state after the raw outputs', raw.stateHex, line.text('state_after_20'));
  const doubles = new Pcg64(seed);
  const wanted = line.doubles('doubles');
  check.sequence(
    'doubles',
    wanted.map(() => doubles.nextDouble()),
    wanted,
  );
}

export const pcg64Format = fieldFormat('sampler/pcg64', ['words', 'raw', 'state_after_20'], () => judge);
