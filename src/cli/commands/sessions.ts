/**
 * `plumbline sessions`: look at the sessions that are kept, take them away, carry them to another machine; of a running
 * server, or of its folder when it is stopped.
 *
 * Invariant: a file is written under its name only when it is whole.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Command } from 'commander';
import type { SessionJson } from '../../api/plumbline/sessions.js';
import type { Options } from '../../config.js';
import { PlumblineError } from '../../errors.js';
import { openSessionControl, type SessionControl } from '../../http/session-control.js';
import { EXIT, type ExitCode } from '../exit-codes.js';
import type { CliIo } from '../io.js';
import { addOptions } from '../option-flags.js';
import type { RunCommand } from '../program.js';

type Act = (control: SessionControl, args: readonly string[], say: Say, flags: Flags) => Promise<void>;

interface Flags {
  readonly url?: string;
  readonly of?: string;
  readonly all?: boolean;
}

/** Prints lines for people, or one JSON object. */
type Say = (lines: readonly string[], json: object) => void;

export function addSessions(program: Command, run: RunCommand): void {
  const sessions = program.command('sessions').description('the conversations that are kept warm');
  const add = (usage: string, description: string, act: Act): Command => {
    const command = sessions
      .command(usage)
      .description(description)
      .option('--url <url>', 'a running server; default: the one that has the session folder, else the folder itself')
      .option('--of <model>', 'the model whose sessions are meant, where several are served');
    return addOptions(command, ['sessionDir', 'apiKey', 'json']).action(run(withControl(act)));
  };
  add('ls', 'list what is kept of each session', list);
  add('show <id>', 'one session and its checkpoints', show);
  add('rm [id...]', 'drop sessions from memory and disk', remove).option('--all', 'every session');
  add('gc', 'take away what is fenced or left over', collect);
  add('export <id> <file>', 'write a session as one file', exportSession);
  add('import <file>', 'take in an exported session', importSession);
}

function withControl(act: Act) {
  return async (options: Options, io: CliIo, command: Command): Promise<ExitCode> => {
    const flags = command.opts<Flags>();
    const { sessionDir, apiKey } = options;
    const control = await openSessionControl({ url: flags.url, sessionDir, model: flags.of, apiKey });
    const say: Say = (lines, json) => {
      io.out(options.json ? `${JSON.stringify(json)}\n` : lines.map((line) => `${line}\n`).join(''));
    };
    try {
      await act(control, command.args, say, flags);
      return EXIT.done;
    } finally {
      await control.close();
    }
  };
}

const list: Act = async (control, _, say) => {
  const sessions = await control.list();
  say(sessions.length === 0 ? ['no sessions are kept'] : sessionTable(sessions), { data: sessions });
};

const show: Act = async (control, [id], say) => {
  const session = await control.show(id!);
  const checkpoints = (session.checkpoints ?? []).map(({ kind, lane, tokens, bytes, written_at }) => {
    return ['', kind, lane, `${tokens} tokens`, mebibytes(bytes), written_at];
  });
  say([...sessionTable([session]), ...table(checkpoints)], session);
};

const remove: Act = async (control, ids, say, { all }) => {
  if ((ids.length === 0) !== (all === true)) {
    throw new PlumblineError('invalid_option', 'name the sessions to drop, or give --all, not both');
  }
  // Several models may keep the same id; all that are meant lose it at once.
  const chosen = all === true ? [...new Set((await control.list()).map(({ id }) => id))] : ids;
  for (const id of chosen) {
    const deleted = await control.remove(id);
    const { resident = 0, prefix = 0, checkpoints = 0 } = deleted.dropped;
    const left = deleted.errors.length === 0 ? '' : `; not yet: ${deleted.errors.join(', ')}`;
    say([`${shown(id)}: dropped ${resident + prefix} in memory, ${checkpoints} on disk${left}`], deleted);
  }
  if (chosen.length === 0) say(['no sessions are kept'], { data: [] });
};

const collect: Act = async (control, _, say) => {
  const { files, owed } = await control.collect();
  say([`${files} checkpoints went${owed === 0 ? '' : `, ${owed} drops could not be made yet`}`], { files, owed });
};

const exportSession: Act = async (control, [id, path], say) => {
  const partial = `${path!}.partial`;
  try {
    const file = await control.exportSession(id!);
    await pipeline(Readable.from(file), createWriteStream(partial, { flags: 'wx', mode: 0o600 }));
    await rename(partial, path!);
  } catch (thrown) {
    throw await failedFile(thrown, path!, async () => rm(partial, { force: true }));
  }
  say([`${shown(id!)} is in ${path!}`], { id, file: path });
};

const importSession: Act = async (control, [path], say) => {
  try {
    const { id, bytes } = await control.importSession(createReadStream(path!));
    say([`took in ${shown(id)}, ${mebibytes(bytes)}`], { id, bytes });
  } catch (thrown) {
    throw await failedFile(thrown, path!);
  }
};

/** The system's own words, with the path that the user gave. */
async function failedFile(thrown: unknown, path: string, tidy?: () => Promise<void>): Promise<unknown> {
  const code: unknown = thrown instanceof Error && 'code' in thrown ? thrown.code : undefined;
  if (code !== 'EEXIST') await tidy?.();
  if (thrown instanceof PlumblineError || typeof code !== 'string') return thrown;
  return new PlumblineError('session_file_invalid', `${path} cannot be used: ${code}`, { cause: thrown });
}

const HEAD = ['SESSION', 'STATE', 'IN MEMORY', 'ON DISK', 'WRITTEN'];

/** With the names of the models where there are several. */
function sessionTable(sessions: readonly SessionJson[]): string[] {
  const rows = [HEAD, ...sessions.map(rowOf)];
  if (new Set(sessions.map(({ model }) => model)).size < 2) return table(rows);
  return table(rows.map((row, i) => [i === 0 ? 'MODEL' : shown(sessions[i - 1]!.model ?? ''), ...row]));
}

function rowOf({ id, state, resident, stored }: SessionJson): string[] {
  return [
    shown(id),
    state,
    resident ? `${resident.tokens} tokens, ${mebibytes(resident.bytes)}` : '-',
    stored ? `${stored.tokens} tokens, ${mebibytes(stored.bytes)}` : '-',
    stored?.written_at ?? '-',
  ];
}

/** An id comes from a client: nothing in it may move the cursor or end the line. */
function shown(id: string): string {
  return /^[\x21-\x7e]+$/.test(id) ? id : JSON.stringify(id).replace(/[\x7f-\uffff]/g, escaped);
}

const escaped = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;

const mebibytes = (bytes: number): string => `${(bytes / 1024 / 1024).toFixed(1)} MiB`;

function table(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  );
}
