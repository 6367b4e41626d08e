/**
 * `verify fixtures`: judges files of recorded sampler and MLX results, by their content, whoever made them.
 *
 * Invariants: every line is judged or the file is refused (`fixture_invalid` with file and line); only the comparisons
 * stated in each judge's header are made, at the tolerances stated there.
 */
import { basename } from 'node:path';
import { PlumblineError } from '../../errors.js';
import { Checker, type FixtureFailure } from './checker.js';
import { Fields } from './fields.js';
import type { FixtureFormat } from './format.js';
import { fixtureFiles, linesOf, readBytes, type TextLine } from './lines.js';
import { metalGateFormat, metalPredictedFormat } from './mlx-metal.js';
import { mlxRngFormat } from './mlx-rng.js';
import { judgeSigmoidTable, sigmoidF32Format, sigmoidIndexFormat, sigmoidTableNamed } from './mlx-sigmoid.js';
import { mlxSortFormat } from './mlx-sort.js';
import { ds4LogprobFormat, ds4RngFormat, ds4SampleFormat } from './ds4-sampler.js';
import { batchedFormat } from './sampler-batched.js';
import { blockFormat } from './sampler-block.js';
import { fallbackFormat } from './sampler-fallback.js';
import { lazyRowsFormat } from './sampler-lazy-rows.js';
import { mixedFormat } from './sampler-mixed.js';
import { ordinaryFormat } from './sampler-ordinary.js';
import { pcg64Format } from './sampler-pcg64.js';
import { serialFormat } from './sampler-serial.js';
import { speculativeFormat } from './sampler-speculative.js';

export interface FixtureReport {
  readonly file: string;
  /** The recognised format, such as `sampler/ordinary`. */
  readonly kind: string;
  readonly outcome: 'passed' | 'failed' | 'unsupported';
  /** Lines judged (1 for a table). */
  readonly cases: number;
  /** Comparisons made. */
  readonly checks: number;
  readonly failureCount: number;
  /** The first 20 failures. */
  readonly failures: readonly FixtureFailure[];
  /** Why nothing was judged, when unsupported. */
  readonly reason?: string | undefined;
  readonly seconds: number;
}

const FORMATS: readonly FixtureFormat[] = [
  ordinaryFormat,
  pcg64Format,
  fallbackFormat,
  batchedFormat,
  mixedFormat,
  lazyRowsFormat,
  serialFormat,
  speculativeFormat,
  blockFormat,
  ds4RngFormat,
  ds4LogprobFormat,
  ds4SampleFormat,
  mlxRngFormat,
  mlxSortFormat,
  metalPredictedFormat,
  metalGateFormat,
  sigmoidF32Format,
  sigmoidIndexFormat,
];

/** Every kind that a report can name, with whether it can be judged. */
export const FIXTURE_KINDS: readonly { readonly kind: string; readonly supported: boolean }[] = [
  ...FORMATS.map(({ kind, judge }) => ({ kind, supported: typeof judge === 'function' })),
  { kind: 'mlx/sigmoid-table', supported: true },
];

const isMeta = (line: Fields): boolean => line.isText('op') && line.text('op') === 'meta';

const whereOf = (file: string, line: TextLine): string => `${file}:${line.number}`;

function recognise(file: string, lines: readonly TextLine[]): FixtureFormat {
  for (const line of lines) {
    const fields = Fields.parse(line.text, whereOf(file, line));
    if (isMeta(fields)) continue;
    const format = FORMATS.find((candidate) => candidate.recognises(fields));
    if (format !== undefined) return format;
    throw new PlumblineError('fixture_invalid', `${whereOf(file, line)}: of no known fixture format`);
  }
  throw new PlumblineError('fixture_invalid', `${file}: holds no case`);
}

/** Judges one line; an error of the code under test is a failure of the case, a malformed line refuses the file. */
function judgeLine(judge: (line: Fields, check: Checker) => void, fields: Fields, check: Checker): void {
  try {
    judge(fields, check);
  } catch (thrown) {
    if (!(thrown instanceof PlumblineError) || thrown.code === 'fixture_invalid') throw thrown;
    check.that(false, () => `${thrown.code}: ${thrown.message}`);
  }
}

