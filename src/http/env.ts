/** What the handlers of one request share: its id, its standing, and the Node connection behind it, where there is one. */
import type { HttpBindings } from '@hono/node-server';
import type { Context } from 'hono';
import type { PlumblineError } from '../errors.js';

export interface HttpEnv {
  Bindings: HttpBindings;
  Variables: {
    /** Value of `x-request-id`, in the answer, the log, and every error message that asks for a look at the log. */
    requestId: string;
    /** False only where an API key is set, the request carries none, and the route is open all the same. */
    authorized: boolean;
    /** The failure that the answer reports, for the log and the metrics. */
    failure?: PlumblineError;
  };
}

/** Tears down the connection of a request; undefined where there is none, as in tests without a socket. */
export function connectionBreaker(c: Context<HttpEnv>): ((reason: Error) => void) | undefined {
  const bindings = c.env as HttpBindings | undefined;
  return bindings === undefined ? undefined : (reason) => bindings.outgoing.destroy(reason);
}
