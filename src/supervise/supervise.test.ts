/**
 * Limits, and that nothing of a command is left behind them. Every command here would run for a minute if it were let;
 * what the executable makes of it is in test/e2e/supervise.test.ts.
 */
import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { PlumblineError } from '../errors.js';
import { endFamily } from './end-family.js';
import type { Family } from './family.js';
import { GroupFamily } from './group-family.js';
import { listProcesses, readEnvironment, readStat } from './process-table.js';
import { endedAlone, formatSuperviseReport, type Limits, type SuperviseReport } from './report.js';
import { supervise } from './supervise.js';

const MIB = 2 ** 20;
const NO_LIMITS: Limits = { memoryBytes: null, idleMs: 60_000, totalMs: null, graceMs: 5000 };

interface Ran {
  readonly report: SuperviseReport;
  readonly out: string;
}

/** @param stopAt ends the run as an interrupt does, when this has been printed; nothing: before the first look */
async function run(command: readonly string[], limits: Partial<Limits>, stopAt?: string): Promise<Ran> {
  const mark = `SUPERVISE_TEST_${Math.random()}`;
  const [stdout, stderr, stop] = [new PassThrough(), new PassThrough(), new AbortController()];
  let out = '';
  stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
    if (stopAt !== undefined && out.includes(stopAt)) stop.abort();
  });
  stderr.resume();
  if (stopAt === '') stop.abort();
  const report = await supervise({
    command: command[0] ?? '',
    args: command.slice(1),
    environment: { ...process.env, [mark]: '1' },
    limits: { ...NO_LIMITS, ...limits },
    signal: stop.signal,
    output: { stdout, stderr },
  });
  const isLeft = (pid: number): boolean => readEnvironment(pid)?.includes(mark) === true && readStat(pid) !== undefined;
  assert.deepEqual(listProcesses().filter(isLeft), [], 'processes are left');
  return { report, out };
}

const node = (source: string): string[] => [process.execPath, '-e', source];
const MINUTE = 'setTimeout(() => {}, 60_000);';
const STUBBORN = `process.on('SIGTERM', () => {}); console.log('up'); ${MINUTE}`;
const HOG = `const held = []; setInterval(() => held.push(Buffer.alloc(${8 * MIB}, 1)), 10); ${MINUTE}`;
const start = (source: string, options = '{}'): string =>
  `require('node:child_process').spawn(process.execPath, ['-e', ${JSON.stringify(source)}], ${options})`;

const absence = process.platform === 'linux' ? false : 'descendants are followed on Linux only';

