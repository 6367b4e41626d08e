/**
 * Routes for the sessions that the server keeps: look, take away, carry from one machine to another.
 *
 * Invariants: a request that changes or reads nothing that exists is an error of the table; bodies of files are read as a
 * stream, whatever their size; nothing of a conversation is in an answer but for the exported file itself.
 */
import type { Context } from 'hono';
import { stream } from 'hono/streaming';
import {
  deletedSessionJson,
  sessionDetailsJson,
  sessionListJson,
  type DeletedSessionJson,
} from '../api/plumbline/sessions.js';
import { PlumblineError } from '../errors.js';
import type { KeptSessions } from '../sessions/admin.js';
import type { HttpEnv } from './env.js';
import type { Route } from './routes.js';

export const SESSION_FILE_TYPE = 'application/vnd.plumbline.session';

/** @param sessions undefined while the server keeps none */
export function sessionRoutes(sessions: KeptSessions | undefined): readonly Route[] {
  const admin = (): KeptSessions => {
    if (sessions !== undefined) return sessions;
    throw new PlumblineError('sessions_off', 'this server keeps no sessions; start it with --sessions on');
  };
  return [
    {
      method: 'GET',
      path: '/v1/plumbline/sessions',
      summary: 'the sessions that are kept',
      handler: (c) => c.json(sessionListJson(admin().list(modelOf(c)))),
    },
    {
      method: 'GET',
      path: '/v1/plumbline/sessions/:id{.+}',
      summary: 'one session and its checkpoints',
      handler: (c) => c.json(sessionDetailsJson(admin().show(idOf(c), modelOf(c)))),
    },
    {
      method: 'DELETE',
      path: '/v1/plumbline/sessions/:id{.+}',
      summary: 'drop a session from memory and disk',
      handler: async (c) => c.json(deletedSessionJson(idOf(c), await admin().remove(idOf(c), modelOf(c)))),
    },
    {
      method: 'DELETE',
      path: '/v1/plumbline/sessions',
      summary: 'drop every session',
      handler: async (c) => {
        const deleted: DeletedSessionJson[] = [];
        for (const { session, model } of admin().list(modelOf(c))) {
          deleted.push(deletedSessionJson(session, await admin().remove(session, model)));
        }
        return c.json({ object: 'list', data: deleted });
      },
    },
    {
      method: 'POST',
      path: '/v1/plumbline/sessions',
      summary: 'take in the file of an exported session',
      handler: async (c) => {
        const importer = admin();
        if (c.req.header('content-type') !== SESSION_FILE_TYPE) throw noFile();
        const { session, bytes } = await importer.importSession(bodyOf(c.req.raw), modelOf(c));
        return c.json({ id: session, object: 'plumbline.session.imported', bytes });
      },
    },
    {
      method: 'GET',
      path: '/v1/plumbline/session-files/:id{.+}',
      summary: 'a session as one file',
      handler: async (c) => {
        const file = await admin().exportSession(idOf(c), modelOf(c));
        c.header('content-type', SESSION_FILE_TYPE);
        return stream(
          c,
          async (out) => {
            for await (const piece of file) {
              if (out.aborted) return;
              await out.write(piece);
            }
          },
          // A file that breaks off must not look whole.
          async (error) => {
            const outgoing = (c.env as HttpEnv['Bindings'] | undefined)?.outgoing;
            outgoing?.destroy(error);
          },
        );
      },
    },
    {
      method: 'POST',
      path: '/v1/plumbline/sessions:collect',
      summary: 'sweep the session folder',
      handler: async (c) => c.json({ object: 'plumbline.sessions.collected', ...(await admin().collect(modelOf(c))) }),
    },
  ];
}

/** The body is not touched before it is read: a connection whose body was begun and left cannot be used again. */
async function* bodyOf(request: Request): AsyncGenerator<Uint8Array> {
  if (request.body === null) throw noFile();
  yield* request.body;
}

const noFile = (): PlumblineError =>
  new PlumblineError('unsupported_media_type', `send the file as 'content-type: ${SESSION_FILE_TYPE}'`);

function idOf(c: Context<HttpEnv>): string {
  return c.req.param('id') ?? '';
}

/** Which model's session is meant, where several models are served. */
function modelOf(c: Context<HttpEnv>): string | undefined {
  return c.req.query('model');
}
