/**
 * An install never fails because the native addon could not be built: the reason is written down, and only --force turns
 * it into a failure. Each test works on a copy of the script in a folder of its own.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const scripts = fileURLToPath(new URL('../../scripts/', import.meta.url));
const gyp = `{ "targets": [ { "target_name": "plumbline_native", "sources": ["native/addon.c"] } ] }`;
const addon = '#include <node_api.h>\nNAPI_MODULE_INIT() { return exports; }\n';

/** A package folder with the build script in it, removed after the test. */
function packageFolder(t, files = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'plumbline-native-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, 'scripts'));
  mkdirSync(join(folder, 'native'));
  cpSync(join(scripts, 'build-native.mjs'), join(folder, 'scripts', 'build-native.mjs'));
  cpSync(join(scripts, 'lib'), join(folder, 'scripts', 'lib'), { recursive: true });
  for (const [path, text] of Object.entries(files)) writeFileSync(join(folder, path), text);
  return folder;
}

function build(folder, { args = [], env = {} } = {}) {
  const script = join(folder, 'scripts', 'build-native.mjs');
  const run = spawnSync(process.execPath, [script, ...args], { encoding: 'utf8', env: { ...process.env, ...env } });
  const status = JSON.parse(readFileSync(join(folder, 'build', 'native-status.json'), 'utf8'));
  return { exit: run.status, said: run.stdout + run.stderr, status };
}

/** A PATH of stand-ins, so that a machine without compilers can pass the look for them. */
function pathWith(folder, programs) {
  const bin = join(folder, 'bin');
  mkdirSync(bin);
  for (const name of programs) symlinkSync(process.execPath, join(bin, name));
  return bin;
}

test('without a compiler the install goes on and says why', (t) => {
  const folder = packageFolder(t, { 'binding.gyp': gyp, 'native/addon.c': addon });
  const env = { PATH: pathWith(folder, ['python3', 'make']), CC: 'no-such-compiler' };
  const { exit, said, status } = build(folder, { env });
  assert.equal(exit, 0);
  assert.equal(status.ok, false);
  assert.match(status.reason, /no-such-compiler is not on PATH/);
  assert.match(said, /wasm backend will be used/);
  assert.match(said, /npm run build:native/);
  assert.equal(build(folder, { env, args: ['--force'] }).exit, 1);
});

test('sources that do not compile leave no older addon behind', (t) => {
  const folder = packageFolder(t, { 'binding.gyp': gyp, 'native/addon.c': 'int broken( {' });
  mkdirSync(join(folder, 'build', 'Release'), { recursive: true });
  const older = join(folder, 'build', 'Release', 'plumbline_native.node');
  writeFileSync(older, 'of an older version');
  const { exit, status } = build(folder);
  assert.equal(exit, 0);
  assert.equal(status.ok, false);
  assert.equal(existsSync(older), false);
});

test('an addon that this Node cannot load counts as not built', (t) => {
  const fakeGyp = `
    require('node:fs').mkdirSync('build/Release', { recursive: true });
    require('node:fs').writeFileSync('build/Release/plumbline_native.node', 'not an addon');`;
  const folder = packageFolder(t, { 'binding.gyp': gyp, 'native/addon.c': addon, 'gyp.cjs': fakeGyp });
  const env = {
    PATH: pathWith(folder, ['python3', 'make', 'cc']),
    CC: 'cc',
    npm_config_node_gyp: join(folder, 'gyp.cjs'),
  };
  const { exit, status } = build(folder, { env });
  assert.equal(exit, 0);
  assert.equal(status.ok, false);
  assert.match(status.reason, /does not load/);
});

test('the headers come from an installed Node and are never downloaded', (t) => {
  const fakeGyp = `console.error('error: asked with ' + process.argv.slice(2).join(' ')); process.exit(1);`;
  const folder = packageFolder(t, { 'binding.gyp': gyp, 'native/addon.c': addon, 'gyp.cjs': fakeGyp });
  const headers = join(folder, 'prefix');
  mkdirSync(join(headers, 'include', 'node'), { recursive: true });
  writeFileSync(join(headers, 'include', 'node', 'node_api.h'), '');
  const env = {
    PATH: pathWith(folder, ['python3', 'make', 'cc']),
    CC: 'cc',
    npm_config_node_gyp: join(folder, 'gyp.cjs'),
    npm_config_nodedir: headers,
  };
  const { status } = build(folder, { env });
  assert.ok(status.reason.includes(`--nodedir=${headers}`), status.reason);
});

test('an unchanged addon is not built again, a changed one is', (t) => {
  const folder = packageFolder(t, { 'binding.gyp': gyp, 'native/addon.c': addon });
  const first = build(folder);
  if (!first.status.ok) {
    // No compiler on this machine: what must hold then is that the reason is known and nothing is kept.
    assert.notEqual(first.status.reason, '');
    assert.equal(first.exit, 0);
    return;
  }
  assert.match(first.status.reason, /^built against the headers in /);
  assert.match(build(folder).status.reason, /^unchanged/);
  writeFileSync(join(folder, 'native', 'addon.c'), `${addon}/* changed */\n`);
  assert.match(build(folder).status.reason, /^built against/);
});
