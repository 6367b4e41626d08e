/**
 * Reading fixture files: JSON lines, plain or gzipped, and whole binary tables.
 */
import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { PlumblineError } from '../../errors.js';

const FIXTURE_NAME = /\.(?:jsonl|u16)(?:\.gz)?$/;

function unreadable(path: string, cause: unknown): PlumblineError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new PlumblineError('fixture_invalid', `${path}: cannot be read: ${reason}`, { cause });
}

/** A path as the files that it names: itself, or the fixture files below a folder, in name order. */
export async function fixtureFiles(path: string): Promise<string[]> {
  try {
    if (!(await stat(path)).isDirectory()) return [path];
    const entries = await readdir(path, { withFileTypes: true });
    const files: string[] = [];
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const below = join(path, entry.name);
      if (entry.isDirectory()) files.push(...(await fixtureFiles(below)));
      else if (FIXTURE_NAME.test(entry.name)) files.push(below);
    }
    return files;
  } catch (cause) {
    throw cause instanceof PlumblineError ? cause : unreadable(path, cause);
  }
}

/** A whole file, unpacked when its name ends in .gz. */
export async function readBytes(path: string): Promise<Buffer> {
  try {
    const bytes = await readFile(path);
    return path.endsWith('.gz') ? await promisify(gunzip)(bytes) : bytes;
  } catch (cause) {
    throw unreadable(path, cause);
  }
}

export interface TextLine {
  /** 1-based. */
  readonly number: number;
  readonly text: string;
}

/** The non-empty lines of a text. */
export function linesOf(text: string): TextLine[] {
  return text
    .split('\n')
    .map((line, i) => ({ number: i + 1, text: line }))
    .filter((line) => line.text.trim() !== '');
}
