/**
 * Writes the doc pages that are made from the sources: docs/errors.md from the table in src/errors.ts, docs/options.md
 * from the table in src/config.ts.
 *
 * Invariants: a page holds nothing that its table does not say; --check changes nothing and fails, naming the page,
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
    'thrown `PlumblineError`, and what the command line prints in brackets behind the message. A code never changes its',
    'meaning.',
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

function optionsPage(options) {
  const shown = (value) => {
    if (value === undefined || (Array.isArray(value) && value.length === 0)) return '';
    return `\`${String(value)}\``;
  };
  const lines = [
    '# Options',
    '',
    '<!-- Made by scripts/gen-docs.mjs from src/config.ts; change the table there, then run npm run docs. -->',
    '',
    'A flag wins over its environment variable, the variable over the default. `plumbline COMMAND --help` says which',
    'options a command takes. A value that is not allowed is the error [`invalid_option`](errors.md#invalid_option).',
    '',
    '| flag | variable | must be | default | |',
    '|---|---|---|---|---|',
    ...Object.values(options).map(({ flag, env, kind, default: value, help }) => {
      return `| \`${flag}\` | \`${env}\` | ${kind.rule} | ${shown(value)} | ${help} |`;
    }),
    '',
  ];
  return lines.join('\n');
}

/** A compiled module of src/. */
async function compiled(name) {
  const path = join(root, 'dist', 'src', name);
  if (!existsSync(path)) {
    console.error(`plumbline: dist/src/${name} is missing; run npm run build:ts first`);
    process.exit(1);
  }
  return import(path);
}

const pages = {
  'docs/errors.md': errorsPage((await compiled('errors.js')).ERRORS),
  'docs/options.md': optionsPage((await compiled('config.js')).OPTIONS),
};
for (const [path, text] of Object.entries(pages)) {
  const current = existsSync(join(root, path)) ? readFileSync(join(root, path), 'utf8') : '';
  if (current === text) continue;
  if (check) {
    console.error(`plumbline: ${path} is not what its table says; run npm run docs`);
    process.exitCode = 1;
  } else {
    writeFileSync(join(root, path), text);
    console.log(`wrote ${path}`);
  }
}
