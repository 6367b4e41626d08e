/**
 * The command line: which commands there are and how each is called. Commands get checked options and the process as
 * `CliIo`, and answer with an exit code; nothing here exits.
 */
import { Command } from 'commander';
import type { Options } from '../config.js';
import { packageVersion } from '../http/package-info.js';
import { addBench } from './commands/bench.js';
import { addRun } from './commands/run.js';
import { addServe } from './commands/serve.js';
import { addSessions } from './commands/sessions.js';
import { addSupervise } from './commands/supervise.js';
import { addVerify } from './commands/verify.js';
import { EXIT, reportFailure, type ExitCode } from './exit-codes.js';
import type { CliIo } from './io.js';
import { readOptions } from './option-flags.js';

/** A command with its arguments parsed: options from the table, the rest from the commander command. */
export type CommandBody = (options: Options, io: CliIo, command: Command) => Promise<ExitCode>;
/** Makes the action of a command out of its body. */
export type RunCommand = (body: CommandBody) => (this: Command) => Promise<void>;

/** Parses and runs one command line. Never throws and never exits. */
export async function main(args: readonly string[], io: CliIo): Promise<ExitCode> {
  let code: ExitCode = EXIT.done;
  const run: RunCommand = (body) =>
    async function (this: Command) {
      code = await body(readOptions(this, io), io, this);
    };
  try {
    await createProgram(io, run).parseAsync(args, { from: 'user' });
    return code;
  } catch (thrown) {
    // What follows `--` is another program's.
    const own = args.includes('--') ? args.slice(0, args.indexOf('--')) : args;
    return reportFailure(thrown, io, { json: own.includes('--json'), debug: wantsDebug(own, io) });
  }
}

function createProgram(io: CliIo, run: RunCommand): Command {
  const program = new Command('plumbline')
    .description('local LLM inference: the same request gives the same bytes, and broken numbers are an error')
    .version(packageVersion())
    .exitOverride()
    .configureOutput({ writeOut: (text) => io.out(text), writeErr: (text) => io.err(text) })
    .showHelpAfterError('(--help tells how the command is called)');
  addServe(program, run);
  addRun(program, run);
  addSessions(program, run);
  addBench(program, run);
  addVerify(program, run);
  addSupervise(program, run);
  return program;
}

function wantsDebug(args: readonly string[], io: CliIo): boolean {
  const at = args.indexOf('--log-level');
  return (
    (at === -1 ? io.environment['PLUMBLINE_LOG_LEVEL'] : args[at + 1]) === 'debug' || args.includes('--log-level=debug')
  );
}
