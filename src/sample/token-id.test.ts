import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join, relative } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const SOURCES = fileURLToPath(new URL('../../../src/', import.meta.url));

test('validity.ts is the only module that makes a TokenId', () => {
  const makers = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .map((name) => join(SOURCES, name))
    .filter((path) =>
      /\bas\s+(?:unknown\s+as\s+)?(?:readonly\s+)?TokenId\b|<TokenId>/.test(readFileSync(path, 'utf8')),
    );
  assert.deepEqual(
    makers.map((path) => relative(SOURCES, path)),
    [join('sample', 'validity.ts')],
  );
});
