/** The real server over the embedded model, on a free port, for end-to-end tests. */
import type { TestContext } from 'node:test';
import OpenAI from 'openai';
import type { GivenOptions } from '../../src/config.js';
import type { TestSeams } from '../../src/http/open-model.js';
import { startServer, type RunningServer } from '../../src/http/server.js';

export const MODEL = 'plumbline-tiny';

export interface EmbeddedServer extends RunningServer {
  /** The official client, without retries of its own. */
  readonly client: OpenAI;
  post(
    path: string,
    body: object,
    more?: { signal?: AbortSignal; headers?: Record<string, string> },
  ): Promise<Response>;
}

export async function embeddedServer(options: GivenOptions = {}, seams: TestSeams = {}): Promise<EmbeddedServer> {
  const server = await startServer({ port: 0, threads: 2, logLevel: 'silent', ...options }, {}, seams);
  return {
    ...server,
    client: new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'unused', maxRetries: 0 }),
    post: async (path, body, { signal, headers } = {}) =>
      fetch(server.url + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
        ...(signal === undefined ? {} : { signal }),
      }),
  };
}

/** The same, closed with the test. */
export async function withEmbeddedServer(
  t: TestContext,
  options?: GivenOptions,
  seams?: TestSeams,
): Promise<EmbeddedServer> {
  const server = await embeddedServer(options, seams);
  t.after(async () => server.close(0));
  return server;
}
