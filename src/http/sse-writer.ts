/**
 * One server-sent-event stream as an explicit state machine.
 *
 *   idle -> open -> ending -> finished    the last frames and `data: [DONE]`, in one write, then a clean end
 *                           | failed      exactly one error frame, then a clean end without `[DONE]`
 *   idle | open | ending   -> destroyed   the connection is torn down; nothing can look complete
 *
 * Invariants: a stream reaches exactly one of the three terminals and writes nothing after it; a transition that is not
 * in this picture is a programming error and throws; a client that goes away is not an error of the producer, so a
 * destroyed stream answers every later call with `gone`. Frames that could not be written destroy the connection: a
 * stream never ends cleanly without its finish or error frame.
 */
import { PlumblineError } from '../errors.js';

export type SseTerminal = 'finished' | 'failed' | 'destroyed';
export type SseState = 'idle' | 'open' | 'ending' | SseTerminal;

/** Whether the bytes went to the connection, or there is no connection any more. */
export type SseResult = 'sent' | 'gone';

/** Where the bytes go. */
export interface SseSink {
  /** Hands over bytes and resolves when more are welcome (backpressure), or rejects when they cannot be written. */
  write(bytes: Uint8Array): Promise<void>;
  /** Hands over bytes only if nothing is waiting before them, else drops them. */
  tryWrite(bytes: Uint8Array): void;
  /** Ends the body in the way that the client sees as complete. */
  close(): void;
  /** Tears the connection down in a way that no client can take for a complete body. A pending write settles. */
  destroy(reason: Error): void;
}

export interface SseWriterOptions {
  /** Longest silence in milliseconds: a comment goes out before it is over; 0: no comments. */
  readonly keepAliveMs: number;
  /** Milliseconds that a write may wait for the client to read before the connection is destroyed; 0: for ever. */
  readonly stallTimeoutMs: number;
}

const encoder = new TextEncoder();
const KEEP_ALIVE = encoder.encode(': keep-alive\n\n');
const TERMINATOR = 'data: [DONE]\n\n';

/** One event of the wire: `data:` and the JSON of the value, which never holds a line break. */
function frame(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

export class SseWriter {
  #state: SseState = 'idle';
  #writing = false;
  /** Nothing was written since the last tick of the keep-alive timer. */
  #quiet = true;
  #keepAlive: NodeJS.Timeout | undefined;
  readonly #sink: SseSink;
  readonly #options: SseWriterOptions;

  constructor(sink: SseSink, options: SseWriterOptions) {
    this.#sink = sink;
    this.#options = options;
  }

  get state(): SseState {
    return this.#state;
  }

  /** Whether a terminal is reached. */
  get hasEnded(): boolean {
    return this.#state === 'finished' || this.#state === 'failed' || this.#state === 'destroyed';
  }

  /** idle -> open: from here comments keep the connection alive. */
  open(): SseResult {
    if (this.#state === 'destroyed') return 'gone';
    this.#require('open', 'idle');
    this.#state = 'open';
    if (this.#options.keepAliveMs > 0) {
      // Two ticks an interval: the first marks the silence, the second ends it in time.
      this.#keepAlive = setInterval(() => this.#tick(), Math.max(1, this.#options.keepAliveMs / 2));
      this.#keepAlive.unref();
    }
    return 'sent';
  }

  /** open -> open: one event frame; resolves when the client has room for the next. */
  async event(value: unknown): Promise<SseResult> {
    if (this.#state === 'destroyed') return 'gone';
    this.#require('event', 'open');
    await this.#put(frame(value));
    return this.#result();
  }

  /** open -> finished: the last event frames and the terminator, in one write: they come whole or not at all. */
  async finish(lastEvents: readonly unknown[]): Promise<SseResult> {
    return this.#end('finish', 'finished', lastEvents.map(frame).join('') + TERMINATOR);
  }

  /** open -> failed: one error frame, no terminator. */
  async fail(error: unknown): Promise<SseResult> {
    return this.#end('fail', 'failed', frame(error));
  }

  /** -> destroyed, from any state but a terminal: nothing more can be said; the client sees a broken connection. */
  destroy(reason: Error): void {
    if (this.#state === 'destroyed') return;
    this.#require('destroy', 'idle', 'open', 'ending');
    this.#leave('destroyed');
    this.#sink.destroy(reason);
  }

  /** The client went away, at any moment; after a terminal this changes nothing. */
  peerClosed(): void {
    if (!this.hasEnded) this.#leave('destroyed');
  }

  async #end(transition: string, terminal: 'finished' | 'failed', text: string): Promise<SseResult> {
    if (this.#state === 'destroyed') return 'gone';
    this.#require(transition, 'open');
    this.#leave('ending');
    await this.#put(text);
    if (this.#result() === 'sent') {
      this.#leave(terminal);
      this.#sink.close();
    }
    return this.#result();
  }

  /** Writes one piece; when that cannot be done, the stream is destroyed. Never rejects for a reason of the client. */
  async #put(text: string): Promise<void> {
    if (this.#writing) throw new PlumblineError('internal_error', 'stream: two writes at once');
    this.#writing = true;
    this.#quiet = false;
    const { stallTimeoutMs } = this.#options;
    const stalled = (): void => this.#abandon(new PlumblineError('request_cancelled', 'the client stopped reading'));
    const timer = stallTimeoutMs > 0 ? setTimeout(stalled, stallTimeoutMs) : undefined;
    try {
      await this.#sink.write(encoder.encode(text));
    } catch (thrown) {
      this.#abandon(new PlumblineError('request_cancelled', 'the stream could not be written', { cause: thrown }));
    } finally {
      clearTimeout(timer);
      this.#writing = false;
    }
  }

  /** As `destroy`, for the moments in which the stream may already be destroyed. */
  #abandon(reason: PlumblineError): void {
    if (this.#state !== 'destroyed') this.destroy(reason);
  }

  #tick(): void {
    if (this.#quiet && !this.#writing) this.#sink.tryWrite(KEEP_ALIVE);
    this.#quiet = !this.#quiet;
  }

  #leave(state: 'ending' | SseTerminal): void {
    this.#state = state;
    clearInterval(this.#keepAlive);
    this.#keepAlive = undefined;
  }

  #result(): SseResult {
    return this.#state === 'destroyed' ? 'gone' : 'sent';
  }

  #require(transition: string, ...allowed: readonly SseState[]): void {
    if (!allowed.includes(this.#state)) {
      throw new PlumblineError('internal_error', `stream: ${transition}() in state '${this.#state}'`);
    }
  }
}
