/**
 * A model's chat template: Jinja, rendered by @huggingface/jinja with the variables that the Hugging Face
 * `apply_chat_template` gives.
 *
 * Invariants: a template is parsed once, when the model is loaded; rendering depends on its arguments alone, but for
 * `strftime_now`, whose clock can be injected; whatever goes wrong inside a template is a `chat_template_error` that
 * repeats what the template said. Variables of the server cannot be overwritten by a request.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as jinja from '@huggingface/jinja';
import { PlumblineError } from '../errors.js';
import type { NamedTokens } from '../tokens/tokenizer.js';
import type { ChatTurn, Conversation } from './conversation.js';
import { strftime } from './strftime.js';

/** The part of the library that is used. Its own declarations import without extensions, which NodeNext cannot resolve. */
interface JinjaEnvironment {
  set(name: string, value: unknown): unknown;
}
const { Environment, Interpreter } = jinja as unknown as {
  Environment: new () => JinjaEnvironment;
  Interpreter: new (environment: JinjaEnvironment) => { run(program: unknown): { value: string } };
};

/** The sources of a model's templates by name; nearly every model has only `default`. */
export interface TemplateSources {
  readonly default: string;
  /** Used instead of the default when the conversation has tools. */
  readonly toolUse?: string | undefined;
}

export interface ChatTemplateOptions {
  /** bos and eos as the template writes them. */
  readonly namedTokens?: NamedTokens | undefined;
  /** The clock of `strftime_now`; default the system's. */
  readonly now?: (() => Date) | undefined;
}

/** What `raise_exception` of a template throws; never leaves this module. */
class TemplateRefusal extends Error {}

export class ChatTemplate {
  readonly #default: jinja.Template;
  readonly #toolUse: jinja.Template | undefined;
  readonly #options: ChatTemplateOptions;
  /** Whether the template prints tool arguments given as JSON text unchanged; otherwise it needs them as an object. */
  readonly #argumentsAsText: boolean;

  /** Throws `chat_template_error` when a template does not parse. */
  constructor(sources: TemplateSources, options: ChatTemplateOptions = {}) {
    this.#default = parse(sources.default);
    this.#toolUse = sources.toolUse === undefined ? undefined : parse(sources.toolUse);
    this.#options = options;
    this.#argumentsAsText = this.#probeArguments();
  }

