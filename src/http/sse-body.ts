/**
 * The two ends of a streamed response body: a web `ReadableStream` for the server, an `SseSink` for the writer.
 *
 * Invariants: at most `HIGH_WATER_BYTES` wait in memory, plus the piece that is being written; a consumer that cancels
 * (the client went away) is reported once; `destroy` breaks the connection itself where there is one, because a stream
 * error alone may be turned into a clean end by the layer below.
 */
import type { SseSink } from './sse-writer.js';

const HIGH_WATER_BYTES = 64 * 1024;

export interface SseBody {
  readonly body: ReadableStream<Uint8Array>;
  readonly sink: SseSink;
}

/**
 * @param onCancel the reader of the body went away before its end.
 * @param breakConnection tears the transport down (the socket of a Node server); absent where there is no socket, as
 *   in tests that read the Response: there the body errors.
 */
export function sseBody(onCancel: () => void, breakConnection?: (reason: Error) => void): SseBody {
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  let closed = false;
  let wake: (() => void) | undefined;
  const settle = (): void => {
    wake?.();
    wake = undefined;
  };
  const body = new ReadableStream<Uint8Array>(
    {
      start(created) {
        controller = created;
      },
      pull: settle,
      cancel() {
        closed = true;
        onCancel();
        settle();
      },
    },
    new ByteLengthQueuingStrategy({ highWaterMark: HIGH_WATER_BYTES }),
  );
  const room = (): boolean => (controller?.desiredSize ?? 0) > 0;
  const sink: SseSink = {
    async write(bytes) {
      if (closed) return;
      controller?.enqueue(bytes);
      if (!room()) await new Promise<void>((resolve) => (wake = resolve));
    },
    tryWrite(bytes) {
      if (!closed && controller?.desiredSize === HIGH_WATER_BYTES) controller.enqueue(bytes);
    },
    close() {
      if (closed) return;
      closed = true;
      controller?.close();
    },
    destroy(reason) {
      if (closed) return;
      closed = true;
      if (breakConnection) breakConnection(reason);
      else controller?.error(reason);
      settle();
    },
  };
  return { body, sink };
}
