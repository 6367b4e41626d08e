/**
 * The error table, its page and the places that make errors agree: the page is what the generator writes, and every code
 * of the table is used somewhere in src/. (That no code outside the table is used, the compiler holds.)
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ERRORS } from '../../src/errors.js';

/** This file runs from dist/test/docs/. */
const root = fileURLToPath(new URL('../../../', import.meta.url));

/** The sources that are not tests; of errors.ts, what follows its table. */
function sources(): string[] {
  const files = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' });
  return files
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'))
    .map((file) => {
      const text = readFileSync(join(root, 'src', file), 'utf8');
      return file === 'errors.ts' ? text.slice(text.indexOf('satisfies Record<string, ErrorRow>')) : text;
    });
}

test('docs/errors.md is what the generator makes of the table', () => {
  const run = spawnSync(process.execPath, [join(root, 'scripts', 'gen-docs.mjs'), '--check'], { encoding: 'utf8' });
  assert.equal(run.status, 0, run.stderr);
});

test('every code of the table is thrown or mapped somewhere in src', () => {
  const text = sources().join('\n');
  const unused = Object.keys(ERRORS).filter((code) => !text.includes(`'${code}'`));
  assert.deepEqual(unused, [], 'codes that nothing makes: use them or take them out of the table');
});

test('every row of the table can stand on the wire', () => {
  for (const [code, row] of Object.entries(ERRORS)) {
    assert.match(code, /^[a-z]+(_[a-z]+)*$/);
    assert.ok(row.status >= 400 && row.status <= 599, `${code}: status ${row.status}`);
    assert.match(row.doc, /^[A-Za-z`].*\.$/s, `${code}: its doc is whole sentences`);
    assert.ok(!row.doc.includes('\n'), `${code}: its doc is one paragraph`);
  }
});
