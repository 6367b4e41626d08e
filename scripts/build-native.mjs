/**
 * Builds the native addon: build/Release/plumbline_native.node, from binding.gyp and native/.
 *
 * Invariants: nothing is ever downloaded (the headers come from an installed Node's own prefix); an addon that cannot
 * be built is not a failed install, since the wasm backend does the same work: without --force the exit status is 0 and
 * the reason stands on the terminal and in build/native-status.json, where the backend loader and /health read it; an
 * addon whose sources, compiler choice and Node API have not changed is not built again.
 *
 * node scripts/build-native.mjs [--force]     --force: build even if unchanged, and fail when it cannot be built
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { hashFiles, listFiles } from './lib/files.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const statusPath = join(root, 'build', 'native-status.json');
const addonPath = join(root, 'build', 'Release', 'plumbline_native.node');
const force = process.argv.includes('--force');
const windows = process.platform === 'win32';
const buildTimeoutMs = 10 * 60_000;

/** The first of `names` found on PATH, as its full path. */
function findProgram(names) {
  const suffixes = windows ? ['.exe', '.cmd', ''] : [''];
  for (const name of names) {
    if (/[\\/]/.test(name)) {
      if (existsSync(name)) return name;
      continue;
    }
    for (const folder of (process.env.PATH ?? '').split(delimiter)) {
      for (const suffix of suffixes) {
        const path = join(folder, name + suffix);
        if (folder !== '' && existsSync(path)) return path;
      }
    }
  }
  return undefined;
}

/** The prefix whose include/node has the headers: asked for by the user, of the running Node, or of the system. */
function findHeaders() {
  const prefixes = [process.env.npm_config_nodedir, resolve(realpathSync(process.execPath), '..', '..'), '/usr'];
  return prefixes.find((prefix) => prefix && existsSync(join(prefix, 'include', 'node', 'node_api.h')));
}

/** npm names its bundled node-gyp to the scripts it runs; outside npm it is looked for beside npm. */
function findNodeGyp() {
  const npm = findProgram(['npm']);
  const inside = ['node_modules', 'node-gyp', 'bin', 'node-gyp.js'];
  const candidates = [
    process.env.npm_config_node_gyp,
    npm && resolve(dirname(realpathSync(npm)), '..', ...inside),
    resolve(dirname(process.execPath), '..', 'lib', 'node_modules', 'npm', ...inside),
    resolve(dirname(process.execPath), 'node_modules', 'npm', ...inside),
  ];
  return candidates.find((path) => path && existsSync(path));
}

/** What a build needs that this machine lacks, in words; undefined when all is there. */
function missingTool() {
  if (windows) return undefined; // node-gyp itself looks for Visual Studio, and says what it did not find.
  if (!findProgram(['python3', 'python'])) return 'python3 is not on PATH (node-gyp is written in it)';
  if (!findProgram(['make', 'gmake'])) return 'make is not on PATH';
  const wanted = process.env.CC?.split(' ')[0] ?? 'cc';
  if (!findProgram([wanted])) return `no C compiler: ${wanted} is not on PATH`;
  return undefined;
}

function readStatus() {
  try {
    return JSON.parse(readFileSync(statusPath, 'utf8'));
  } catch {
    return undefined; // never built, or cut short while it was written: build.
  }
}

function finish(status) {
  mkdirSync(dirname(statusPath), { recursive: true });
  writeFileSync(statusPath, `${JSON.stringify(status, null, 2)}\n`);
  if (status.ok) {
    console.log(`plumbline: native backend ready (${status.reason})`);
    return;
  }
  // A stale addon of older sources must not be loaded as if it were this one.
  rmSync(addonPath, { force: true });
  console.log(
    [
      '',
      'plumbline: the native backend was not built; the wasm backend will be used instead (slower).',
      `  reason: ${status.reason}`,
      '  to get the native backend: install a C compiler, make and python3 (Debian: apt-get install build-essential',
      '  python3; macOS: xcode-select --install) and the headers of your Node, then run: npm run build:native',
      '',
    ].join('\n'),
  );
  if (force) process.exitCode = 1;
}

function build() {
  if (!existsSync(join(root, 'binding.gyp'))) return finish({ ok: false, reason: 'binding.gyp is missing' });
  const headers = findHeaders();
  const key = {
    sources: hashFiles(root, ['binding.gyp', ...listFiles(root, 'native')]),
    target: `${process.platform}-${process.arch}`,
    napi: process.versions.napi,
    compiler: process.env.CC ?? 'cc',
  };
  const last = readStatus();
  if (!force && last?.ok && existsSync(addonPath) && JSON.stringify(last.key) === JSON.stringify(key)) {
    return finish({ ...last, reason: 'unchanged since the last build' });
  }

  if (!headers) {
    const prefix = resolve(realpathSync(process.execPath), '..', '..');
    return finish({
      ok: false,
      reason: `no Node headers: include/node/node_api.h is neither in ${prefix} nor in /usr`,
    });
  }
  const missing = missingTool();
  if (missing) return finish({ ok: false, reason: missing });
  const nodeGyp = findNodeGyp();
  if (!nodeGyp) return finish({ ok: false, reason: 'node-gyp was not found beside npm' });

  const args = [nodeGyp, 'configure', 'build', `--nodedir=${headers}`, '--release', '--jobs=max', '--loglevel=error'];
  const run = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8', timeout: buildTimeoutMs });
  if (run.error || run.status !== 0 || !existsSync(addonPath)) {
    const output = `${run.stdout ?? ''}${run.stderr ?? ''}`.trimEnd();
    console.error(output);
    const cause = run.error?.message ?? (run.status === 0 ? 'it made no addon' : `exit status ${run.status}`);
    const said = output.split('\n').find((line) => /\berror\b/i.test(line));
    return finish({ ok: false, reason: `node-gyp failed: ${cause}${said ? `; ${said.trim()}` : ''}` });
  }
  if (run.stderr) console.error(run.stderr.trimEnd()); // warnings of the compiler
  // An addon that this Node cannot load (an unresolved symbol, another libc) is no better than none.
  const load = spawnSync(process.execPath, ['-e', 'require(process.argv[1])', addonPath], { encoding: 'utf8' });
  if (load.status !== 0) {
    const said = load.stderr.split('\n').find((line) => line.startsWith('Error:')) ?? `exit status ${load.status}`;
    return finish({ ok: false, reason: `the built addon does not load: ${said}` });
  }
  return finish({ ok: true, reason: `built against the headers in ${headers}`, key });
}

build();
