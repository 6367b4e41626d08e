/** The command line in this process, with streams of its own. */
import assert from 'node:assert/strict';
import type { CliIo } from '../../src/cli/io.js';
import { main } from '../../src/cli/program.js';

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

export interface Setting {
  readonly environment?: Record<string, string>;
  readonly input?: string;
  readonly terminal?: boolean;
  /** Called with everything written to stdout so far, and with what interrupts the command. */
  readonly onOut?: (out: string, interrupt: () => void) => void;
}

/** Runs the command line in this process; no handler of signals may be left behind. */
export async function cli(
  args: readonly string[],
  { environment = {}, input, terminal = false, onOut }: Setting = {},
): Promise<Ran> {
  let out = '';
  let err = '';
  const handlers = new Set<() => void>();
  const interrupt = (): void => [...handlers].forEach((handler) => handler());
  const io: CliIo = {
    out: (text) => {
      out += text;
      onOut?.(out, interrupt);
    },
    err: (text) => (err += text),
    errIsTerminal: terminal,
    inIsTerminal: input === undefined,
    readInput: async () => input ?? '',
    environment,
    onInterrupt: (handler) => {
      handlers.add(handler);
      return () => handlers.delete(handler);
    },
  };
  const code = await main(args, io);
  assert.equal(handlers.size, 0, 'no handler of signals is left');
  return { code, out, err };
}
