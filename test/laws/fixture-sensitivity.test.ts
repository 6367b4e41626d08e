/**
 * The judges bite: whichever recorded result of a fixture line is changed, the line no longer passes. Paths name results
 * only; inputs (rows, settings, seeds) and notes are not in the lists. And they are robust: a line damaged anywhere is
 * judged or refused as `fixture_invalid`, without any other exception and without computing what nobody recorded.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PlumblineError } from '../../src/errors.js';
import { linesOf, readBytes } from '../../src/sample/verify/lines.js';
import { verifyFixtureBytes } from '../../src/sample/verify/verify-fixtures.js';
import { fixture } from '../support/repository.js';

type Path = readonly (string | number)[];

const RESULTS: Readonly<Record<string, RegExp>> = {
  'sampler/ordinary.jsonl.gz': /^(?:lane|inc|state0|steps\.\*\.(?:ids.*|probs|u|token|state))$/,
  'sampler/pcg64.jsonl.gz': /^(?:words\.\*|state|inc|raw\.\*|state_after_20|doubles)$/,
  'sampler/fallback.jsonl.gz': /^(?:state0|runs\.\*\.(?:token|state|ids.*|probs|error|where|nan|inf|vocab))$/,
  'sampler/batched.jsonl.gz': /^(?:R|state0|list.*|rows\.\*\..+|(?:consume|array|cohort)\..+)$/,
  'sampler/mixed.jsonl.gz':
    /^(?:out\.(?:ids.*|probs|dense|token|state|error|where|nan|inf|vocab)|accept|residual\..+|token|state|verify\.(?:accepted|token|a|state))$/,
  'sampler/lazy-rows.jsonl.gz':
    /^(?:sampled\.\*\.(?:token|state|error|where|nan|inf|vocab)|contract|lazy_contract|lazy\.\*\.token|old_lane_key7)$/,
  'sampler/serial.jsonl.gz': /^(?:k|m|state0|support_ids.*|mass|dist|(?:dist|host_dist|error)\..+|token|state|evals)$/,
  'sampler/speculative.jsonl.gz':
    /^(?:state0|state|draws|outcome|correction|bonus|pending_after|emitted\.\*|accepted|bad_row|error\..+|primary\..+|drafts\.\*\.(?:token|state|ids.*|probs)|accept\.\*\.(?:p|q|a|u|accepted|target|residual\..+))$/,
  'sampler/block.jsonl.gz':
    /^(?:state0|state|draws|outcome|correction|bonus|pending_after|emitted\.\*|primary\..+|live|ladder\..+|residuals\.\*.*|drafts\.\*\.(?:token|state|ids.*|probs)|accept\.\*\..+|paths\.\*\..+)$/,
  'ds4-sampler/rng.jsonl.gz': /^(?:outputs|uniforms)\.\*$|^state_after$/,
  'ds4-sampler/sample.jsonl.gz': /^(?:tokens|states|draws)\.\*$/,
  'ds4-sampler/bad-rows.jsonl.gz': /^(?:tokens|states|draws)\.\*$/,
  'ds4-sampler/exact.jsonl.gz': /^(?:tokens|states|draws)\.\*$/,
  'ds4-sampler/logprob.jsonl.gz': /^(?:logsumexp|logprob\.\*|logprob_f32\.\*|top_ids\.\*|top_logprob_f32\.\*)$/,
  'mlx/mlx-rng.jsonl.gz':
    /^(?:key|left|right|keys|out|out_shape|argmax|max|weights|exclusive_cdf|total|uniform|scaled|searchsorted_right|index|divided|clamped|gumbel|sum|draw|steps\.\*\.(?:state_in|used|state_out))(?:\.\*)?$/,
  'mlx/mlx-sort.jsonl.gz': /^out\.\*$/,
  'mlx/metal-predicted.jsonl.gz': /^(?:arg|max_|logsumexp_|softmax_).*$/,
  'mlx/metal-gate-cases.jsonl.gz': /^(?:sigmoid|product)_.*$/,
  'mlx/mlx-sigmoid.jsonl.gz': /^(?:eager|compiled)$/,
  'mlx/mlx-sigmoid-index.jsonl.gz': /^sha256.*$/,
};

/** Lines of each kind that are tried, spread over the file. */
const LINES_A_KIND = 12;
/** Rounds come in some thirty kinds a file. */
const ROUNDS_A_KIND = 2;
const ROUNDS = /speculative|block/;

const HEX_DOUBLES = /^(?:[0-9a-f]{16})+$/;
const HEX_BITS = /^[0-9a-f]{4}(?:[0-9a-f]{4})?$/;

