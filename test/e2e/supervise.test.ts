/**
 * `plumbline supervise` as the executable: how it ends, what it passes through, and that nothing of the command is left.
 * Every command here would run for a minute if it were let.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { listProcesses, readEnvironment, readStat } from '../../src/supervise/process-table.js';
import type { SuperviseReport } from '../../src/supervise/report.js';
import { REPOSITORY, temporaryFolder } from '../support/repository.js';

const MAIN = join(REPOSITORY, 'dist', 'src', 'cli', 'main.js');

interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** A supervised run, whose processes carry a mark of this test in their environment. */
class Supervised {
  readonly mark = `SUPERVISE_TEST=${process.pid}-${Math.random()}`;
  readonly process: ChildProcess;
  out = '';
  err = '';

  constructor(args: readonly string[]) {
    const [name = '', value = ''] = this.mark.split('=');
    this.process = spawn(process.execPath, [MAIN, 'supervise', ...args], { env: { ...process.env, [name]: value } });
    this.process.stdout?.setEncoding('utf8').on('data', (text: string) => (this.out += text));
    this.process.stderr?.setEncoding('utf8').on('data', (text: string) => (this.err += text));
  }

  async printed(text: string): Promise<void> {
    for (let i = 0; i < 1000 && !this.out.includes(text); i++) await sleep(10);
    assert.ok(this.out.includes(text), `printed '${this.out}' and '${this.err}'`);
  }

  /** Waits for the end, and finds that no process of it lives. */
  async end(input = ''): Promise<Ran> {
    this.process.stdin?.end(input);
    const [code] = (await once(this.process, 'close')) as [number | null];
    const alive = listProcesses().filter(
      (pid) => readEnvironment(pid)?.includes(this.mark) === true && readStat(pid) !== undefined,
    );
    assert.deepEqual(alive, [], 'processes are left');
    return { code, out: this.out, err: this.err };
  }
}

const run = async (args: readonly string[], input?: string): Promise<Ran> => new Supervised(args).end(input);
/** A run that reports in JSON. */
async function reported(args: readonly string[]): Promise<{ code: number | null; report: SuperviseReport }> {
  const { code, err } = await run(['--json', ...args]);
  return { code, report: JSON.parse(err.trim().split('\n').at(-1) ?? '') as SuperviseReport };
}
const node = (source: string): string[] => ['--', process.execPath, '-e', source];

const MINUTE = 'setTimeout(() => {}, 60_000);';
const STUBBORN = `process.on('SIGTERM', () => {}); console.log('up'); ${MINUTE}`;
const start = (source: string, options = '{}'): string =>
  `require('node:child_process').spawn(process.execPath, ['-e', ${JSON.stringify(source)}], ${options})`;

const absence = process.platform === 'linux' ? false : 'descendants are followed on Linux only';

