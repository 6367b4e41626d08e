/**
 * `plumbline supervise`: runs any command within limits of memory and time, and leaves nothing of it running. It ends as
 * the command ended, so that it can stand before one without being noticed.
 */
import { closeSync, openSync, writeSync } from 'node:fs';
import { constants } from 'node:os';
import type { Command } from 'commander';
import type { Options } from '../../config.js';
import { PlumblineError } from '../../errors.js';
import { endedAlone, formatSuperviseReport, type Limits, type SuperviseReport } from '../../supervise/report.js';
import { supervise } from '../../supervise/supervise.js';
import { EXIT, type ExitCode } from '../exit-codes.js';
import type { CliIo } from '../io.js';
import { addOptions } from '../option-flags.js';
import type { RunCommand } from '../program.js';

export function addSupervise(program: Command, run: RunCommand): void {
  const command = program
    .command('supervise')
    .description('run a command within limits of memory and time, and leave nothing of it running')
    .argument('<command...>', 'the command and its arguments; put -- before it');
  addOptions(command, ['memoryMib', 'idleS', 'totalS', 'graceS', 'report', 'logLevel', 'json'])
    .addHelpText(
      'after',
      '\nMemory is the resident memory of all descendants, shared pages counted once. At a limit, all of them get SIGTERM,\n' +
        'and SIGKILL after the grace. What the command leaves behind when it exits is ended in the same way.\n' +
        'The exit code is that of the command, or 128 and the number of the signal that ended it; at a limit 122 (idle),\n' +
        '123 (memory) or 124 (total); 130 after an interrupt; 127 when it could not be started.\n' +
        'The report goes to stderr (--json: as one JSON object); --log-level warn tells only of what went wrong.\n' +
        'Under --idle-s the output of the command goes through a pipe: it sees no terminal.',
    )
    .action(run(runSupervised));
}

async function runSupervised(options: Options, io: CliIo, command: Command): Promise<ExitCode> {
  const [program = '', ...args] = command.args;
  const interrupt = new AbortController();
  const reportFile = openReport(options.report);
  const endInterrupts = io.onInterrupt(() => interrupt.abort());
  try {
    const report = await supervise({
      command: program,
      args,
      environment: io.environment,
      limits: limitsOf(options),
      signal: interrupt.signal,
      // The bytes of the command, which the texts of `io` cannot carry.
      output: { stdout: process.stdout, stderr: process.stderr },
    });
    if (reportFile !== undefined) writeSync(reportFile, `${JSON.stringify(report)}\n`);
    if (isTold(report, options)) {
      const lines = options.json ? [JSON.stringify(report)] : formatSuperviseReport(report).map(withName);
      io.err(`${lines.join('\n')}\n`);
    }
    return exitCodeOf(report);
  } finally {
    endInterrupts();
    if (reportFile !== undefined) closeSync(reportFile);
  }
}

/** Opened before anything is started: a run of hours shall not end with a report that has no place. */
function openReport(path: string | undefined): number | undefined {
  if (path === undefined) return undefined;
  try {
    return openSync(path, 'w');
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new PlumblineError('invalid_option', `--report must be a file that can be written (${why})`, {
      param: '--report',
      cause,
    });
  }
}

/** 0 stands for no limit. */
function limitsOf({ memoryMib, idleS, totalS, graceS }: Options): Limits {
  return {
    memoryBytes: memoryMib === 0 ? null : memoryMib * 2 ** 20,
    idleMs: idleS === 0 ? null : idleS * 1000,
    totalMs: totalS === 0 ? null : totalS * 1000,
    graceMs: graceS * 1000,
  };
}

function isTold(report: SuperviseReport, { logLevel }: Options): boolean {
  if (logLevel === 'silent') return false;
  return logLevel === 'info' || logLevel === 'debug' || !endedAlone(report);
}

const withName = (line: string): string => `supervise: ${line}`;

function exitCodeOf({ reason, exitCode, signal }: SuperviseReport): ExitCode {
  if (reason === 'exited') return exitCode ?? EXIT.failed;
  if (reason === 'signalled') return 128 + (signal === null ? 0 : constants.signals[signal]);
  return EXIT[reason];
}
