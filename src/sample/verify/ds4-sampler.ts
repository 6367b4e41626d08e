/**
 * The DS4 sampler's recordings: random numbers; three tokens in a row from one row of logits (also rows that hold no
 * numbers, and boundaries hit exactly); log-probabilities.
 *
 * Everything compares exactly but the float64 log-probabilities, which depend on the platform's exp and log: relative
 * 1e-12 of max(1, |x|). Each sampling line is judged twice: by the choice itself, and by the sampler as it is served.
 */
import { chooseId } from '../laws/ds4/choose.js';
import { DS4 } from '../laws/ds4/constants.js';
import { settleKnobs } from '../laws/ds4/knobs.js';
import { logprobOf, logSumExp, topIds } from '../laws/ds4/logprobs.js';
import { Xorshift64Star, uniformOf } from '../rng/xorshift64star.js';
import { createSampler, samplingRules } from '../sampler.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import { fieldFormat } from './format.js';

const scratch = new DataView(new ArrayBuffer(4));

/** float32 bits in hex. */
function floatBits(value: number): string {
  scratch.setFloat32(0, value);
  return scratch.getUint32(0).toString(16).padStart(8, '0');
}

function logitsOf(line: Fields): Float32Array {
  const row = line.floats('logits');
  if (row.length !== line.integer('vocab')) line.refuse('logits', `${line.integer('vocab')} float32 values`);
  return row;
}

function judgeRng(line: Fields, check: Checker): void {
  const random = new Xorshift64Star(line.bigint('seed'), DS4.random);
  const outputs = line.texts('outputs').map(() => random.next());
  check.sequence('outputs', outputs.map(String), line.texts('outputs'));
  check.sequence(
    'uniforms',
    outputs.map((output) => floatBits(uniformOf(output))),
    line.texts('uniforms'),
  );
  check.equal('state after', String(random.state), line.text('state_after'));
}

function judgeSample(line: Fields, check: Checker): void {
  const row = logitsOf(line);
  const settings = {
    ...samplingRules('ds4').defaults,
    temperature: line.number('temperature'),
    topK: line.integer('top_k'),
    topP: line.number('top_p'),
    minP: line.number('min_p'),
  };
  const seed = line.bigint('state');
  const random = new Xorshift64Star(seed, DS4.random);
  const knobs = settleKnobs(settings, row.length, DS4);
  const served = createSampler('ds4', { ...settings, seed }, { vocabSize: row.length });
  const tokens = line.integers('tokens');
  const states = line.texts('states');
  const draws = line.integers('draws');
  if (states.length !== tokens.length || draws.length !== tokens.length)
    line.refuse('tokens', 'as long as states, draws');
  tokens.forEach((token, i) => {
    const before = random.state;
    check.equal(`token ${i}`, chooseId(row, knobs, random, DS4), token);
    check.equal(`state ${i}`, String(random.state), states[i]);
    check.equal(`draws ${i}`, random.state === before ? 0 : 1, draws[i]);
    const context = { site: 'ar_step', phase: 'decode', step: i } as const;
    check.equal(`served token ${i}`, Number(served.next(row, context).tokenId), token);
  });
}

const LOGPROB_TOLERANCE = 1e-12;

function judgeLogprob(line: Fields, check: Checker): void {
  const row = logitsOf(line);
  const near = (what: string, got: number, want: number): void =>
    check.close(what, [got], [want], 0, LOGPROB_TOLERANCE * Math.max(1, Math.abs(want)));
  const logSum = logSumExp(row, DS4);
  near('logsumexp', logSum, line.double('logsumexp'));
  const exact = line.optionalDoubles('logprob');
  const rounded = line.texts('logprob_f32');
  line.integers('tokens').forEach((id, i) => {
    const logit = row[id] ?? Number.NaN;
    const finite = Number.isFinite(logit);
    check.equal(`token ${id} has a log-probability`, finite, exact[i] !== undefined);
    if (finite && exact[i] !== undefined) near(`token ${id}`, logit - logSum, exact[i]);
    check.equal(`token ${id} as float32`, floatBits(logprobOf(row, id, logSum, DS4)), rounded[i]);
  });
  const top = line.integers('top_ids');
  const found = topIds(row, top.length);
  const padded = top.map((_, i) => found[i] ?? -1);
  check.sequence('top ids', padded, top);
  check.sequence(
    'top log-probabilities',
    padded.map((id) => floatBits(logprobOf(row, id, logSum, DS4))),
    line.texts('top_logprob_f32'),
  );
}

export const ds4RngFormat = fieldFormat('ds4-sampler/rng', ['seed', 'outputs', 'uniforms'], () => judgeRng);
export const ds4SampleFormat = fieldFormat('ds4-sampler/sample', ['min_p', 'temperature', 'state'], () => judgeSample);
export const ds4LogprobFormat = fieldFormat('ds4-sampler/logprob', ['logsumexp', 'logprob_f32'], () => judgeLogprob);
