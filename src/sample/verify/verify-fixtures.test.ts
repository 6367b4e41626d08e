import assert from 'node:assert/strict';
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { PlumblineError } from '../../errors.js';
import { sigmoidTableF16 } from '../../numerics/gate-tables.js';
import { Pcg64 } from '../rng/pcg64.js';
import { formatFixtureReport, verifyFixtureBytes, verifyFixtureFile, verifyFixtures } from './verify-fixtures.js';

const invalid =
  (pattern: RegExp) =>
  (thrown: unknown): boolean =>
    thrown instanceof PlumblineError && thrown.code === 'fixture_invalid' && pattern.test(thrown.message);

const judge = (text: string, file = 'given.jsonl') => verifyFixtureBytes(file, Buffer.from(text));

/** A one-line greedy file, made here: the formats belong to nobody in particular. */
function greedyLine(token: number): string {
  const random = new Pcg64(5n);
  const logits = Buffer.from(new Uint8Array(Float32Array.of(0, 2, 1).buffer)).toString('base64');
  return JSON.stringify({
    V: 3,
    cfg: { T: 0, top_p: 1, top_k: 0 },
    seed: '5',
    lane: 'greedy',
    inc: random.incrementHex,
    state0: random.stateHex,
    steps: [{ logits, token, state: random.stateHex }],
  });
}

test('a file of a known format passes or fails on its own content', () => {
  const good = judge(`${greedyLine(1)}\n\n${greedyLine(1)}\n`);
  assert.equal(good.outcome, 'passed');
  assert.equal(good.kind, 'sampler/ordinary');
  assert.equal(good.cases, 2);
  const bad = judge(`${greedyLine(1)}\n${greedyLine(2)}`);
  assert.equal(bad.outcome, 'failed');
  assert.deepEqual(bad.failures[0], { line: 2, message: 'step 0 token: got 1, expected 2' });
});

test('one line a file, with its failures below', () => {
  const text = formatFixtureReport(judge(greedyLine(2)));
  assert.match(text, /^FAIL given\.jsonl {2}sampler\/ordinary: 1 cases, \d+ checks, 2 failures, [\d.]+ s\n/);
  assert.match(text, /line 1: step 0 token: got 1, expected 2/);
  assert.match(formatFixtureReport(judge(greedyLine(1))), /^ok .*0 failures, [\d.]+ s$/);
});

const MALFORMED: readonly [name: string, text: string, message: RegExp][] = [
  ['not JSON', `${greedyLine(1)}\n{`, /given\.jsonl:2: not JSON/],
  ['no object', '[1]', /given\.jsonl:1: must be a JSON object/],
  ['unknown', '{"hello":1}', /given\.jsonl:1: of no known fixture format/],
  ['empty', '\n\n', /holds no case/],
  ['only notes', '{"op":"meta"}', /holds no case/],
  [
    'two formats in one file',
    `${greedyLine(1)}\n{"op":"key","seed":"1","key":[0,1]}`,
    /given\.jsonl:2: not a line of format/,
  ],
  ['missing field', greedyLine(1).replace('"V":3', '"W":3'), /given\.jsonl:1: field "V" must be of type integer/],
  ['row too short', greedyLine(1).replace('"V":3', '"V":4'), /steps\[0\]: field "logits" must be 4 float32 values/],
  [
    'bad base64',
    greedyLine(1).replace(/"logits":"[^"]*"/, '"logits":"*"'),
    /steps\[0\]: field "logits" must be base64/,
  ],
  ['bad seed', greedyLine(1).replace('"seed":"5"', '"seed":"-5"'), /field "seed" must be a decimal string/],
  ['wrong type deep inside', greedyLine(1).replace('"token":1', '"token":"1"'), /steps\[0\]: field "token"/],
  ['no steps', greedyLine(1).replace(/"steps":\[.*\]/, '"steps":[]'), /field "steps" must be/],
  ['bad width', '{"op":"bits","seed":"1","width":3,"shape":[1],"out":[1]}', /field "width" must be 1, 2 or 4/],
  ['bad bits', '{"op":"exp","dtype":"f32","in":["zz"],"out":["00000000"]}', /field "in" must be a list of IEEE bits/],
  [
    'bad doubles',
    '{"words":[1],"raw":[],"state_after_20":"0","seed":"0","state":"0","inc":"0","doubles":"12"}',
    /field "doubles"/,
  ],
];

for (const [name, text, message] of MALFORMED) {
  test(`a malformed file is refused with file and line: ${name}`, () => {
    assert.throws(() => judge(text), invalid(message));
  });
}

test('tables are known by name and size', () => {
  const table = Buffer.from(sigmoidTableF16().buffer);
  assert.equal(verifyFixtureBytes('metal-sigmoid-f16-model.u16', table).outcome, 'passed');
  assert.equal(verifyFixtureBytes('metal-sigmoid-f16-model.u16', table.subarray(2)).outcome, 'failed');
  const off = Buffer.from(table);
  off[1000]! ^= 1;
  const report = verifyFixtureBytes('metal-sigmoid-f16-model.u16', off);
  assert.deepEqual([report.outcome, report.failureCount], ['failed', 1]);
  assert.throws(() => verifyFixtureBytes('other.u16', table), invalid(/not the name of a known sigmoid table/));
});

test('paths: files, gzipped files, folders in name order; what cannot be read is named', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'plumbline-fixtures-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  await mkdir(join(folder, 'b'));
  await writeFile(join(folder, 'b', 'inner.jsonl'), greedyLine(1));
  await writeFile(join(folder, 'a.jsonl.gz'), gzipSync(greedyLine(2)));
  await writeFile(join(folder, 'README.md'), 'not a fixture');
  const outcomes: string[] = [];
  for await (const { file, outcome } of verifyFixtures([folder]))
    outcomes.push(`${file.slice(folder.length + 1)} ${outcome}`);
  assert.deepEqual(outcomes, ['a.jsonl.gz failed', 'b/inner.jsonl passed']);

  await writeFile(join(folder, 'cut.jsonl.gz'), gzipSync(greedyLine(1)).subarray(0, 40));
  await assert.rejects(verifyFixtureFile(join(folder, 'cut.jsonl.gz')), invalid(/cut\.jsonl\.gz: cannot be read/));
  await assert.rejects(verifyFixtureFile(join(folder, 'none.jsonl')), invalid(/none\.jsonl: cannot be read/));
  await mkdir(join(folder, 'empty'));
  await assert.rejects(verifyFixtures([join(folder, 'empty')]).next(), invalid(/empty: holds no \.jsonl/));
  await assert.rejects(verifyFixtures([join(folder, 'none')]).next(), invalid(/none: cannot be read/));
});
