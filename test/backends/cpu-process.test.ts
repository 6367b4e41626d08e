/** The cpu backend and the process around it: environment, package, worker threads, and every way of ending. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { cpuAbsence } from '../support/cpu-backends.js';

const run = promisify(execFile);

function tempFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'plumbline-cpu-'));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** Runs a module in a process of its own, with everything of the cpu backend's door in scope. */
async function inProcess(code: string, env: Record<string, string> = {}): Promise<string[]> {
  const door = new URL('../../src/engine/backends/cpu/index.js', import.meta.url).href;
  const support = new URL('../support/product-chain.js', import.meta.url).href;
  const script = `
    const { cpuBackendStatus, openCpuBackend } = await import(${JSON.stringify(door)});
    const { productChain } = await import(${JSON.stringify(support)});
    ${code}`;
  const options = { timeout: 60_000, env: { ...process.env, ...env } };
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', script], options);
  return stdout.trim().split('\n');
}

describe('cpu backend and its process', { skip: cpuAbsence() }, () => {
  test('the environment may choose the instruction set', async () => {
    const code = `const s = cpuBackendStatus(); console.log(s.available, s.isa ?? s.reason, s.available && openCpuBackend().isa);`;
    assert.deepEqual(await inProcess(code, { PLUMBLINE_ISA: 'generic' }), ['true generic generic']);
    assert.deepEqual(await inProcess(code, { PLUMBLINE_ISA: 'mmx' }), [
      'false PLUMBLINE_ISA=mmx cannot run on this machine false',
    ]);
  });

  test('a package without its addon says why', async (t) => {
    const folder = tempFolder(t);
    const source = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'src');
    for (const part of ['errors.js', 'engine/backends/cpu']) {
      cpSync(join(source, part), join(folder, 'dist', 'src', part), { recursive: true });
    }
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    const door = join(folder, 'dist', 'src', 'engine', 'backends', 'cpu', 'index.js');
    const ask = async (): Promise<string> => {
      const script = `const { cpuBackendStatus, openCpuBackend } = await import(${JSON.stringify(door)});
        console.log(cpuBackendStatus().reason); try { openCpuBackend(); } catch (e) { console.log(e.code); }`;
      return (await run(process.execPath, ['--input-type=module', '-e', script])).stdout;
    };
    assert.match(await ask(), /has not been built \(npm run build:native\)\nbackend_unavailable/);
    mkdirSync(join(folder, 'build', 'Release'), { recursive: true });
    const status = join(folder, 'build', 'native-status.json');
    writeFileSync(status, JSON.stringify({ ok: false, reason: 'no C compiler' }));
    assert.match(await ask(), /was not built: no C compiler\nbackend_unavailable/);
    writeFileSync(status, '{"ok":');
    assert.match(await ask(), /left no reason\nbackend_unavailable/);
    writeFileSync(join(folder, 'build', 'Release', 'plumbline_native.node'), 'not a library');
    assert.match(await ask(), /cannot be loaded: .*\nbackend_unavailable/);
  });

  test('an idle backend lets the process end; a running plan keeps it until it is done', async () => {
    const lines = await inProcess(`
      const backend = openCpuBackend({ threads: 2 });
      const work = productChain(backend, 3000);
      process.on('exit', () => console.log('left after', work.opsDone()));
      backend.execute(work.execution).then((outcome) => console.log(outcome));`);
    assert.deepEqual(lines, ['done', 'left after 3000']);
  });

  test('a process that exits in the middle of a plan ends at once and cleanly', async () => {
    const lines = await inProcess(`
      const backend = openCpuBackend({ threads: 2 });
      const work = productChain(backend, 2_000_000);
      void backend.execute(work.execution);
      setTimeout(() => { console.log(work.opsDone() > 0); process.exit(0); }, 100);`);
    assert.deepEqual(lines, ['true']);
  });

  test('a worker thread has its own backend, and may be ended in the middle of a plan', async () => {
    const door = JSON.stringify(new URL('../../src/engine/backends/cpu/index.js', import.meta.url).href);
    const support = JSON.stringify(new URL('../support/product-chain.js', import.meta.url).href);
    const lines = await inProcess(`
      const { Worker } = await import('node:worker_threads');
      const own = openCpuBackend({ threads: 1 });
      const source = \`Promise.all([import(${door}), import(${support})]).then(([{ openCpuBackend }, { productChain }]) => {
        const backend = openCpuBackend({ threads: 2 });
        const short = productChain(backend, 10);
        return backend.execute(short.execution).then((outcome) => {
          const work = productChain(backend, 2_000_000);
          void backend.execute(work.execution);
          void import('node:worker_threads').then(({ parentPort }) => parentPort.postMessage(outcome));
        });
      });\`;
      for (let i = 0; i < 3; i++) {
        const worker = new Worker(source, { eval: true });
        console.log(await new Promise((resolve, reject) => worker.on('message', resolve).on('error', reject)));
        await worker.terminate();
      }
      console.log(await own.execute(productChain(own, 3).execution));`);
    assert.deepEqual(lines, ['done', 'done', 'done', 'done']);
  });

  test('backends that are dropped without being closed are collected with their threads', async () => {
    const lines = await inProcess(`
      const v8 = await import('node:v8');
      v8.setFlagsFromString('--expose-gc');
      const gc = (await import('node:vm')).runInNewContext('gc');
      const { readdirSync } = await import('node:fs');
      const count = () => (process.platform === 'linux' ? readdirSync('/proc/self/task').length : 0);
      const before = count();
      (() => { for (let i = 0; i < 20; i++) productChain(openCpuBackend({ threads: 3 }), 2); })();
      for (let i = 0; i < 50 && count() > before; i++) { gc(); await new Promise((resolve) => setTimeout(resolve, 20)); }
      console.log(count() <= before);`);
    assert.deepEqual(lines, ['true']);
  });
});
