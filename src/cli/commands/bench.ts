/** `plumbline bench`: measures this machine and what the engine makes of it, with the bound beside each figure. */
import { Argument, Option, type Command } from 'commander';
import { BENCH_PARTS, describeMachine, runBench, type BenchPart } from '../../bench/bench.js';
import { formatReport } from '../../bench/table.js';
import type { Options } from '../../config.js';
import { PlumblineError } from '../../errors.js';
import { EXIT, type ExitCode } from '../exit-codes.js';
import type { CliIo } from '../io.js';
import { addOptions } from '../option-flags.js';
import { ProgressLine } from '../progress-line.js';
import type { RunCommand } from '../program.js';

interface BenchFlags {
  readonly quick?: boolean;
  readonly size: 'standard' | 'tiny';
}

export function addBench(program: Command, run: RunCommand): void {
  const command = program
    .command('bench')
    .description(
      'measure memory, responsiveness, decode, prefill, the embedded model, speculation and warm sessions, beside what bounds them',
    )
    .addArgument(new Argument('[part...]', 'what to measure (default: everything)').choices(BENCH_PARTS))
    .option('--quick', 'few and short rounds: rough figures, fast')
    .addOption(
      new Option('--size <name>', 'the synthetic model: about 0.6 billion active parameters, or a tiny one')
        .choices(['standard', 'tiny'])
        .default('standard'),
    );
  addOptions(command, ['backend', 'threads', 'json'])
    .addHelpText(
      'after',
      '\nThe synthetic model has random weights and takes about 3 GB of memory; sessions are written to the temporary folder,\n' +
        'about 3 GB in all, and removed. Decode and prefill are measured with one\n' +
        'thread and with all, unless --threads says how many. A missed target is said, and is no failure of the command:\n' +
        'figures depend on what else the machine does.',
    )
    .action(run(bench));
}

async function bench(options: Options, io: CliIo, command: Command): Promise<ExitCode> {
  const { quick = false, size } = command.opts<BenchFlags>();
  const parts = command.processedArgs[0] as readonly BenchPart[];
  const interrupt = new AbortController();
  const endInterrupts = io.onInterrupt(() => interrupt.abort(new PlumblineError('request_cancelled', 'interrupted')));
  const progress = new ProgressLine(io);
  const machine = describeMachine();
  io.out(options.json ? `${JSON.stringify({ machine, size, quick })}\n` : `${machine}\n`);
  try {
    await runBench({
      parts: new Set(parts.length === 0 ? BENCH_PARTS : parts),
      size,
      quick,
      backend: options.backend,
      threads: options.threads,
      signal: interrupt.signal,
      onProgress: (text) => progress.update(text),
      onReport: (report) => {
        progress.clear();
        io.out(options.json ? `${JSON.stringify(report)}\n` : `\n${formatReport(report).join('\n')}\n`);
      },
    });
    return EXIT.done;
  } finally {
    progress.clear();
    endInterrupts();
  }
}
