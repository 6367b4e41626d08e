// Writes the op table of src/engine/plan/ops.ts as constants for the C and AssemblyScript interpreters:
// native/src/plan-ops.h and wasm/assembly/plan-ops.ts. Both files are tracked; a test holds them against the table.
// Run after a change of the table: npm run build:ts && node scripts/gen-plan-ops.mjs
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as table from '../dist/src/engine/plan/ops.js';

const snake = (name) => name.replace(/[A-Z]/g, (c) => `_${c}`).toUpperCase();

/** [name, value] of every constant, in order. */
export function constants() {
  const list = [
    ['PLAN_MAGIC_VALUE', table.PLAN_MAGIC],
    ['PLAN_VERSION_VALUE', table.PLAN_VERSION],
    ['PLAN_HEADER_WORDS', table.PLAN_HEADER_WORDS],
    ['CALL_HEADER_WORDS', table.CALL_HEADER_WORDS],
    ['SEQUENCE_RECORD_WORDS', table.SEQUENCE_RECORD_WORDS],
  ];
  table.PLAN_HEADER.forEach((name, index) => list.push([`PLAN_${snake(name)}`, index]));
  table.CALL_HEADER.forEach((name, index) => list.push([`CALL_${snake(name)}`, index]));
  table.WEIGHT_DTYPES.forEach((name, index) => list.push([`DTYPE_${name}`, index]));
  for (const [op, spec] of Object.entries(table.OPS)) {
    list.push([`OP_${snake(op)}`, spec.code]);
    spec.fields.forEach((field, index) => list.push([`${snake(op)}_${snake(field.name)}`, 2 + index]));
    if (spec.repeated) {
      list.push(
        [`${snake(op)}_FIRST_SEGMENT`, 2 + spec.fields.length],
        [`${snake(op)}_SEGMENT_WORDS`, spec.repeated.length],
      );
      spec.repeated.forEach((field, index) => list.push([`SEGMENT_${snake(field.name)}`, index]));
    }
  }
  return list;
}

export const header = () =>
  '/* Generated from src/engine/plan/ops.ts by scripts/gen-plan-ops.mjs. Op fields are word indices from the op`s start. */\n' +
  '#ifndef PLUMBLINE_PLAN_OPS_H\n#define PLUMBLINE_PLAN_OPS_H\n\n' +
  constants()
    .map(([name, value]) => `#define ${name} ${value}\n`)
    .join('') +
  '\n#endif\n';

export const assembly = () =>
  '// Generated from src/engine/plan/ops.ts by scripts/gen-plan-ops.mjs. Op fields are word indices from the op`s start.\n' +
  constants()
    .map(([name, value]) => `export const ${name}: i32 = ${value};\n`)
    .join('');

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(new URL('../native/src/plan-ops.h', import.meta.url), header());
  writeFileSync(new URL('../wasm/assembly/plan-ops.ts', import.meta.url), assembly());
}
