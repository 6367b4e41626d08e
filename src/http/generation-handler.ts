/**
 * Runs one prepared generation and answers with it, in one piece or as a stream of events.
 *
 * Invariants: nothing of a stream is sent before the scheduler has taken the request, so every refusal still has its
 * HTTP status; once it is open, a stream ends through one of the writer's three terminals; when the client goes away,
 * the request's signal is pulled and the event iteration is closed, so the work stops with the plan that runs.
 */
import type { Context } from 'hono';
import type { PreparedGeneration, FinishEvent, RequestContext } from '../api/answer.js';
import { openAiError } from '../api/openai/errors.js';
import { PlumblineError, toPlumblineError } from '../errors.js';
import type { GenerationRecord } from '../observe/telemetry.js';
import type { GenerationEvent } from '../schedule/request.js';
import type { ActiveRequest, ActiveRequests } from './active-requests.js';
import type { ServerContext } from './context.js';
import { connectionBreaker, type HttpEnv } from './env.js';
import { readJsonBody } from './json-body.js';
import { sseBody } from './sse-body.js';
import { SseWriter } from './sse-writer.js';

export type Prepare = (body: unknown, context: RequestContext) => PreparedGeneration;

const STREAM_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  // Tells a reverse proxy not to collect the stream before passing it on.
  'x-accel-buffering': 'no',
};

export function generationHandler(prepare: Prepare, server: ServerContext, active: ActiveRequests) {
  return async (c: Context<HttpEnv>): Promise<Response> => {
    const arrival = performance.now();
    const body = await readJsonBody(c.req.raw, server.options.maxBodyBytes);
    const life = active.begin(c.req.raw.signal);
    let started = false;
    try {
      const context = {
        requestId: c.get('requestId'),
        sessionId: c.req.header('x-session-id'),
        signal: life.signal,
        models: server.models,
        now: Date.now(),
      };
      const prepared = prepare(body, context);
      const run = new Run(prepared, life, server, arrival);
      if (!prepared.stream) return c.json((await run.whole()) as object);
      const stream = run.stream(connectionBreaker(c));
      started = true;
      void stream.ended.finally(life.done);
      return c.body(stream.body, 200, STREAM_HEADERS);
    } finally {
      if (!started) life.done();
    }
  };
}

/** One generation on its way to one client. */
class Run {
  #emitted = 0;
  #firstTokenMs: number | undefined;

  constructor(
    private readonly prepared: PreparedGeneration,
    private readonly life: ActiveRequest,
    private readonly server: ServerContext,
    /** `performance.now()` at the arrival of the request. */
    private readonly arrival: number,
  ) {}

  /** The whole answer; throws the failure of the generation. */
  async whole(): Promise<unknown> {
    const { answer, model, request } = this.prepared;
    let events = model.submit(request);
    try {
      const pass = (): Promise<FinishEvent> =>
        this.#consume(events, async (event) => {
          answer.token(event);
          return 'go-on';
        });
      let finish = await pass();
      const again = answer.again?.(finish);
      if (again !== undefined) {
        events = model.submit(again);
        finish = await pass();
      }
      answer.end(finish);
      this.#finished(finish);
      return answer.body();
    } catch (thrown) {
      throw this.#failed(thrown);
    }
  }

  /**
   * Submits the request (throws when it is refused) and starts the stream.
   * @param breakConnection tears the client's connection down.
   * @returns the body, and a promise that settles when the stream has ended; it never rejects.
   */
  stream(breakConnection?: (reason: Error) => void): { body: ReadableStream<Uint8Array>; ended: Promise<void> } {
    const events = this.prepared.model.submit(this.prepared.request);
    const onCancel = (): void => {
      writer.peerClosed();
      this.life.abort(clientGone());
    };
    const { body, sink } = sseBody(onCancel, breakConnection);
    const writer = new SseWriter(sink, this.server.options);
    // The signal covers what the body cannot see: a client that left before anyone read the body.
    this.life.signal.addEventListener('abort', () => {
      const reason: unknown = this.life.signal.reason;
      if (isClientGone(reason) && !writer.hasEnded) writer.destroy(reason);
    });
    return { body, ended: this.#pump(events, writer) };
  }

  async #pump(events: AsyncIterable<GenerationEvent>, writer: SseWriter): Promise<void> {
    const { answer, request } = this.prepared;
    const send = async (chunks: readonly unknown[]): Promise<'go-on' | 'stop'> => {
      for (const chunk of chunks) {
        if ((await writer.event(chunk)) === 'gone') return 'stop';
      }
      return 'go-on';
    };
    try {
      writer.open();
      await send(answer.begin());
      const finish = await this.#consume(events, (event) => send(answer.token(event)));
      const result = await writer.finish(answer.end(finish));
      if (result === 'gone') throw clientGone();
      this.#finished(finish);
    } catch (thrown) {
      const error = this.#failed(thrown);
      await this.#reportInStream(writer, error, request.requestId);
    }
  }

  async #reportInStream(writer: SseWriter, error: PlumblineError, requestId: string): Promise<void> {
    if (writer.state === 'open') await writer.fail(openAiError(error, requestId));
    else if (!writer.hasEnded) writer.destroy(error);
  }

  /** Reads the events to their end; throws when there is none, or when `onToken` says that nobody listens. */
  async #consume(
    events: AsyncIterable<GenerationEvent>,
    onToken: (event: Extract<GenerationEvent, { type: 'token' }>) => Promise<'go-on' | 'stop'>,
  ): Promise<FinishEvent> {
    for await (const event of events) {
      if (event.type === 'finish') return event;
      if (event.type === 'prefill') continue;
      this.#emitted += 1;
      this.#firstTokenMs ??= performance.now() - this.arrival;
      // Leaving the loop closes the iteration, which cancels the request in the scheduler.
      if ((await onToken(event)) === 'stop') throw clientGone();
    }
    throw new PlumblineError('internal_error', 'the generation ended without a finish event');
  }

  #finished({ reason, usage }: FinishEvent): void {
    this.server.telemetry.generation({ ...this.#record(), outcome: { kind: 'finished', reason, usage } });
  }

  /** The failure that the client is told, recorded. */
  #failed(thrown: unknown): PlumblineError {
    const { signal } = this.life;
    const own = toPlumblineError(thrown);
    // Whoever pulled the signal gave the reason; that the work was cancelled is only its echo.
    const error = own.code === 'request_cancelled' && signal.aborted ? toPlumblineError(signal.reason) : own;
    this.server.telemetry.generation({ ...this.#record(), outcome: { kind: 'failed', error } });
    return error;
  }

  #record(): Omit<GenerationRecord, 'outcome'> {
    const { model, request } = this.prepared;
    return {
      requestId: request.requestId,
      model: model.id,
      family: model.family,
      emittedTokens: this.#emitted,
      firstTokenMs: this.#firstTokenMs,
    };
  }
}

const clientGone = (): PlumblineError => new PlumblineError('request_cancelled', 'the client went away');

const isClientGone = (reason: unknown): reason is PlumblineError =>
  reason instanceof PlumblineError && reason.code === 'request_cancelled';
