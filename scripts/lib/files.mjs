/**
 * File lists and hashes for the build and check scripts. Paths are relative to `root`, with forward slashes, in a fixed
 * order, so that a hash depends on names and contents alone.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Folders that hold no sources of ours. */
const SKIPPED = new Set(['node_modules', 'dist', 'build', '.git']);

/** Every file under root/folder, sorted; an absent folder has none. */
export function listFiles(root, folder) {
  const start = join(root, folder);
  if (!existsSync(start)) return [];
  const found = [];
  const visit = (relative) => {
    for (const entry of readdirSync(join(root, relative), { withFileTypes: true })) {
      const path = relative === '' || relative === '.' ? entry.name : `${relative}/${entry.name}`;
      if (entry.isDirectory()) {
        if (!SKIPPED.has(entry.name)) visit(path);
      } else if (entry.isFile()) {
        found.push(path);
      }
    }
  };
  visit(folder);
  return found.sort();
}

/** SHA-256 over names and contents of the files, in hex. */
export function hashFiles(root, paths) {
  const hash = createHash('sha256');
  for (const path of paths) {
    const content = readFileSync(join(root, path));
    hash.update(`${path}\0${content.length}\0`).update(content);
  }
  return hash.digest('hex');
}