describe('supervise', { skip: absence, concurrency: 3 }, () => {
  test('a command that takes too much memory is ended, and its descendants count', async () => {
    const { report } = await run(node(`${start(HOG)}; ${MINUTE}`), { memoryBytes: 256 * MIB });
    assert.deepEqual([report.reason, report.signal], ['memory', 'SIGTERM']);
    const { breachBytes, peakResidentBytes, peakProcesses } = report.memory;
    assert.ok(breachBytes !== null && breachBytes > 256 * MIB);
    assert.ok(peakResidentBytes !== null && peakResidentBytes >= breachBytes);
    assert.equal(peakProcesses, 2);
  });

  test('a hog that ignores SIGTERM is killed before the grace is over', async () => {
    const hog = node(`process.on('SIGTERM', () => {}); ${HOG}`);
    const { report } = await run(hog, { memoryBytes: 256 * MIB, graceMs: 50_000 });
    assert.deepEqual([report.reason, report.signal, report.killed], ['memory', 'SIGKILL', 1]);
    assert.ok(report.wallMs < 45_000);
  });

  test('pages that processes share count once against the limit', async () => {
    // Four processes, three of them forks of the one that has filled 60 MB, and write into none of it.
    const fill = `held=$(head -c 60000000 /dev/zero | tr '\\0' x)`;
    const forks = `${fill}; for i in 1 2 3; do (sleep 1; :) & done; wait; printf ok`;
    const { report, out } = await run(['sh', '-c', forks], { memoryBytes: 180 * MIB });
    assert.deepEqual([report.reason, out], ['exited', 'ok']);
    assert.ok((report.memory.peakResidentBytes ?? 0) > 180 * MIB, 'the plain sum is over the limit');
  });

  test('silence on both streams is ended; output on either is none', async () => {
    const silent = await run(node(`console.log('once'); ${MINUTE}`), { idleMs: 700 });
    assert.deepEqual([silent.report.reason, silent.report.signal], ['idle', 'SIGTERM']);
    assert.ok(silent.report.wallMs >= 700);
    const talking = `let n = 0; setInterval(() => { console.error(n); if (++n > 15) process.exit(5); }, 250);`;
    const { report } = await run(node(talking), { idleMs: 3000 });
    assert.deepEqual([report.reason, report.exitCode], ['exited', 5]);
  });

  test('a command that runs too long is ended, however it talks', async () => {
    const { report } = await run(node('setInterval(() => console.log(1), 50)'), { totalMs: 1000 });
    assert.deepEqual([report.reason, report.signal], ['total', 'SIGTERM']);
    assert.ok(report.wallMs >= 1000 && report.wallMs < 30_000);
  });

  test('what ignores SIGTERM is killed after the grace, with its descendants in other groups and sessions', async () => {
    const detached = `${start(STUBBORN, '{ detached: true, stdio: "inherit" }')}.unref(); ${STUBBORN}`;
    const { report } = await run(node(detached), { graceMs: 300 }, 'up\nup\n');
    assert.deepEqual([report.reason, report.signal, report.killed], ['interrupted', 'SIGKILL', 2]);
    assert.deepEqual([report.watched, report.stillRunning], ['descendants', []]);
  });

  test('what a run held is told also when it is interrupted before the first look', async () => {
    const { report } = await run(node(MINUTE), {}, '');
    assert.deepEqual([report.reason, report.memory.peakProcesses], ['interrupted', 1]);
    assert.ok((report.memory.peakResidentBytes ?? 0) > 0);
  });

  test('a descendant with an empty environment in a session of its own is ended too', async () => {
    const hidden = `${start(STUBBORN, '{ detached: true, stdio: "inherit", env: {} }')}; ${MINUTE}`;
    const { report } = await run(node(hidden), { graceMs: 300 }, 'up');
    assert.deepEqual([report.reason, report.signal, report.killed], ['interrupted', 'SIGTERM', 1]);
  });

  test('a stopped command is ended by SIGTERM', async () => {
    const { report } = await run(['sh', '-c', 'kill -STOP $$; sleep 60'], { totalMs: 1000 });
    assert.deepEqual([report.reason, report.signal, report.killed], ['total', 'SIGTERM', 0]);
  });

  test('a daemon that has detached itself does not outlive the command', async () => {
    const daemon = `${start(MINUTE, '{ detached: true, stdio: "ignore" }')}.unref(); process.exitCode = 6;`;
    const { report } = await run(node(daemon), {});
    assert.deepEqual([report.reason, report.exitCode, report.leftBehind], ['exited', 6, 1]);
    assert.ok(!endedAlone(report));
    assert.match(formatSuperviseReport(report).join('\n'), /^exited 6 after .*\n1 process left behind by the command/);
  });

  test('what holds the limits is refused before anything is started', async () => {
    const refused = (code: string) => (thrown: unknown) => thrown instanceof PlumblineError && thrown.code === code;
    await assert.rejects(run(['/nowhere/command'], {}), refused('command_not_started'));
    await assert.rejects(run(['true', 'a\0b'], {}), refused('command_not_started'));
    const { TMPDIR } = process.env;
    process.env['TMPDIR'] = '/nowhere';
    const attempt = run(['true'], {});
    if (TMPDIR === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = TMPDIR;
    await assert.rejects(attempt, refused('supervise_unavailable'));
  });
});

test(
  'on another system memory is refused with the reason, and a group is ended without a list of processes',
  { skip: absence },
  async () => {
    const { platform } = process;
    const onPlatform = async (name: string, limits: Partial<Limits>): Promise<Ran> => {
      Object.defineProperty(process, 'platform', { value: name });
      // Whatever depends on the system is decided before the first wait, but for the choice of the family.
      return run(['sh', '-c', 'trap "" TERM; echo up; while :; do sleep 0.1; done'], limits, 'up').finally(() =>
        Object.defineProperty(process, 'platform', { value: platform }),
      );
    };
    await assert.rejects(onPlatform('darwin', { memoryBytes: MIB }), /--memory-mib cannot be held: .*Linux.*darwin/);
    await assert.rejects(onPlatform('win32', {}), /process groups, which Windows does not have/);
    const { report } = await onPlatform('darwin', { graceMs: 300 });
    assert.deepEqual([report.reason, report.signal, report.watched], ['interrupted', 'SIGKILL', 'group']);
    assert.equal(report.memory.peakResidentBytes, null);
  },
);

test('a family that cannot be ended is told, and is not waited for without end', { timeout: 60_000 }, async () => {
  const sent: string[] = [];
  const immortal: Family = {
    reach: 'descendants',
    pids: [7],
    look: () => 1,
    memory: () => undefined,
    signal: (name) => sent.push(name),
  };
  const ended = await endFamily(immortal, 60, undefined, 300);
  assert.deepEqual(ended, { killed: 1, stillRunning: [7] });
  assert.deepEqual(sent.slice(0, 3), ['SIGTERM', 'SIGCONT', 'SIGKILL']);
  assert.ok(sent.length > 3);
});

test('a family that has gone gets no signal', async () => {
  const gone = new GroupFamily(2 ** 22 + 1);
  assert.deepEqual(await endFamily(gone, 1000), { killed: 0, stillRunning: [] });
  await sleep(0);
  assert.deepEqual(gone.pids, []);
});
