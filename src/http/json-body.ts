/**
 * Reads a request body as JSON. The size limit is enforced while the body arrives, so that a body without an honest
 * length costs no more memory than the limit; bytes must be UTF-8; nesting is bounded, because code that walks a
 * parsed value recursively (templates, serialisers) must not be able to overflow the stack.
 */
import { TextDecoder } from 'node:util';
import { PlumblineError } from '../errors.js';

const MAX_DEPTH = 100;
const MIB = 1024 * 1024;

/** @param maxBytes limit of the body in bytes. @returns the parsed value; throws a PlumblineError on every defect. */
export async function readJsonBody(request: Request, maxBytes: number): Promise<unknown> {
  requireJsonType(request.headers);
  const text = await readText(request, maxBytes);
  return parseJson(text);
}

function requireJsonType(headers: Headers): void {
  const contentType = headers.get('content-type') ?? '';
  const [type = '', ...parameters] = contentType.split(';').map((part) => part.trim().toLowerCase());
  if (type !== 'application/json') {
    throw new PlumblineError(
      'unsupported_media_type',
      `send the body as 'content-type: application/json'${type === '' ? '' : `, not '${type}'`}`,
    );
  }
  const charset = parameters
    .find((parameter) => parameter.startsWith('charset='))
    ?.slice('charset='.length)
    .replaceAll('"', '');
  if (charset !== undefined && charset !== 'utf-8' && charset !== 'utf8') {
    throw new PlumblineError('unsupported_media_type', `JSON bodies are UTF-8, not '${charset}'`);
  }
  const encoding = headers.get('content-encoding') ?? 'identity';
  if (encoding.toLowerCase() !== 'identity') {
    throw new PlumblineError(
      'unsupported_media_type',
      `send the body without content-encoding ('${encoding}' is not supported)`,
    );
  }
}

async function readText(request: Request, maxBytes: number): Promise<string> {
  const tooLarge = (): PlumblineError =>
    new PlumblineError('body_too_large', `the body is larger than ${maxBytes / MIB} MiB (flag --max-body-mib)`);
  if (Number(request.headers.get('content-length') ?? 0) > maxBytes) throw tooLarge();
  if (request.body === null) return '';
  const reader = request.body.getReader();
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let text = '';
  let bytes = 0;
  for (;;) {
    const { done, value } = await readChunk(reader);
    bytes += value?.byteLength ?? 0;
    if (bytes > maxBytes) {
      await reader.cancel();
      throw tooLarge();
    }
    text += decodeUtf8(decoder, value, done);
    if (done) return text;
  }
}

async function readChunk(
  reader: ReadableStreamDefaultReader<Uint8Array>,
): Promise<{ done: boolean; value?: Uint8Array | undefined }> {
  try {
    return await reader.read();
  } catch (thrown) {
    throw new PlumblineError('request_cancelled', 'the connection broke while the body was read', { cause: thrown });
  }
}

function decodeUtf8(decoder: TextDecoder, bytes: Uint8Array | undefined, last: boolean): string {
  try {
    return decoder.decode(bytes, { stream: !last });
  } catch (thrown) {
    throw new PlumblineError('invalid_json', 'the body is not valid UTF-8', { cause: thrown });
  }
}

function parseJson(text: string): unknown {
  if (text.trim() === '') throw new PlumblineError('invalid_json', 'the body is empty; a JSON object is needed');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (thrown) {
    // The parser's own message repeats pieces of the body; only the place is passed on.
    const position = thrown instanceof SyntaxError ? /position (\d+)/.exec(thrown.message)?.[1] : undefined;
    const place = position === undefined ? '' : `: it breaks off or goes wrong at character ${position}`;
    throw new PlumblineError('invalid_json', `the body is not valid JSON${place}`, { cause: thrown });
  }
  if (deeperThan(value, MAX_DEPTH)) {
    throw new PlumblineError('invalid_json', `the body nests deeper than ${MAX_DEPTH} levels`);
  }
  return value;
}

/** Level by level, without recursion: the point is to protect what recurses later. */
function deeperThan(value: unknown, limit: number): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > limit) return true;
    level = level.flatMap((item) =>
      typeof item === 'object' && item !== null ? (Object.values(item) as unknown[]) : [],
    );
  }
  return false;
}
