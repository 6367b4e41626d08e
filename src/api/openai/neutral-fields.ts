/**
 * Fields of the OpenAI dialect (and of its common extensions) that would change the answer and that plumbline does not
 * implement. Each is accepted only with the value that changes nothing; any other value is an error, because an answer
 * that quietly leaves a constraint out is worse than none. All other unknown fields are accepted and named in the
 * answer's `plumbline.ignored`.
 */
import { PlumblineError } from '../../errors.js';

interface NeutralField {
  readonly isNeutral: (value: unknown) => boolean;
  /** Completes the sentence "'field' …". */
  readonly hint: string;
}

const only = (neutral: unknown, hint: string): NeutralField => ({ isNeutral: (value) => value === neutral, hint });
const never = (hint: string): NeutralField => ({ isNeutral: () => false, hint });
const isEmptyObject = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length === 0;
const hasType = (value: unknown, type: string): boolean =>
  typeof value === 'object' && value !== null && (value as { type?: unknown }).type === type;

const NEUTRAL_FIELDS: Readonly<Record<string, NeutralField>> = {
  n: only(1, 'must be 1: for more answers, send the request again with other seeds'),
  best_of: only(1, 'must be 1'),
  echo: only(false, 'must be false: the answer never repeats the prompt'),
  suffix: only('', 'is not supported: the served models continue text, they do not fill in the middle'),
  logit_bias: { isNeutral: isEmptyObject, hint: 'is not supported; leave it out' },
  response_format: {
    isNeutral: (value) => hasType(value, 'text'),
    hint: 'supports only {"type": "text"}: ask for the format in the prompt and check the answer',
  },
  modalities: {
    isNeutral: (value) => Array.isArray(value) && value.length === 1 && value[0] === 'text',
    hint: 'supports only ["text"]',
  },
  audio: never('is not supported: answers are text'),
  functions: never('is the old form of tool calls; send `tools`'),
  function_call: never('is the old form of tool calls; send `tools`'),
  web_search_options: never('is not supported: the server has no network access'),
  grammar: never('is not supported: answers are not constrained'),
  json_schema: never('is not supported: answers are not constrained'),
  guided_json: never('is not supported: answers are not constrained'),
  repetition_penalty: only(1, 'must be 1: the sampler has presence_penalty and frequency_penalty'),
};

export const NEUTRAL_FIELD_NAMES: readonly string[] = Object.keys(NEUTRAL_FIELDS);

/** Throws `unsupported_parameter` for the first such field with a value that asks for something. */
export function requireNeutralFields(body: Readonly<Record<string, unknown>>): void {
  for (const [name, field] of Object.entries(NEUTRAL_FIELDS)) {
    const value = body[name];
    if (value !== undefined && value !== null && !field.isNeutral(value)) {
      throw new PlumblineError('unsupported_parameter', `'${name}' ${field.hint}`, { param: name });
    }
  }
}

/**
 * Names of the fields of `object` that nothing here reads. Null says nothing and is not listed.
 * @param prefix put before each name, as in `messages[].`
 */
export function unreadFields(
  object: Readonly<Record<string, unknown>>,
  known: ReadonlySet<string>,
  prefix = '',
): string[] {
  return Object.entries(object)
    .filter(([name, value]) => !known.has(name) && value !== null)
    .map(([name]) => prefix + name);
}
