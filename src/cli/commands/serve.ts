/** `plumbline serve`: loads models and serves them until it is told to stop. */
import type { Command } from 'commander';
import type { OptionName, Options } from '../../config.js';
import { PlumblineError } from '../../errors.js';
import { isLoopback } from '../../http/middleware/host-check.js';
import { startServer, type RunningServer } from '../../http/server.js';
import { formatMemoryPlan } from '../../weights/memory-plan.js';
import { backendLine, curlExample, modelLine } from '../describe-model.js';
import { EXIT, type ExitCode } from '../exit-codes.js';
import type { CliIo } from '../io.js';
import { addOptions } from '../option-flags.js';
import { percent, ProgressLine } from '../progress-line.js';
import type { RunCommand } from '../program.js';

const SERVE_OPTIONS: readonly OptionName[] = [
  'model',
  'modelId',
  'backend',
  'threads',
  'dtype',
  'context',
  'parallel',
  'maxQueue',
  'prefillChunk',
  'speculation',
  'draftDepth',
  'depthPolicy',
  'contextCopy',
  'gatePolicy',
  'sessions',
  'sessionRamMib',
  'sessionDir',
  'sessionDiskMib',
  'sessionMinFreeMib',
  'sessionWriteMibS',
  'temperature',
  'topP',
  'topK',
  'seed',
  'maxTokens',
  'host',
  'port',
  'apiKey',
  'corsOrigin',
  'allowedHost',
  'maxBodyMib',
  'requestTimeoutS',
  'shutdownTimeoutS',
  'keepAliveS',
  'logLevel',
  'json',
];

export function addServe(program: Command, run: RunCommand): void {
  addOptions(program.command('serve'), SERVE_OPTIONS)
    .description('serve one or more models over an OpenAI-compatible HTTP API')
    .addHelpText('after', '\nA first interrupt (Ctrl-C) lets running requests end, a second one ends them.')
    .action(run(serve));
}

export async function serve(options: Options, io: CliIo): Promise<ExitCode> {
  const say = (text: string): void => (options.json ? undefined : io.out(`${text}\n`));
  const tell = (event: object): void => (options.json ? io.out(`${JSON.stringify(event)}\n`) : undefined);
  const interrupts = new Interrupts(io);
  const progress = new ProgressLine(io);
  let server: RunningServer;
  try {
    server = await startServer(options, {
      signal: interrupts.first,
      onBackend: (opened) => say(backendLine(opened)),
      onMemoryPlan: (plan) => {
        say(`memory\n${formatMemoryPlan(plan)}`);
        tell({ event: 'memory-plan', needed: plan.neededBytes, available: plan.availableBytes, lines: plan.lines });
      },
      progress: ({ loadedBytes, totalBytes }) => progress.update(`loading ${percent(loadedBytes, totalBytes)}`),
    });
  } catch (thrown) {
    interrupts.end();
    throw thrown;
  } finally {
    progress.clear();
  }
  const { url, models } = server;
  const question = options.model === undefined ? 'What does fs.readFileSync do?' : 'Hello!';
  const first = models[0]?.served.id ?? '';
  say(
    `${models.map(modelLine).join('\n')}\n\nlistening on ${url}\n\n${curlExample(url, first, question, options.apiKey !== undefined)}\n`,
  );
  if (!isLoopback(options.host) && options.apiKey === undefined) {
    io.err('warning: everyone who reaches this machine can use the server; set an API key (PLUMBLINE_API_KEY)\n');
  }
  tell({ event: 'listening', url, health: server.health() });
  await interrupts.waitFirst();
  say('stopping');
  tell({ event: 'stopping' });
  // A second interrupt is from somebody who does not want to wait: running requests end with an error at once.
  await server.close(undefined, interrupts.second);
  interrupts.end();
  say('stopped');
  tell({ event: 'stopped' });
  return interrupts.second.aborted ? EXIT.interrupted : EXIT.done;
}

/** The first interrupt asks to stop, the second one insists. */
class Interrupts {
  readonly #first = new AbortController();
  readonly #second = new AbortController();
  readonly end: () => void;

  constructor(io: CliIo) {
    this.end = io.onInterrupt(() => {
      if (this.#first.signal.aborted) {
        this.#second.abort();
        this.end(); // a third one is the process's own
      } else {
        this.#first.abort(new PlumblineError('request_cancelled', 'interrupted'));
      }
    });
  }

  /** Aborted by the first interrupt, which also ends a load that goes on. */
  get first(): AbortSignal {
    return this.#first.signal;
  }

  async waitFirst(): Promise<void> {
    return aborted(this.#first.signal);
  }

  /** Aborted by the second interrupt. */
  get second(): AbortSignal {
    return this.#second.signal;
  }
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
