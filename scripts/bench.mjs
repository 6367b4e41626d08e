/**
 * Runs a bench under limits of memory and time: `plumbline bench`, or one of the programs in bench/.
 *
 * npm run bench -- [NAME] [ARG...]
 *   NAME  a program of bench/ (sampler, wasm-kernels, …) with its arguments; without one, everything goes to `plumbline bench`
 */
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runSupervised } from './lib/supervised.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const [name = '', ...rest] = process.argv.slice(2);

const isProgram = /^[a-z-]+$/.test(name) && existsSync(join(root, 'bench', `${name}.ts`));
const program = join(root, 'dist', 'bench', `${name}.js`);
if (isProgram && !existsSync(program)) {
  console.error(`plumbline bench: dist/bench/${name}.js is missing; run npm run build:ts first`);
  process.exit(1);
}
const args = isProgram
  ? [program, ...rest]
  : [join(root, 'dist', 'src', 'cli', 'main.js'), 'bench', ...process.argv.slice(2)];

// The synthetic model takes about 3 GB, and a part may be silent until its figures are there.
runSupervised(root, args, { memoryMib: 8192, idleS: 1800, totalS: 4 * 3600 });
