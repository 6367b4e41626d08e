/**
 * Lists the licences of what plumbline installs at run time, and fails on one that it is not known to be free to use.
 *
 * Invariants: every production package of the lockfile is listed, optional and foreign-platform ones included; where a
 * package is installed, its own package.json is believed, not the lockfile's copy; a licence that is not in the list, or
 * none at all, is a failure.
 *
 * node scripts/check-licences.mjs
 */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const allowed = new Set(['0BSD', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'BlueOak-1.0.0', 'ISC', 'MIT', 'MIT-0']);

const readJson = (path) => JSON.parse(readFileSync(join(root, path), 'utf8'));

/** Whether a name, `A OR B` or `A AND B` can be met with allowed licences alone; a mixed expression is for a person. */
function isAllowed(expression) {
  const names = expression.split(/[()\s]+/).filter((word) => word !== '');
  const operators = new Set(names.filter((word) => word === 'OR' || word === 'AND'));
  const licences = names.filter((word) => !operators.has(word));
  if (licences.length === 0 || operators.size > 1) return false;
  return operators.has('OR') ? licences.some((name) => allowed.has(name)) : licences.every((name) => allowed.has(name));
}

let refused = 0;
for (const [path, locked] of Object.entries(readJson('package-lock.json').packages)) {
  if (path === '' || locked.dev) continue;
  const manifest = join(path, 'package.json');
  const found = existsSync(join(root, manifest)) ? readJson(manifest) : locked;
  const licence = typeof found.license === 'string' ? found.license : 'none stated';
  const ok = isAllowed(licence);
  if (!ok) refused += 1;
  const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
  console.log(`${ok ? 'ok     ' : 'REFUSED'} ${licence.padEnd(14)} ${name} ${locked.version}`);
}
if (refused > 0) {
  console.error(`plumbline: ${refused} package(s) under a licence that scripts/check-licences.mjs does not know`);
  process.exitCode = 1;
}
