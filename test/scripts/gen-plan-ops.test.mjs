import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { assembly, constants, header } from '../../scripts/gen-plan-ops.mjs';

const tracked = (path) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const advice = 'run: npm run build:ts && node scripts/gen-plan-ops.mjs';

test('the tracked constants of the C and AssemblyScript interpreters are those of the op table', () => {
  assert.equal(tracked('native/src/plan-ops.h'), header(), advice);
  assert.equal(tracked('wasm/assembly/plan-ops.ts'), assembly(), advice);
});

test('no two constants share a name', () => {
  const names = constants().map(([name]) => name);
  assert.equal(new Set(names).size, names.length);
});
