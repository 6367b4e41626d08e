/**
 * `plumbline run`: one prompt, answered on the terminal. It asks through the same dialect as a client of the server, so
 * an answer here is the answer there.
 */
import type { Command } from 'commander';
import type { FinishEvent, PreparedGeneration, RequestContext } from '../../api/answer.js';
import { prepareChat } from '../../api/openai/chat.js';
import { prepareCompletion } from '../../api/openai/completions.js';
import type { OptionName, Options } from '../../config.js';
import { PlumblineError } from '../../errors.js';
import { openModel, type OpenedModel } from '../../http/open-model.js';
import { singleModel } from '../../http/model-specs.js';
import { EXIT, type ExitCode } from '../exit-codes.js';
import type { CliIo } from '../io.js';
import { addOptions } from '../option-flags.js';
import { percent, ProgressLine } from '../progress-line.js';
import type { RunCommand } from '../program.js';

const RUN_OPTIONS: readonly OptionName[] = [
  'model',
  'backend',
  'threads',
  'dtype',
  'context',
  'prefillChunk',
  'speculation',
  'draftDepth',
  'depthPolicy',
  'contextCopy',
  'gatePolicy',
  'temperature',
  'topP',
  'topK',
  'seed',
  'maxTokens',
  'logLevel',
  'json',
];

interface RunFlags {
  readonly system?: string;
  readonly raw?: boolean;
  readonly think?: boolean;
  readonly stop?: readonly string[];
}

export function addRun(program: Command, run: RunCommand): void {
  const command = program
    .command('run')
    .description('answer one prompt on the terminal')
    .argument('[prompt]', 'the prompt; `-`, or nothing with input piped in, reads it from stdin')
    .option('--system <text>', 'instructions before the prompt')
    .option('--raw', 'continue the prompt as plain text, without the chat template')
    .option('--think', 'let the model reason first, where its template knows how; reasoning goes to stderr')
    .option('--stop <text...>', 'end the answer where this text would begin');
  addOptions(command, RUN_OPTIONS)
    .addHelpText('after', '\nWith --json the answer is printed as one JSON object, as the HTTP API gives it.')
    .action(run(runPrompt));
}

export async function runPrompt(options: Options, io: CliIo, command: Command): Promise<ExitCode> {
  const prompt = await readPrompt(command.args[0], io);
  const flags = command.opts<RunFlags>();
  const interrupt = new AbortController();
  const endInterrupts = io.onInterrupt(() => interrupt.abort(new PlumblineError('request_cancelled', 'interrupted')));
  const progress = new ProgressLine(io);
  let model: OpenedModel | undefined;
  try {
    model = await openModel(
      singleModel(options),
      { ...options, parallel: 1, maxQueue: 0, sessions: 'off' },
      {
        signal: interrupt.signal,
        progress: ({ loadedBytes, totalBytes }) => progress.update(`loading ${percent(loadedBytes, totalBytes)}`),
      },
    );
    const context = { requestId: 'run', signal: interrupt.signal, models: [model.served], now: Date.now() };
    const prepared = prepare(model, prompt, flags, context);
    if (options.json) io.out(`${JSON.stringify(await wholeAnswer(prepared, progress))}\n`);
    else await streamAnswer(prepared, io, progress);
    return EXIT.done;
  } finally {
    progress.clear();
    endInterrupts();
    await model?.close(0);
  }
}

async function readPrompt(given: string | undefined, io: CliIo): Promise<string> {
  if (given !== undefined && given !== '-') return given;
  if (given === undefined && io.inIsTerminal) {
    throw new PlumblineError('invalid_option', 'no prompt: give one as an argument, or pipe it in');
  }
  const text = await io.readInput();
  if (text.trim() === '') throw new PlumblineError('invalid_option', 'the prompt on stdin is empty');
  return text;
}

function prepare(model: OpenedModel, prompt: string, flags: RunFlags, context: RequestContext): PreparedGeneration {
  const common = { model: model.served.id, stop: flags.stop };
  if (flags.raw === true) return prepareCompletion({ ...common, prompt }, context);
  const system = flags.system === undefined ? [] : [{ role: 'system', content: flags.system }];
  const messages = [...system, { role: 'user', content: prompt }];
  const think = flags.think === true ? { chat_template_kwargs: { enable_thinking: true } } : {};
  return prepareChat({ ...common, messages, ...think }, context);
}

async function wholeAnswer(prepared: PreparedGeneration, progress: ProgressLine): Promise<unknown> {
  await consume(prepared, progress, () => undefined);
  return prepared.answer.body();
}

async function streamAnswer(prepared: PreparedGeneration, io: CliIo, progress: ProgressLine): Promise<void> {
  let atLineStart = true;
  const finish = await consume(prepared, progress, (chunk) => {
    const { content, reasoning } = textOf(chunk);
    if (reasoning !== '') io.err(reasoning);
    if (content === '') return;
    io.out(content);
    atLineStart = content.endsWith('\n');
  });
  if (!atLineStart) io.out('\n');
  if (io.errIsTerminal) io.err(`${summary(finish)}\n`);
}

/** Runs the generation and hands every chunk of its answer on. */
async function consume(
  { model, request, answer }: PreparedGeneration,
  progress: ProgressLine,
  onChunk: (chunk: unknown) => void,
): Promise<FinishEvent> {
  for await (const event of model.submit(request)) {
    if (event.type === 'prefill') {
      progress.update(`reading the prompt ${percent(event.processed, event.total)}`);
      continue;
    }
    progress.clear();
    (event.type === 'token' ? answer.token(event) : answer.end(event)).forEach(onChunk);
    if (event.type === 'finish') return event;
  }
  throw new PlumblineError('internal_error', 'the generation ended without a finish event');
}

interface TextChunk {
  readonly choices: readonly {
    readonly text?: string;
    readonly delta?: { readonly content?: string; readonly reasoning_content?: string };
  }[];
}

function textOf(chunk: unknown): { content: string; reasoning: string } {
  const choice = (chunk as TextChunk).choices[0];
  return { content: choice?.text ?? choice?.delta?.content ?? '', reasoning: choice?.delta?.reasoning_content ?? '' };
}

function summary({ reason, usage }: FinishEvent): string {
  const rate = usage.decodeMs > 0 ? `, ${((usage.completionTokens * 1000) / usage.decodeMs).toFixed(1)} tokens/s` : '';
  return `[${usage.promptTokens} + ${usage.completionTokens} tokens${rate}, ${reason}, seed ${usage.seed}]`;
}
