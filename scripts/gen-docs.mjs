/**
 * Writes the doc pages that are made from the sources: docs/errors.md, from the table in src/errors.ts.
 *
 * Invariants: the page holds nothing that the table does not say; --check changes nothing and fails, naming the page,
 * when a page is not what this script would write. Needs a compiled dist/ (npm run build:ts).
 *
 * node scripts/gen-docs.mjs [--check]
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const check = process.argv.includes('--check');

const POISONS = {
  nothing: 'nothing',
  request: 'the request',
  session: 'all cached state of the session',
  process: 'the process',
};

function errorsPage(errors) {
  const lines = [
    '# Errors',
    '',
    '<!-- Made by scripts/gen-docs.mjs from src/errors.ts; change the table there, then run npm run docs. -->',
    '',
    'Every error that plumbline makes on purpose has a code. It is `error.code` in answers of the HTTP API, `code` of a',
    'thrown `PlumblineError`, and what the command line prints before the message. A code never changes its meaning.',
    '',
    'The columns: the HTTP status (on the command line an error ends the process with a non-zero exit status instead);',
    '`error.type` of OpenAI-compatible and of Anthropic-compatible answers; whether the same request may succeed when it',
    'is sent again; and what can no longer be trusted after it and is dropped.',
    '',
    '| code | status | OpenAI type | Anthropic type | retry | drops |',
    '|---|---|---|---|---|---|',
    ...Object.entries(errors).map(([code, row]) => {
      const retry = row.retryable ? 'yes' : 'no';
      const types = `\`${row.openaiType}\` | \`${row.anthropicType}\``;
      return `| [\`${code}\`](#${code}) | ${row.status} | ${types} | ${retry} | ${POISONS[row.poisons]} |`;
    }),
    '',
    ...Object.entries(errors).flatMap(([code, row]) => [`## ${code}`, '', row.doc, '']),
  ];
  return lines.join('\n');
}

const compiled = join(root, 'dist', 'src', 'errors.js');
if (!existsSync(compiled)) {
  console.error('plumbline: dist/src/errors.js is missing; run npm run build:ts first');
  process.exit(1);
}
const { ERRORS } = await import(compiled);

const pages = { 'docs/errors.md': errorsPage(ERRORS) };
for (const [path, text] of Object.entries(pages)) {
  const current = existsSync(join(root, path)) ? readFileSync(join(root, path), 'utf8') : '';
  if (current === text) continue;
  if (check) {
    console.error(`plumbline: ${path} is not what src/errors.ts says; run npm run docs`);
    process.exitCode = 1;
  } else {
    writeFileSync(join(root, path), text);
    console.log(`wrote ${path}`);
  }
}