interface Verdict {
  readonly kind: string;
  readonly cases: number;
  readonly check: Checker;
  readonly reason?: string;
}

function judgeLines(file: string, lines: readonly TextLine[]): Verdict {
  const format = recognise(file, lines);
  const { kind, judge } = format;
  const check = new Checker();
  if (typeof judge !== 'function') return { kind, cases: 0, check, reason: judge.unsupported };
  const judgeOne = judge();
  let cases = 0;
  for (const line of lines) {
    const fields = Fields.parse(line.text, whereOf(file, line));
    if (isMeta(fields)) continue;
    if (!format.recognises(fields)) {
      throw new PlumblineError('fixture_invalid', `${whereOf(file, line)}: not a line of format ${kind}`);
    }
    check.line = line.number;
    judgeLine(judgeOne, fields, check);
    cases++;
  }
  return { kind, cases, check };
}

function judgeTable(file: string, bytes: Buffer): Verdict {
  const table = sigmoidTableNamed(file);
  if (table === undefined) {
    throw new PlumblineError('fixture_invalid', `${file}: ${basename(file)} is not the name of a known sigmoid table`);
  }
  const check = new Checker();
  judgeSigmoidTable(bytes, table, check);
  return { kind: 'mlx/sigmoid-table', cases: 1, check };
}

/**
 * Judges the unpacked bytes of a fixture file.
 * @param file its name: says whether it is a `.u16` table and which, and stands in messages.
 * @throws PlumblineError fixture_invalid: of no known format, or a malformed line.
 */
export function verifyFixtureBytes(file: string, bytes: Buffer): FixtureReport {
  const started = performance.now();
  const isTable = /\.u16(?:\.gz)?$/.test(file);
  const verdict = isTable ? judgeTable(file, bytes) : judgeLines(file, linesOf(bytes.toString('utf8')));
  const { kind, cases, check, reason } = verdict;
  return {
    file,
    kind,
    outcome: reason !== undefined ? 'unsupported' : check.failureCount > 0 ? 'failed' : 'passed',
    cases,
    checks: check.checks,
    failureCount: check.failureCount,
    failures: check.failures,
    reason,
    seconds: (performance.now() - started) / 1000,
  };
}

/**
 * Judges one fixture file: JSON lines or a `.u16` table, plain or gzipped.
 * @throws PlumblineError fixture_invalid: unreadable, of no known format, or a malformed line.
 */
export async function verifyFixtureFile(file: string): Promise<FixtureReport> {
  return verifyFixtureBytes(file, await readBytes(file));
}

/**
 * Judges files, and the fixture files below folders, in order.
 * @throws PlumblineError fixture_invalid, at the file that is not judgeable; reports before it were already given.
 */
export async function* verifyFixtures(paths: readonly string[]): AsyncGenerator<FixtureReport> {
  for (const path of paths) {
    const files = await fixtureFiles(path);
    if (files.length === 0) throw new PlumblineError('fixture_invalid', `${path}: holds no .jsonl or .u16 file`);
    for (const file of files) yield await verifyFixtureFile(file);
  }
}

/** One line a file, and one more for each remembered failure. */
export function formatFixtureReport(report: FixtureReport): string {
  const { file, kind, outcome, cases, checks, failureCount, failures, reason, seconds } = report;
  const mark = { passed: 'ok  ', failed: 'FAIL', unsupported: 'skip' }[outcome];
  if (reason !== undefined) return `${mark} ${file}  ${kind}: unsupported, not passed: ${reason}`;
  const figures = `${cases} cases, ${checks} checks, ${failureCount} failures, ${seconds.toFixed(2)} s`;
  const details = failures.map(({ line, message }) => `\n     line ${line}: ${message}`).join('');
  const more = failureCount > failures.length ? `\n     … and ${failureCount - failures.length} more` : '';
  return `${mark} ${file}  ${kind}: ${figures}${details}${more}`;
}
