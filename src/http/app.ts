/**
 * The HTTP application: middleware in the order that a request meets it, then the routes. It needs no socket: tests call
 * `app.request()`, a Node server hands it web-standard requests.
 *
 * Invariants: every answer has `x-request-id`; every failure, in a middleware or a handler, takes the one way through
 * the error table; nothing of a body is read before host, origin and key are accepted.
 */
import { Hono } from 'hono';
import { prepareChat } from '../api/openai/chat.js';
import { prepareCompletion } from '../api/openai/completions.js';
import { openAiModel, openAiModelList } from '../api/openai/models.js';
import { findModel } from '../api/model-names.js';
import { PlumblineError } from '../errors.js';
import { ActiveRequests } from './active-requests.js';
import type { ServerContext } from './context.js';
import type { HttpEnv } from './env.js';
import { errorResponse } from './error-response.js';
import { generationHandler } from './generation-handler.js';
import type { HealthReport } from './health.js';
import { auth } from './middleware/auth.js';
import { cors } from './middleware/cors.js';
import { hostCheck } from './middleware/host-check.js';
import { requestId } from './middleware/request-id.js';
import { requestTelemetry } from './middleware/telemetry.js';
import { unreadBody } from './middleware/unread-body.js';
import { addRoutes, routeLabel, routeName, type Route } from './routes.js';
import { sessionRoutes } from './session-routes.js';

export interface HttpApp {
  readonly app: Hono<HttpEnv>;
  readonly active: ActiveRequests;
  /** From now on new generations are refused with `shutting_down`; what runs goes on. */
  stopAccepting(): void;
}

export function createApp(server: ServerContext): HttpApp {
  const { options, telemetry, models } = server;
  const active = new ActiveRequests();
  let stopping = false;

  const health = (authorized: boolean, broken = server.brokenModels()): HealthReport => ({
    status: stopping
      ? 'stopping'
      : models.length > 0 && broken === models.length
        ? 'broken'
        : broken > 0
          ? 'degraded'
          : 'ok',
    ...(authorized ? { ...server.health(), active_requests: active.size, recent_failures: telemetry.receipts } : {}),
  });
  const refuseWhenStopping = (): void => {
    if (stopping) throw new PlumblineError('shutting_down', 'the server is stopping and takes no new requests');
  };
  const generation = (prepare: Parameters<typeof generationHandler>[0]): Route['handler'] => {
    const handle = generationHandler(prepare, server, active);
    return async (c) => {
      refuseWhenStopping();
      return handle(c);
    };
  };

  const routes: readonly Route[] = [
    {
      method: 'POST',
      path: '/v1/chat/completions',
      summary: 'an answer to a conversation, whole or streamed',
      handler: generation(prepareChat),
    },
    {
      method: 'POST',
      path: '/v1/completions',
      summary: 'the continuation of a text, whole or streamed',
      handler: generation(prepareCompletion),
    },
    {
      method: 'GET',
      path: '/v1/models',
      summary: 'the served models',
      handler: (c) => c.json(openAiModelList(models)),
    },
    {
      method: 'GET',
      path: '/v1/models/:id{.+}',
      summary: 'one served model',
      handler: (c) => c.json(openAiModel(findModel(c.req.param('id') ?? '', models))),
    },
    ...sessionRoutes(server.sessions),
    {
      method: 'GET',
      path: '/health',
      summary: 'state, backend, memory, queue',
      handler: (c) => {
        const report = health(c.get('authorized'));
        return c.json(report, report.status === 'ok' || report.status === 'degraded' ? 200 : 503);
      },
    },
    {
      method: 'GET',
      path: '/metrics',
      summary: 'Prometheus metrics',
      handler: async (c) =>
        c.body(await telemetry.metrics.text(), 200, { 'content-type': telemetry.metrics.contentType }),
    },
    {
      method: 'GET',
      path: '/',
      summary: 'this text',
      handler: (c) => c.text(overview(routes, models[0]?.id ?? 'MODEL')),
    },
  ];

  const app = new Hono<HttpEnv>();
  app.use(unreadBody());
  app.use(requestId());
  app.use(requestTelemetry(telemetry, routeLabel(routes)));
  app.use(hostCheck(options.listenHost, options.allowedHosts));
  app.use(cors(options.corsOrigins));
  app.use(auth(options.apiKey, ['/health']));
  addRoutes(app, routes);
  app.onError(errorResponse);
  return {
    app,
    active,
    stopAccepting: () => {
      stopping = true;
    },
  };
}

function overview(routes: readonly Route[], model: string): string {
  const example = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] });
  const lines = routes.map((route) => `  ${routeName(route).padEnd(40)}${route.summary}`);
  return [
    'plumbline: a local model behind an OpenAI-compatible API',
    '',
    ...lines,
    '',
    `curl http://HOST:PORT/v1/chat/completions -H 'content-type: application/json' -d '${example}'`,
    '',
  ].join('\n');
}
