/**
 * `plumbline verify`: judges the engine by recorded results, on any files of the known formats. One line a case; the
 * exit code is 1 when any case falls short or cannot be judged.
 */
import { InvalidArgumentError, Option, type Command } from 'commander';
import type { Options } from '../../config.js';
import { withBackend } from '../../engine/backends/open-backend.js';
import { PHASES, type Phase } from '../../engine/plan/phase.js';
import { describePlan } from '../../families/describe-plan.js';
import { verifyGolden, type GoldenCheck, type GoldenResult } from '../../families/verify-golden.js';
import { singleModel } from '../../http/model-specs.js';
import { formatFixtureReport, verifyFixtures } from '../../sample/verify/verify-fixtures.js';
import { EXIT, type ExitCode } from '../exit-codes.js';
import type { CliIo } from '../io.js';
import { addOptions } from '../option-flags.js';
import type { RunCommand } from '../program.js';

export function addVerify(program: Command, run: RunCommand): void {
  const verify = program.command('verify').description('judge the engine by recorded results');
  addOptions(
    verify
      .command('golden')
      .description('forward passes against what a reference implementation computed')
      .argument('<dir...>', 'folders with a checkpoint and its golden results'),
    ['backend', 'threads', 'dtype', 'json'],
  )
    .addHelpText(
      'after',
      '\nWithout --dtype the float32 law is judged; bf16 is compared with the recorded bfloat16 run.',
    )
    .action(run(golden));
  addOptions(
    verify
      .command('fixtures')
      .description('sampler, random numbers and tables against recorded results')
      .argument('<path...>', 'fixture files, or folders of them'),
    ['json'],
  ).action(run(fixtures));
  addOptions(
    verify
      .command('plan')
      .description('print the plan of a forward: its ops in order, with their laws, buffers and weights')
      .addOption(new Option('--phase <name>', 'phase of the forward').choices(PHASES).default('decode'))
      .addOption(new Option('--rows <n>', 'tokens of the forward').argParser(rowCount).default(1))
      .addOption(new Option('--logits <n>', 'rows whose logits are wanted').argParser(rowCount).default(1)),
    ['model', 'backend', 'threads', 'dtype', 'gatePolicy', 'json'],
  ).action(run(plan));
}

function rowCount(text: string): number {
  const value = Number(text);
  if (!/^\d{1,4}$/.test(text) || value < 1 || value > 4096)
    throw new InvalidArgumentError('It must be an integer from 1 to 4096.');
  return value;
}

async function golden(options: Options, io: CliIo, command: Command): Promise<ExitCode> {
  const dtype = options.dtype === 'auto' ? 'f32' : options.dtype;
  let passed = true;
  for (const dir of command.args) {
    // A backend of its own for each case: nothing of one can help or harm another.
    const result = await withBackend(options.backend, options.threads, async ({ backend }) =>
      verifyGolden(dir, { backend, dtype }),
    );
    passed &&= result.passed;
    io.out(`${options.json ? JSON.stringify(result) : goldenLine(result)}\n`);
  }
  return passed ? EXIT.done : EXIT.failed;
}

function goldenLine({ dir, family, law, backend, checks, passed }: GoldenResult): string {
  return `${passed ? 'ok  ' : 'FAIL'} ${dir}  ${family} ${law} ${backend}: ${checks.map(checkText).join(', ')}`;
}

function checkText({ name, value, limit, passed, note }: GoldenCheck): string {
  const figures = `${name} ${value.toPrecision(3)} (limit ${limit})`;
  return `${figures}${passed ? '' : ' FELL SHORT'}${note === undefined ? '' : ` [${note}]`}`;
}

async function plan(options: Options, io: CliIo, command: Command): Promise<ExitCode> {
  const { phase, rows, logits } = command.opts<{ phase: Phase; rows: number; logits: number }>();
  const dir = singleModel(options).folder;
  const { dtype, gatePolicy } = options;
  const text = await withBackend(options.backend, options.threads, async ({ backend }) =>
    describePlan({ dir, backend, dtype, gatePolicy, phase, rows, outRows: logits }),
  );
  io.out(options.json ? `${JSON.stringify(text)}\n` : `${text.family} ${text.key}\n${text.lines.join('\n')}\n`);
  return EXIT.done;
}

async function fixtures(options: Options, io: CliIo, command: Command): Promise<ExitCode> {
  let passed = true;
  for await (const report of verifyFixtures(command.args)) {
    passed &&= report.outcome === 'passed';
    io.out(`${options.json ? JSON.stringify(report) : formatFixtureReport(report)}\n`);
  }
  return passed ? EXIT.done : EXIT.failed;
}
