/**
 * Builds the sources and runs their tests with `node --test`, under limits of memory and time.
 *
 * Invariants: a type error fails before any test runs; the list of tests comes from the sources, so that a stale file in
 * dist/ is never run and a test that was not emitted is an error; what native or wasm artefact is missing is said before
 * the tests run; node's own report is passed through and its exit status is ours, and nothing is printed after its
 * closing lines, unless a limit was passed or something was left running: then that is ended, and told.
 *
 * node scripts/test.mjs [FILTER...] [--no-build] [--OPTION...]
 *   FILTER      part of a source path (`src/sample`, `accept.test`); several are alternatives; none: every test
 *   --no-build  take dist/ as it is
 *   --OPTION    handed to `node --test`, e.g. --test-name-pattern=penalties
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { listFiles } from './lib/files.mjs';
import { runSupervised } from './lib/supervised.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
/** Two files at a time: the engine's own tests use two threads each. */
const concurrency = 2;
/** On Node 20 this bounds a whole test file, which is what must not hang; a single test can set its own. */
const fileTimeoutMs = 300_000;
/** Far above what the tests need, and below what makes a machine useless. Silence: longer than any one file may take. */
const limits = { memoryMib: 8192, idleS: (2 * fileTimeoutMs) / 1000, totalS: 3600 };

const options = process.argv.slice(2).filter((arg) => arg.startsWith('--') && arg !== '--no-build');
const filters = process.argv.slice(2).filter((arg) => !arg.startsWith('--'));
const build = !process.argv.includes('--no-build');

function fail(message) {
  console.error(`plumbline test: ${message}`);
  process.exit(1);
}

function compile() {
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  if (!existsSync(tsc)) fail('typescript is not installed; run npm ci first');
  const run = spawnSync(process.execPath, [tsc, '-p', root], { cwd: root, stdio: 'inherit' });
  if (run.status !== 0) fail('the sources have type errors');
}

/** Says what is there of the two compiled backends; tests that need an absent one decide for themselves what it means. */
function reportArtefacts() {
  const wasm = existsSync(join(root, 'dist', 'wasm', 'kernels.wasm'));
  console.log(`wasm kernels:  ${wasm ? 'dist/wasm/kernels.wasm' : 'MISSING; run npm run build:wasm'}`);
  const statusPath = join(root, 'build', 'native-status.json');
  const status = existsSync(statusPath) ? JSON.parse(readFileSync(statusPath, 'utf8')) : undefined;
  const native = existsSync(join(root, 'build', 'Release', 'plumbline_native.node'));
  const absent = `MISSING (${status?.reason ?? 'never built'}); run npm run build:native`;
  console.log(`native addon:  ${native ? 'build/Release/plumbline_native.node' : absent}`);
}

/** Tests written in TypeScript run from dist/; plain .test.mjs files (of scripts and lint rules) run where they are. */
function testFiles() {
  const sources = ['src', 'test', 'bench']
    .flatMap((folder) => listFiles(root, folder))
    .filter((path) => /\.test\.(ts|mjs)$/.test(path))
    .filter((path) => filters.length === 0 || filters.some((part) => path.includes(part.replace(/^\.\//, ''))));
  const files = sources.map((path) => (path.endsWith('.mjs') ? path : `dist/${path.replace(/\.ts$/, '.js')}`));
  const absent = files.filter((path) => !existsSync(join(root, path)));
  if (absent.length > 0) fail(`not compiled: ${absent.join(', ')}`);
  return files;
}

if (build) compile();
reportArtefacts();
const files = testFiles();
if (files.length === 0) fail(`no test file matches ${filters.join(' ')}`);
console.log(`test files:    ${files.length}`);

const args = [
  '--test',
  '--test-reporter=spec',
  `--test-concurrency=${concurrency}`,
  `--test-timeout=${fileTimeoutMs}`,
  ...options,
  ...files,
];
runSupervised(root, args, { ...limits, report: join(root, 'dist', 'test-run.json') });
