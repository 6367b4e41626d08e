/**
 * Where things are, for tests that run from dist/, and temporary folders that do not outlive their test.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of package.json. */
export const REPOSITORY = findRepository();

/** The model that ships in the package. */
export const EMBEDDED_MODEL = join(REPOSITORY, 'models/plumbline-tiny');

/** A path under test/fixtures. */
export function fixture(...parts: string[]): string {
  return join(REPOSITORY, 'test/fixtures', ...parts);
}

/** What node:test gives a test or suite to clean up with. */
export interface Cleanup {
  after(run: () => void): void;
}

/** A new empty folder, removed when the test is over. */
export function temporaryFolder(test: Cleanup, label = 'test'): string {
  const folder = mkdtempSync(join(tmpdir(), `plumbline-${label}-`));
  test.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function findRepository(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder);
  return folder;
}