/** Most of the time is waiting, so they share it. */
describe('supervise', { skip: absence, concurrency: 4 }, () => {
  test('a command that exits passes its code, its streams and its arguments', async () => {
    // It lives on long enough to be measured.
    const echo = `process.stdin.pipe(process.stdout); setTimeout(() => {}, 500); console.error(process.argv.slice(1).join()); process.exitCode = 41;`;
    for (const limits of [[], ['--idle-s', '30', '--memory-mib', '4096', '--total-s', '60']]) {
      const { code, out, err } = await run([...limits, ...node(echo), '--', '--json', '-x'], 'bytes \u00e9\u{1f600}');
      assert.deepEqual([code, out], [41, 'bytes \u00e9\u{1f600}']);
      assert.match(err, /^--json,-x\nsupervise: exited 41 after [\d.]+ s; peak memory \d+ MiB in at most 1 process\n$/);
    }
  });

  test('much output comes whole and in order through the pipe of the idle limit, also to a slow reader', async () => {
    const source = `let s = ''; for (let i = 0; i < 200_000; i++) s += i + '\\n'; process.stdout.write(s);`;
    const supervised = new Supervised(['--idle-s', '30', '--log-level', 'warn', ...node(source)]);
    supervised.process.stdout?.pause();
    await sleep(500);
    supervised.process.stdout?.resume();
    const { code, out, err } = await supervised.end();
    assert.deepEqual([code, err], [0, '']);
    assert.ok(out === Array.from({ length: 200_000 }, (_, i) => `${i}\n`).join(''));
  });

  test('the pipe of the idle limit can be opened by name', async () => {
    const { code, out } = await run(['--idle-s', '30', '--', 'sh', '-c', 'echo named > /dev/stdout']);
    assert.deepEqual([code, out], [0, 'named\n']);
  });

  test('a reader who leaves ends the command as it would without us', async () => {
    const supervised = new Supervised(['--idle-s', '30', '--', 'sh', '-c', 'while echo y; do :; done; exit 9']);
    supervised.process.stdout?.once('data', () => supervised.process.stdout?.destroy());
    const { code, err } = await supervised.end();
    assert.ok(code === 9 || code === 141, `${code}: ${err}`);
  });

  test('each limit has a code of its own, and the report says what was held', async () => {
    const holding = node(`const held = Buffer.alloc(100 << 20, 1); setTimeout(() => held, 60_000);`);
    const memory = await reported(['--memory-mib', '64', ...holding]);
    assert.deepEqual([memory.code, memory.report.reason], [123, 'memory']);
    assert.equal(memory.report.limits.memoryBytes, 64 * 2 ** 20);
    assert.ok((memory.report.memory.breachBytes ?? 0) > 64 * 2 ** 20);
    const idle = await reported(['--idle-s', '0.5', ...node(MINUTE)]);
    assert.deepEqual([idle.code, idle.report.reason, idle.report.limits.idleMs], [122, 'idle', 500]);
    const total = await reported(['--total-s', '0.5', '--grace-s', '2', ...node(MINUTE)]);
    assert.deepEqual([total.code, total.report.reason, total.report.limits.graceMs], [124, 'total', 2000]);
  });

  test('a signal from elsewhere is told, and gives 128 and its number', async () => {
    const { code, err } = await run(node(`process.kill(process.pid, 'SIGKILL'); ${MINUTE}`));
    assert.equal(code, 137);
    assert.match(err, /^supervise: ended by SIGKILL from elsewhere/);
  });

  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    test(`${signal} ends the command and gives 130`, async () => {
      const supervised = new Supervised([...node(`${start(MINUTE)}; console.log('up'); ${MINUTE}`)]);
      await supervised.printed('up');
      supervised.process.kill(signal);
      const { code, err } = await supervised.end();
      assert.equal(code, 130);
      assert.match(err, /^supervise: interrupted \(the command ended by SIGTERM\)/);
    });
  }

  test('one supervised run in another ends with it', async () => {
    const inner = ['--', process.execPath, MAIN, 'supervise', ...node(STUBBORN)];
    const supervised = new Supervised(['--json', '--grace-s', '0.2', ...inner]);
    await supervised.printed('up');
    supervised.process.kill('SIGTERM');
    const { code, err } = await supervised.end();
    const report = JSON.parse(err) as SuperviseReport;
    assert.deepEqual([code, report.killed, report.memory.peakProcesses], [130, 2, 2]);
  });

  test('the report goes to a file, and a quiet run tells only what went wrong', async (t) => {
    const file = join(temporaryFolder(t, 'supervise'), 'report.json');
    const read = (): SuperviseReport => JSON.parse(readFileSync(file, 'utf8')) as SuperviseReport;
    const quiet = ['--report', file, '--log-level', 'warn'];
    const failed = await run([...quiet, ...node('process.exit(3)')]);
    assert.deepEqual([failed.code, failed.err, read().reason, read().exitCode], [3, '', 'exited', 3]);
    const ended = await run([...quiet, '--total-s', '0.5', ...node(MINUTE)]);
    assert.deepEqual([ended.code, read().reason], [124, 'total']);
    assert.match(ended.err, /^supervise: ended for time: limit 0.5 s \(the command ended by SIGTERM\)/);
  });

  test('what cannot be started or written is told before anything runs', async (t) => {
    const folder = temporaryFolder(t, 'supervise');
    const plain = join(folder, 'plain');
    writeFileSync(plain, 'no program');
    for (const [args, code, message] of [
      [['--', join(folder, 'nowhere')], 127, /nowhere could not be started: .*ENOENT.* \[command_not_started\]/],
      [['--idle-s', '5', '--', plain], 127, /plain could not be started: .*EACCES/],
      [
        ['--report', join(folder, 'no', 'file'), '--', 'true'],
        2,
        /--report must be a file .*ENOENT.*\[invalid_option\]/,
      ],
      [
        ['--json', '--', join(folder, 'nowhere'), '--log-level', 'debug'],
        127,
        /^{"error":{"code":"command_not_started"/,
      ],
      [['--', join(folder, 'nowhere'), '--json', '--log-level=debug'], 127, /^error: .*\n$/],
    ] as const) {
      const ran = await run(args);
      assert.deepEqual([ran.code, ran.out], [code, ''], args.join(' '));
      assert.match(ran.err, message);
    }
  });
});
