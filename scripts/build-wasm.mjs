/**
 * Builds the kernels of the wasm backend: dist/wasm/kernels.wasm, from the AssemblyScript in wasm/assembly/.
 *
 * Invariants: npm packages alone build it (no clang, no emscripten); only baseline SIMD and threads are enabled, since
 * the relaxed dot product is computed wrongly by the baseline compiler of Node 20; the memory is imported and shared, so
 * that the workers of one backend see the same weights; unchanged sources, flags and compiler are not built again.
 *
 * node scripts/build-wasm.mjs [--force]       --force: build even if unchanged
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import asc, { version } from 'assemblyscript/asc';
import { hashFiles, listFiles } from './lib/files.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const entry = 'wasm/assembly/index.ts';
const output = 'dist/wasm/kernels.wasm';
const statusPath = join(root, 'build', 'wasm-status.json');
const force = process.argv.includes('--force');

const flags = [
  ['-O3', '--noAssert', '--runtime', 'stub'],
  ['--enable', 'simd,threads,bulk-memory', '--disable', 'gc'],
  ['--importMemory', '--noExportMemory', '--sharedMemory', '--initialMemory', '1', '--maximumMemory', '65536'],
  // Only numbers cross the boundary to JavaScript; the compiler warns of every exported function that takes a vector.
  ['--disableWarning', '112'],
].flat();

function readStatus() {
  try {
    return JSON.parse(readFileSync(statusPath, 'utf8'));
  } catch {
    return undefined; // never built, or cut short while it was written: build.
  }
}

async function build() {
  const key = { sources: hashFiles(root, listFiles(root, 'wasm')), flags: flags.join(' '), compiler: version };
  const unchanged = JSON.stringify(readStatus()) === JSON.stringify(key) && existsSync(join(root, output));
  if (unchanged && !force) {
    console.log('plumbline: wasm kernels ready (unchanged since the last build)');
    return;
  }
  mkdirSync(join(root, dirname(output)), { recursive: true });
  const args = [entry, '--baseDir', root, '--outFile', output, ...flags];
  const { error } = await asc.main(args, { stdout: process.stdout, stderr: process.stderr });
  if (error) {
    console.error(`plumbline: the wasm kernels do not compile: ${error.message}`);
    process.exitCode = 1;
    return;
  }
  mkdirSync(dirname(statusPath), { recursive: true });
  writeFileSync(statusPath, `${JSON.stringify(key, null, 2)}\n`);
  console.log(`plumbline: wasm kernels ready (${output}, ${readFileSync(join(root, output)).length} bytes)`);
}

await build();