/** Another value of the same type: floats change by at least a sixteenth. */
function changed(value: unknown): unknown {
  if (typeof value === 'number') return value + 1;
  if (typeof value === 'boolean') return !value;
  if (typeof value !== 'string') return {};
  if (HEX_DOUBLES.test(value) && value.startsWith('000')) return `3fe${value.slice(3)}`;
  if (HEX_DOUBLES.test(value)) return value.slice(0, 3) + (value[3] === '8' ? '3' : '8') + value.slice(4);
  if (HEX_BITS.test(value)) return (value.startsWith('3') ? '4' : '3') + value.slice(1);
  return `${value}x`;
}

/** First and last leaf of every list, every leaf of every object. */
function* leavesOf(value: unknown, path: Path = []): Generator<Path> {
  if (typeof value !== 'object' || value === null) {
    yield path;
    return;
  }
  const keys = Array.isArray(value) ? [...new Set([0, value.length - 1])].filter((i) => i >= 0) : Object.keys(value);
  for (const key of keys) yield* leavesOf((value as Record<string | number, unknown>)[key], [...path, key]);
}

const nameOf = (path: Path): string => path.map((part) => (typeof part === 'number' ? '*' : part)).join('.');

function withChange(line: object, path: Path, change: (value: unknown) => unknown): string {
  const copy = structuredClone(line) as Record<string | number, unknown>;
  let target = copy;
  for (const part of path.slice(0, -1)) target = target[part] as Record<string | number, unknown>;
  const last = path.at(-1)!;
  target[last] = change(target[last]);
  return JSON.stringify(copy);
}

/** Whether the judge passes this line; a refused line does not pass. */
function passes(file: string, lines: readonly string[]): boolean {
  try {
    return verifyFixtureBytes(file, Buffer.from(lines.join('\n'))).outcome === 'passed';
  } catch (thrown) {
    if (thrown instanceof PlumblineError && thrown.code === 'fixture_invalid') return false;
    throw thrown;
  }
}

function sampleOf(lines: readonly string[], linesAKind: number): string[] {
  const kinds = new Map<string, string[]>();
  for (const line of lines) {
    const fields = JSON.parse(line) as Record<string, unknown>;
    // `global` lines continue each other's sequence; the first of a seed stands alone.
    if (fields['op'] === 'meta' || (fields['op'] === 'global' && fields['draw'] !== 0)) continue;
    const kind = `${String(fields['op'])} ${Object.keys(fields).join()}`;
    kinds.set(kind, [...(kinds.get(kind) ?? []), line]);
  }
  return [...kinds.values()].flatMap((all) => {
    const stride = Math.max(1, Math.floor(all.length / linesAKind));
    return all.filter((_, i) => i % stride === 0).slice(0, linesAKind);
  });
}

for (const [file, results] of Object.entries(RESULTS)) {
  test(`a changed result is noticed: ${file}`, async () => {
    const lines = linesOf((await readBytes(fixture(file))).toString('utf8')).map(({ text }) => text);
    const tried = new Set<string>();
    for (const line of sampleOf(lines, ROUNDS.test(file) ? ROUNDS_A_KIND : LINES_A_KIND)) {
      assert.ok(passes(file, [line]), `unchanged: ${line.slice(0, 120)}`);
      const fields = JSON.parse(line) as object;
      for (const path of leavesOf(fields)) {
        const name = nameOf(path);
        if (!results.test(name)) continue;
        tried.add(name);
        assert.ok(!passes(file, [withChange(fields, path, changed)]), `${name} of ${line.slice(0, 120)}`);
      }
    }
    assert.ok(tried.size > 0);
  });
}

/** What damage puts in the place of a value; `undefined` removes the field. */
const DAMAGE: readonly unknown[] = [undefined, null, '', 'zz', true, -1, 1.5, 1e9, [], {}, [[]], [null], [1e9]];

/** Every node below the line itself, lists and objects included. */
function* nodesOf(value: unknown, path: Path = []): Generator<Path> {
  if (path.length > 0) yield path;
  if (typeof value !== 'object' || value === null) return;
  const keys = Array.isArray(value) ? [...new Set([0, value.length - 1])].filter((i) => i >= 0) : Object.keys(value);
  for (const key of keys) yield* nodesOf((value as Record<string | number, unknown>)[key], [...path, key]);
}

for (const file of Object.keys(RESULTS)) {
  test(`a damaged line is judged or refused, and nothing else: ${file}`, async () => {
    const lines = linesOf((await readBytes(fixture(file))).toString('utf8')).map(({ text }) => text);
    for (const line of sampleOf(lines, 1)) {
      const fields = JSON.parse(line) as object;
      for (const path of nodesOf(fields)) {
        for (const damage of DAMAGE) passes(file, [withChange(fields, path, () => damage)]);
      }
    }
  });
}
