/**
 * Writes the doc pages that are made from the sources: docs/errors.md from the table in src/errors.ts, docs/options.md
 * from the table in src/config.ts, docs/laws.md from the law table of the Qwen families, docs/laws-*.md from those of
 * the others.
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

function lawsPage(laws, { phases, lowering, site }) {
  const gates = [...new Set(laws.flatMap((row) => (row.gate ? [row.gate] : [])))];
  const policies = ['strict', 'mtplx', 'uniform'];
  const lines = [
    '# Numeric laws of the Qwen families',
    '',
    '<!-- Made by scripts/gen-docs.mjs from src/families/qwen/law-table.ts; change the table there, then run npm run docs. -->',
    '',
    'A(x) is x rounded to the activation type: nothing under the law `f32`, bfloat16 under `bf16` and `bf16-mtplx`. Dot',
    'products follow the lane law (sixteen float32 lanes, lane j takes k = j mod 16 in ascending order by fused',
    'multiply-add, then a fixed tree; the wasm backend multiplies, then adds). exp is one written float32 polynomial of',
    'multiplications and additions, the same bits in every backend (`src/numerics/exp.ts`). The exact arithmetic of each op',
    'stands in `src/engine/plan/ops.ts`; a test finds a row of this page for every op of every plan.',
    '',
    '| site | ops | order and rounding | `bf16-mtplx` instead | gate | source |',
    '|---|---|---|---|---|---|',
    ...laws.map((row) => {
      const ops = [...new Set(row.ops.map((op) => `\`${op.split(':')[0]}\``))].join(', ');
      return `| ${[row.site, ops, row.law.replaceAll('|', '\\|'), row.mtplx, row.gate ?? '', row.source].join(' | ')} |`;
    }),
    '',
    '## Gates that follow the phase',
    '',
    'A gate is `A(1 / (1 + e^|x|))`, mirrored for x >= 0, rounded at every step; in bfloat16 it is a table of 65,536',
    'entries. `standalone` takes the correctly rounded exponential, `fused` takes exp2 of the product with log2(e) rounded',
    'to float32. The phase of a forward decides, by the gate policy in use:',
    '',
    `| gate | policy | ${phases.join(' | ')} |`,
    `|---|---|${phases.map(() => '---|').join('')}`,
    ...gates.flatMap((gate) =>
      policies.map(
        (policy) =>
          `| ${gate} | ${policy} | ${phases.map((phase) => site(gate, lowering(phase), policy)).join(' | ')} |`,
      ),
    ),
    '',
    'Where a table entry says standalone for `shared-expert` and `ple-value`, the ordinary sigmoid of the row above is meant',
    'under `f32` and `bf16`. The draft head runs outside every phase: all its gates are standalone.',
    '',
  ];
  return lines.join('\n');
}

/** The page of a family that has one activation law and no gates. */
function plainLawsPage(title, source, intro, laws) {
  const lines = [
    `# Numeric laws of ${title}`,
    '',
    `<!-- Made by scripts/gen-docs.mjs from ${source}; change the table there, then run npm run docs. -->`,
    '',
    ...intro,
    '',
    '| site | ops | order and rounding | source |',
    '|---|---|---|---|',
    ...laws.map((row) => {
      const ops = [...new Set(row.ops.map((op) => `\`${op.split(':')[0]}\``))].join(', ');
      return `| ${[row.site, ops, row.law.replaceAll('|', '\\|'), row.source].join(' | ')} |`;
    }),
    '',
  ];
  return lines.join('\n');
}

/** What all of them have in common; `why` is why there is no bfloat16 law. */
const float32Only = (why) => [
  'Activations are float32 (`f32`, which `--dtype auto` means) on the weights as they are stored; there is no bfloat16 law,',
  `because ${why}. Every operation`,
  'is one float32 operation in the written order. Dot products follow the lane law (sixteen lanes, lane j takes k = j mod 16',
  'in ascending order by fused multiply-add, then a fixed tree; the wasm backend multiplies, then adds). exp is one written',
  'float32 polynomial (`src/numerics/exp.ts`). Nothing depends on the phase of a forward. The exact arithmetic of each op',
  'stands in `src/engine/plan/ops.ts`; a test finds a row of this page for every op of every plan.',
];

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

const { phaseLowering, siteLowering } = await compiled('families/qwen/laws.js');
const pages = {
  'docs/laws.md': lawsPage((await compiled('families/qwen/law-table.js')).QWEN_LAWS, {
    phases: (await compiled('engine/plan/phase.js')).PHASES,
    lowering: phaseLowering,
    site: siteLowering,
  }),
  'docs/laws-deepseek.md': plainLawsPage(
    'DeepSeek V4',
    'src/families/deepseek/law-table.ts',
    float32Only('the reference of this family has no working bfloat16 forward to take rounding points from'),
    (await compiled('families/deepseek/law-table.js')).DEEPSEEK_LAWS_TABLE,
  ),
  'docs/laws-glm.md': plainLawsPage(
    'GLM',
    'src/families/glm/law-table.ts',
    float32Only('nothing published judges a bfloat16 forward of this family'),
    (await compiled('families/glm/law-table.js')).GLM_LAWS_TABLE,
  ),
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
