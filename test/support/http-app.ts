/** The HTTP app around fake models, for tests without a socket. */
import { createApp, type HttpApp } from '../../src/http/app.js';
import type { HttpOptions, ServerContext } from '../../src/http/context.js';
import { createLog } from '../../src/observe/log.js';
import { Telemetry } from '../../src/observe/telemetry.js';
import type { KeptSessions } from '../../src/sessions/admin.js';
import { fakeModel, type FakeModel } from './fake-served-model.js';

export const DEFAULT_OPTIONS: HttpOptions = {
  listenHost: '127.0.0.1',
  allowedHosts: [],
  corsOrigins: [],
  apiKey: undefined,
  maxBodyBytes: 1024 * 1024,
  keepAliveMs: 0,
  stallTimeoutMs: 0,
};

export interface TestServer extends HttpApp {
  readonly model: FakeModel;
  readonly context: ServerContext;
  post(path: string, body: unknown, headers?: Record<string, string>, signal?: AbortSignal): Promise<Response>;
  get(path: string, headers?: Record<string, string>): Promise<Response>;
}

export function testServer(
  options: Partial<HttpOptions> = {},
  model: FakeModel = fakeModel(),
  sessions?: KeptSessions,
): TestServer {
  const context: ServerContext = {
    options: { ...DEFAULT_OPTIONS, ...options },
    models: [model],
    telemetry: new Telemetry(createLog({ level: 'silent', json: true }), () => ({ running: 0, waiting: 0 })),
    health: () => ({ version: '0.0.0', uptime_s: 1, models: [] }),
    brokenModels: () => 0,
    sessions,
  };
  const http = createApp(context);
  return {
    ...http,
    model,
    context,
    post: async (path, body, headers = {}, signal) =>
      http.app.request(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
        ...(signal === undefined ? {} : { signal }),
      }),
    get: async (path, headers = {}) => http.app.request(path, { headers }),
  };
}

/** The `data:` values of a whole event stream, `[DONE]` as it is, and its comments. */
export async function readEvents(response: Response): Promise<{ events: unknown[]; done: boolean; comments: number }> {
  const frames = (await response.text()).split('\n\n').filter((frame) => frame !== '');
  const data = frames.filter((frame) => frame.startsWith('data: ')).map((frame) => frame.slice('data: '.length));
  return {
    events: data.filter((value) => value !== '[DONE]').map((value) => JSON.parse(value) as unknown),
    done: data.at(-1) === '[DONE]' && data.filter((value) => value === '[DONE]').length === 1,
    comments: frames.filter((frame) => frame.startsWith(':')).length,
  };
}
