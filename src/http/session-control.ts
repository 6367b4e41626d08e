/**
 * Kept sessions for commands: those of a running server through its HTTP API, those of a stopped one straight from its
 * folder, under the folder's lock. Both answer with the same shapes.
 *
 * Invariants: a folder that a running server has is never touched from outside, it is asked instead, where it says in its
 * lock file that it can be; what a command opened it closes.
 */
import {
  deletedSessionJson,
  sessionDetailsJson,
  sessionListJson,
  type DeletedSessionJson,
  type SessionJson,
  type SessionListJson,
} from '../api/plumbline/sessions.js';
import { PlumblineError } from '../errors.js';
import { isAlive, readLockOwner } from '../sessions/checkpoints/lock.js';
import { diskFiles } from '../sessions/checkpoints/file-layer.js';
import { modelFolderName, modelSessionFolders } from '../sessions/checkpoints/session-folder.js';
import { openSessionFolder } from '../sessions/open-folder.js';
import { SESSION_FILE_TYPE } from './session-routes.js';

export interface SessionControl {
  /** What is asked: the address of a server, or `folder`. */
  readonly source: string;
  list(): Promise<readonly SessionJson[]>;
  /** @throws session_not_found */
  show(id: string): Promise<SessionJson>;
  /** @throws session_not_found */
  remove(id: string): Promise<DeletedSessionJson>;
  collect(): Promise<{ readonly files: number; readonly owed: number }>;
  /** @throws session_not_found, sessions_off */
  exportSession(id: string): Promise<AsyncIterable<Uint8Array>>;
  /** @throws session_file_invalid, sessions_off */
  importSession(file: AsyncIterable<Uint8Array>): Promise<{ readonly id: string; readonly bytes: number }>;
  close(): Promise<void>;
}

export interface SessionSource {
  /** A running server. */
  readonly url?: string | undefined;
  readonly sessionDir?: string | undefined;
  /** The model whose sessions are meant, where several are served. */
  readonly model?: string | undefined;
  readonly apiKey?: string | undefined;
}

/** @throws invalid_option for neither, session_store_locked for a folder whose owner cannot be asked, and what opening throws */
export async function openSessionControl({ url, sessionDir, model, apiKey }: SessionSource): Promise<SessionControl> {
  if (url !== undefined) return new ServerSessions(url, model, apiKey);
  if (sessionDir === undefined) {
    throw new PlumblineError('invalid_option', 'give --session-dir, or --url of a running server');
  }
  const models = modelSessionFolders(diskFiles, sessionDir);
  const own = model === undefined ? undefined : models.find(({ name }) => name === modelFolderName(model));
  const folders = models.length === 0 ? [sessionDir] : own ? [own.path] : models.map(({ path }) => path);
  for (const folder of folders) {
    const owner = readLockOwner(diskFiles, folder);
    // One server has the folders of all its models, and knows which of them it has.
    if (owner?.address !== undefined && isAlive(owner)) return new ServerSessions(owner.address, model, apiKey);
  }
  if (models.length === 0) return openFolder(sessionDir);
  if (own !== undefined) return openFolder(own.path);
  throw new PlumblineError(
    'invalid_option',
    `the session folder has those of several models; say whose are meant with --of: ${models.map(({ model }) => model).join(', ')}`,
  );
}

async function openFolder(path: string): Promise<SessionControl> {
  const opened = await openSessionFolder(path);
  const { admin } = opened;
  return {
    source: 'folder',
    list: async () => sessionListJson(admin.list()).data,
    show: async (id) => sessionDetailsJson(admin.show(id)),
    remove: async (id) => deletedSessionJson(id, await admin.remove(id)),
    collect: async () => admin.collect(),
    exportSession: async (id) => admin.exportSession(id),
    async importSession(file) {
      const { session, bytes } = await admin.importSession(file);
      return { id: session, bytes };
    },
    close: async () => opened.close(),
  };
}

/** What a server's answers look like, as far as they are looked at. */
interface ErrorBody {
  readonly error?: { readonly message?: string; readonly code?: string };
}

class ServerSessions implements SessionControl {
  readonly source: string;
  readonly #query: string;
  readonly #apiKey: string | undefined;

  constructor(url: string, model: string | undefined, apiKey: string | undefined) {
    this.source = url.replace(/\/$/, '');
    this.#query = model === undefined ? '' : `?model=${encodeURIComponent(model)}`;
    this.#apiKey = apiKey;
  }

  async list(): Promise<readonly SessionJson[]> {
    return ((await this.#json('GET', this.#query)) as SessionListJson).data;
  }

  async show(id: string): Promise<SessionJson> {
    return (await this.#json('GET', `/${encodeURIComponent(id)}${this.#query}`)) as SessionJson;
  }

  async remove(id: string): Promise<DeletedSessionJson> {
    return (await this.#json('DELETE', `/${encodeURIComponent(id)}${this.#query}`)) as DeletedSessionJson;
  }

  async collect(): Promise<{ readonly files: number; readonly owed: number }> {
    return (await this.#json('POST', `:collect${this.#query}`)) as { files: number; owed: number };
  }

  async exportSession(id: string): Promise<AsyncIterable<Uint8Array>> {
    const response = await this.#ask('GET', `/v1/plumbline/session-files/${encodeURIComponent(id)}${this.#query}`);
    return response.body ?? noBytes();
  }

  async importSession(file: AsyncIterable<Uint8Array>): Promise<{ readonly id: string; readonly bytes: number }> {
    const response = await this.#ask('POST', `/v1/plumbline/sessions${this.#query}`, {
      headers: { 'content-type': SESSION_FILE_TYPE },
      body: ReadableStream.from(file),
      duplex: 'half',
    });
    return (await response.json()) as { id: string; bytes: number };
  }

  async close(): Promise<void> {}

  async #json(method: string, path: string): Promise<unknown> {
    return (await this.#ask(method, `/v1/plumbline/sessions${path}`)).json();
  }

  async #ask(method: string, path: string, { headers = {}, ...init }: AskInit = {}): Promise<Response> {
    let response: Response;
    try {
      const authorization = this.#apiKey === undefined ? {} : { authorization: `Bearer ${this.#apiKey}` };
      response = await fetch(this.source + path, { ...init, method, headers: { ...headers, ...authorization } });
    } catch (thrown) {
      throw new PlumblineError('server_unreachable', `no server answers at ${this.source}; start it, or check --url`, {
        cause: thrown,
      });
    }
    if (response.ok) return response;
    const { error } = (await response.json().catch(() => ({}))) as ErrorBody;
    throw refusal(error?.code, error?.message ?? `the server answered with status ${response.status}`);
  }
}

type AskInit = Pick<RequestInit, 'body'> & {
  readonly headers?: Record<string, string>;
  readonly duplex?: 'half';
};

/** The server's own error, where it is one that this version knows. */
function refusal(code: string | undefined, message: string): PlumblineError {
  switch (code) {
    case 'session_not_found':
    case 'sessions_off':
    case 'session_file_invalid':
    case 'unauthorized':
    case 'session_store_unusable':
    case 'invalid_request':
      return new PlumblineError(code, message);
    default:
      return new PlumblineError('server_refused', message);
  }
}

async function* noBytes(): AsyncGenerator<Uint8Array> {}
