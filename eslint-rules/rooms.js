/**
 * The rooms of src/, from the wire down to the error table, and how a path maps to its room. A room imports itself and
 * the rooms after it in this list, nothing else.
 */
import { isAbsolute, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Top first. `errors` stands for the two files that anyone may import: errors.ts and config.ts. */
export const ROOMS = [
  'cli',
  'bench',
  'http',
  'api',
  'chat',
  'tokens',
  'schedule',
  'generate',
  'sample',
  'families',
  'engine',
  'numerics',
  'weights',
  'sessions',
  'observe',
  'supervise',
  'errors',
];

const FILE_ROOMS = new Map([
  ['errors.ts', 'errors'],
  ['config.ts', 'errors'],
]);

const root = fileURLToPath(new URL('..', import.meta.url));

/** Path inside src/, with forward slashes; undefined for files elsewhere. */
export function pathInSrc(filename) {
  const inside = relative(resolve(root, 'src'), filename);
  if (inside === '' || isAbsolute(inside) || inside.split(sep)[0] === '..') return undefined;
  return inside.split(sep).join('/');
}

/** The room of a path inside src/: its name, or undefined when it is none of the rooms (src/index.ts, a new folder). */
export function roomOf(inside) {
  const [first, ...rest] = inside.split('/');
  if (rest.length === 0) {
    const stem = first.replace(/\.test\.ts$/, '.ts').replace(/\.js$/, '.ts');
    return FILE_ROOMS.get(stem);
  }
  return ROOMS.includes(first) ? first : undefined;
}

/** Unit tests stand beside their modules and are held to fewer rules. */
export function isTest(filename) {
  return /\.test\.ts$/.test(filename);
}
