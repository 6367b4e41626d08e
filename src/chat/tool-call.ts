/**
 * One tool call as a model writes it: `{"name": ..., "arguments": {...}}`.
 *
 * Invariant: the arguments come back as the text that the model wrote, not as a value printed again, so number formats,
 * spacing and key order reach the client and, with it, the next prompt unchanged.
 */

export interface WrittenToolCall {
  readonly name: string;
  /** JSON text of an object. */
  readonly arguments: string;
}

/** The call in a text, or undefined when the text is not one: no JSON, no name, or arguments that are no object. */
export function parseToolCall(text: string): WrittenToolCall | undefined {
  const call = parseObject(text);
  if (call === undefined) return undefined;
  const { name, arguments: given } = call;
  if (typeof name !== 'string' || name === '') return undefined;
  if (given === undefined) return { name, arguments: '{}' };
  // Some models put the arguments' JSON into a string.
  if (typeof given === 'string') return parseObject(given) === undefined ? undefined : { name, arguments: given };
  if (!isObject(given)) return undefined;
  return { name, arguments: memberSource(text, 'arguments') };
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** A member of a JSON object: its name, and the source text of its value. */
export interface ObjectMember {
  readonly name: string;
  readonly source: string;
}

/** The members of the object that a text spells, in their order; undefined when it spells none. */
export function objectMembers(text: string): readonly ObjectMember[] | undefined {
  return parseObject(text) === undefined ? undefined : [...membersOf(text)];
}

/** @param json the valid text of an object. */
function* membersOf(json: string): Generator<ObjectMember> {
  let at = json.indexOf('{') + 1;
  for (;;) {
    at = skipSpace(json, at);
    if (json[at] !== '"') return;
    const keyEnd = skipValue(json, at);
    const valueStart = skipSpace(json, skipSpace(json, keyEnd) + 1);
    const valueEnd = skipValue(json, valueStart);
    yield { name: JSON.parse(json.slice(at, keyEnd)) as string, source: json.slice(valueStart, valueEnd) };
    at = skipSpace(json, valueEnd) + 1;
  }
}

/** Of several members with one name the last counts, as for JSON.parse. */
function memberSource(json: string, name: string): string {
  let found = '';
  for (const member of membersOf(json)) if (member.name === name) found = member.source;
  return found;
}

function skipSpace(json: string, at: number): number {
  while (at < json.length && ' \t\n\r'.includes(json.charAt(at))) at++;
  return at;
}

/** The index behind the value that begins at `at`. */
function skipValue(json: string, at: number): number {
  let depth = 0;
  do {
    const character = json.charAt(at);
    if (character === '"') {
      for (at++; json[at] !== '"'; at++) if (json[at] === '\\') at++;
      at++;
    } else if (character === '{' || character === '[') {
      depth++;
      at++;
    } else if (character === '}' || character === ']') {
      depth--;
      at++;
    } else if (depth > 0) {
      at++;
    } else {
      while (at < json.length && !',}] \t\n\r'.includes(json.charAt(at))) at++;
    }
  } while (depth > 0 && at < json.length);
  return at;
}