  /**
   * The prompt text of a conversation, ending where the assistant's answer begins. Throws `chat_template_error`.
   * @param generationPrompt false: it ends with the last turn
   */
  render({ turns, tools, templateArguments }: Conversation, generationPrompt = true): string {
    const messages = turns.map((turn) => templateMessage(turn, this.#argumentsAsText));
    return this.#run(messages, tools, templateArguments, generationPrompt);
  }

  #run(
    messages: readonly object[],
    tools: readonly object[],
    templateArguments: Readonly<Record<string, unknown>>,
    generationPrompt = true,
  ): string {
    const globals = { ...this.#globals(), add_generation_prompt: generationPrompt };
    const serverVariables = { ...globals, messages, tools: tools.length > 0 ? tools : null };
    const reserved = Object.keys(templateArguments).find((name) => Object.hasOwn(serverVariables, name));
    if (reserved !== undefined) {
      throw new PlumblineError(
        'invalid_request',
        `chat_template_kwargs: '${reserved}' is set by the server and cannot be given`,
        { param: 'chat_template_kwargs' },
      );
    }
    const template = (tools.length > 0 ? this.#toolUse : undefined) ?? this.#default;
    try {
      const environment = new Environment();
      // Templates differ in what they take the absence of enable_thinking for; here it always means no.
      const variables = { enable_thinking: false, ...templateArguments, ...serverVariables };
      for (const [name, value] of Object.entries(variables)) environment.set(name, value);
      return new Interpreter(environment).run(template.parsed).value;
    } catch (error) {
      if (error instanceof TemplateRefusal) {
        throw new PlumblineError(
          'chat_template_error',
          `the chat template of the model refused the messages: ${error.message}`,
          { param: 'messages' },
        );
      }
      throw new PlumblineError(
        'chat_template_error',
        `the chat template of the model failed on the messages: ${messageOf(error)}`,
        { param: 'messages', cause: error },
      );
    }
  }

  /** Jinja's constants, the functions of `apply_chat_template`, and the model's named tokens. */
  #globals(): Record<string, unknown> {
    const { namedTokens = {}, now = () => new Date() } = this.#options;
    return {
      true: true,
      True: true,
      false: false,
      False: false,
      none: null,
      None: null,
      range,
      raise_exception: (reason: unknown) => {
        throw new TemplateRefusal(String(reason));
      },
      strftime_now: (format: unknown) => strftime(now(), String(format)),
      documents: null,
      bos_token: namedTokens.bos,
      eos_token: namedTokens.eos,
      pad_token: namedTokens.pad,
    };
  }

  /**
   * Text is preferred: it puts the very bytes of the earlier answer back into the prompt, where parsing and printing
   * again would lose number formats. A template that would print the text as a JSON string needs the object.
   */
  #probeArguments(): boolean {
    const text = '{"probe": 1.0}';
    const call = { id: 'call_0', type: 'function', function: { name: 'probe', arguments: text } };
    const messages = [
      { role: 'user', content: 'probe' },
      { role: 'assistant', content: '', tool_calls: [call] },
    ];
    try {
      return this.#run(messages, [{ type: 'function', function: { name: 'probe' } }], {}).includes(text);
    } catch (error) {
      if (error instanceof PlumblineError) return false;
      throw error;
    }
  }
}

function parse(source: string): jinja.Template {
  try {
    return new jinja.Template(source);
  } catch (error) {
    throw new PlumblineError(
      'chat_template_error',
      `the chat template of the model does not parse: ${messageOf(error)}`,
      { cause: error },
    );
  }
}

/** Python's range, as far as a template can sensibly go. */
function range(first: number, second?: number, step = 1): number[] {
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (!(length <= MAX_RANGE)) throw new TemplateRefusal(`range(${start}, ${stop}, ${step}) is too long or has no end`);
  return Array.from({ length }, (_, index) => start + index * step);
}
const MAX_RANGE = 1_000_000;

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** One turn as templates read it: OpenAI's message shape, content always a string. */
function templateMessage(turn: ChatTurn, argumentsAsText: boolean): Record<string, unknown> {
  return {
    role: turn.role,
    content: turn.content ?? '',
    ...(turn.name === undefined ? {} : { name: turn.name }),
    ...(turn.reasoningContent === undefined ? {} : { reasoning_content: turn.reasoningContent }),
    ...(turn.toolCallId === undefined ? {} : { tool_call_id: turn.toolCallId }),
    ...(turn.toolCalls === undefined || turn.toolCalls.length === 0
      ? {}
      : {
          tool_calls: turn.toolCalls.map((call) => ({
            id: call.id,
            type: 'function',
            function: {
              name: call.name,
              arguments: argumentsAsText ? call.arguments : argumentsObject(call.arguments),
            },
          })),
        }),
  };
}

/** Arguments as the object that they spell; text that spells none stays text, and the template decides. */
function argumentsObject(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : text;
  } catch (error) {
    if (error instanceof SyntaxError) return text;
    throw error;
  }
}

/**
 * The templates of a checkpoint folder: chat_template.jinja, else `chat_template` of tokenizer_config.json, which is a
 * string or a list of named ones. undefined: the model has none and is no chat model.
 * Throws `chat_template_error`.
 */
export async function readTemplateSources(
  folder: string,
  tokenizerConfig: Readonly<Record<string, unknown>>,
): Promise<TemplateSources | undefined> {
  const configured = configuredTemplates(tokenizerConfig['chat_template']);
  try {
    return { ...configured, default: await readFile(join(folder, 'chat_template.jinja'), 'utf8') };
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return configured;
    throw new PlumblineError('chat_template_error', `chat_template.jinja could not be read: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

function configuredTemplates(value: unknown): TemplateSources | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'string') return { default: value };
  const named = new Map<string, string>();
  for (const entry of Array.isArray(value) ? (value as unknown[]) : [value]) {
    const { name, template } = (typeof entry === 'object' && entry !== null ? entry : {}) as {
      name?: unknown;
      template?: unknown;
    };
    if (typeof name !== 'string' || typeof template !== 'string') {
      throw new PlumblineError(
        'chat_template_error',
        'tokenizer_config.json: chat_template is neither a string nor a list of {"name", "template"}',
      );
    }
    named.set(name, template);
  }
  const fallback = named.get('default');
  if (fallback === undefined) {
    throw new PlumblineError(
      'chat_template_error',
      `tokenizer_config.json: chat_template has no "default", only ${[...named.keys()].map((name) => `"${name}"`).join(', ')}`,
    );
  }
  return { default: fallback, toolUse: named.get('tool_use') };
}
