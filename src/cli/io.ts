/** What a command sees of its process: streams, environment, interrupts. Tests give it their own. */

export interface CliIo {
  /** Writes to stdout: what the command was asked for, and nothing else. */
  out(text: string): void;
  /** Writes to stderr: progress, notes, errors, logs. */
  err(text: string): void;
  /** Whether stderr is a terminal, where a line can be written over. */
  readonly errIsTerminal: boolean;
  /** Whether stdin is a terminal, where nobody waits to be read. */
  readonly inIsTerminal: boolean;
  /** All of stdin as text. */
  readInput(): Promise<string>;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /**
   * Calls the handler on each SIGINT, SIGTERM and SIGHUP, in place of the process's own end.
   * @returns takes the handler away again.
   */
  onInterrupt(handler: () => void): () => void;
}

/** The last is a terminal that has been closed. */
const INTERRUPTS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export function processIo(): CliIo {
  // A reader that has seen enough (`| head`) is no failure of ours. A command that listens too has work to end first.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    if (process.stdout.listenerCount('error') === 1) process.exit(0);
  });
  // Nor is one that does not want to hear what we do: the work goes on.
  process.stderr.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });
  return {
    out: (text) => void process.stdout.write(text),
    err: (text) => void process.stderr.write(text),
    errIsTerminal: process.stderr.isTTY,
    inIsTerminal: process.stdin.isTTY,
    async readInput() {
      const chunks: Buffer[] = [];
      for await (const chunk of process.stdin) chunks.push(Buffer.from(chunk as Uint8Array));
      return Buffer.concat(chunks).toString('utf8');
    },
    environment: process.env,
    onInterrupt(handler) {
      for (const signal of INTERRUPTS) process.on(signal, handler);
      return () => {
        for (const signal of INTERRUPTS) process.off(signal, handler);
      };
    },
  };
}
