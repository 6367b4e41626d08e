/**
 * The body of POST /v1/chat/completions and what it means.
 *
 * Invariants: text parts are joined without a separator, so a message's content is one string or absent; `developer` is
 * the newer name of `system` and becomes it, because chat templates know only that one; `tool_choice: none` hides the
 * tools from the template; nothing of the body is dropped without being named in `ignored`.
 */
import { z } from 'zod';
import type { ChatTurn, Conversation, ToolCall, ToolDefinition } from '../../chat/conversation.js';
import { PlumblineError } from '../../errors.js';
import { flag, integerIn, nonEmptyText, optional, parseBody, text, UNSUPPORTED } from './fields.js';
import {
  generationParameters,
  generationShape,
  MAX_TOP_LOGPROBS,
  type GenerationParameters,
} from './generation-fields.js';
import { THINKING_FIELDS, type ThinkingFields } from './thinking-fields.js';
import { NEUTRAL_FIELD_NAMES, requireNeutralFields, unreadFields } from './neutral-fields.js';

export interface ChatRequest extends GenerationParameters, Omit<Conversation, 'thinking'> {
  /** Not judged yet: that depends on the model. */
  readonly thinkingFields: ThinkingFields;
}

const TEXT_CONTENT = 'must be a string or an array of {"type": "text", "text": ...} parts';

const textPart = z
  .looseObject({ type: text(), text: z.unknown().optional() }, { error: 'must be a content part' })
  .transform((part, context) => {
    if (part.type !== 'text') {
      context.addIssue({
        code: 'custom',
        path: ['type'],
        message: `'${part.type}' is not supported: the served models read text`,
        params: UNSUPPORTED,
      });
    } else if (typeof part.text === 'string') {
      return part.text;
    } else {
      context.addIssue({ code: 'custom', path: ['text'], message: 'must be a string' });
    }
    return z.NEVER;
  });

/** A string, or text parts: one string. */
const content = z
  .preprocess(
    (value) => (typeof value === 'string' ? [{ type: 'text', text: value }] : value),
    z
      .array(textPart, {
        error: (issue) => (issue.input === undefined ? `is required and ${TEXT_CONTENT}` : TEXT_CONTENT),
      })
      .min(1, TEXT_CONTENT),
  )
  .transform((parts) => parts.join(''));

const isFunction = (kind: string, context: z.core.$RefinementCtx): void => {
  if (kind !== 'function') {
    context.addIssue({
      code: 'custom',
      message: `'${kind}' is not supported; only 'function' is`,
      params: UNSUPPORTED,
    });
  }
};
const functionKind = z.string('must be "function"').superRefine(isFunction);

const toolCall = z
  .looseObject({
    id: nonEmptyText(),
    type: functionKind,
    function: z.looseObject(
      { name: nonEmptyText(), arguments: text('must be a string of JSON') },
      'must be {"name", "arguments"}',
    ),
  })
  .transform((call): ToolCall => ({ id: call.id, name: call.function.name, arguments: call.function.arguments }));

const instructions = { content, name: optional(text()) };

const SHAPES = {
  system: { role: z.literal('system'), ...instructions },
  developer: { role: z.literal('developer'), ...instructions },
  user: { role: z.literal('user'), ...instructions },
  assistant: {
    role: z.literal('assistant'),
    content: optional(content),
    reasoning_content: optional(text()),
    tool_calls: optional(z.array(toolCall, 'must be an array of tool calls')),
    name: optional(text()),
  },
  tool: { role: z.literal('tool'), content, tool_call_id: nonEmptyText(), name: optional(text()) },
} as const;

const ROLES = Object.keys(SHAPES);

const message = z.discriminatedUnion(
  'role',
  [
    z.looseObject(SHAPES.system),
    z.looseObject(SHAPES.developer),
    z.looseObject(SHAPES.user),
    z.looseObject(SHAPES.assistant).superRefine((turn, context) => {
      if (turn.content === undefined && (turn.tool_calls ?? []).length === 0) {
        context.addIssue({
          code: 'custom',
          path: ['content'],
          message: 'is required in an assistant message without tool_calls',
        });
      }
    }),
    z.looseObject(SHAPES.tool),
  ],
  {
    error: (issue) =>
      issue.code === 'invalid_union' ? `must be one of ${ROLES.join(', ')}` : 'must be a message object',
  },
);

const tool = z.looseObject({
  type: functionKind,
  function: z.looseObject(
    {
      name: z
        .string('is required and must be a string')
        .regex(/^[A-Za-z0-9_.-]{1,128}$/, 'must be 1 to 128 letters, digits, _, . or -'),
      description: optional(text()),
      parameters: optional(z.looseObject({}, 'must be a JSON schema object')),
    },
    'must be {"name", "description", "parameters"}',
  ),
});

const toolChoice = z.unknown().superRefine((value, context) => {
  if (value === 'auto' || value === 'none') return;
  const known = value === 'required' || (typeof value === 'object' && value !== null);
  context.addIssue({
    code: 'custom',
    message: "must be 'auto' or 'none': a call cannot be forced",
    ...(known ? { params: UNSUPPORTED } : {}),
  });
});

const shape = {
  ...generationShape,
  messages: z
    .array(message, {
      error: (issue) =>
        issue.input === undefined ? 'is required and must be an array of messages' : 'must be an array of messages',
    })
    .min(1, 'must hold at least one message'),
  max_completion_tokens: generationShape.max_tokens,
  logprobs: optional(flag()),
  top_logprobs: optional(integerIn(0, MAX_TOP_LOGPROBS)),
  tools: optional(z.array(tool, 'must be an array of tools')),
  tool_choice: optional(toolChoice),
  chat_template_kwargs: optional(z.looseObject({}, 'must be an object of template variables')),
};

const schema = z.looseObject(shape);
const KNOWN_FIELDS: ReadonlySet<string> = new Set([...Object.keys(shape), ...NEUTRAL_FIELD_NAMES, ...THINKING_FIELDS]);

type ParsedBody = z.output<typeof schema>;
type ParsedMessage = z.output<typeof message>;

/** Throws a PlumblineError with the field at fault. */
export function parseChatRequest(body: unknown): ChatRequest {
  const fields = parseBody(schema, body);
  requireNeutralFields(fields);
  // The schema has judged these two; the values themselves keep the order of their keys, which templates print.
  const { tools, chat_template_kwargs: templateArguments } = body as {
    tools?: readonly ToolDefinition[] | null;
    chat_template_kwargs?: Readonly<Record<string, unknown>> | null;
  };
  return {
    ...generationParameters(fields, topLogprobs(fields), maxTokens(fields), ignoredFields(fields)),
    turns: joinLeadingInstructions(fields.messages.map(chatTurn)),
    tools: fields.tool_choice === 'none' ? [] : (tools ?? []),
    templateArguments: templateArguments ?? {},
    thinkingFields: Object.fromEntries(THINKING_FIELDS.map((name) => [name, fields[name]])),
  };
}

function topLogprobs({ logprobs, top_logprobs: top }: ParsedBody): number | undefined {
  if (logprobs === true) return top ?? 0;
  if (top !== undefined) {
    throw new PlumblineError('invalid_request', '\'top_logprobs\' needs "logprobs": true', { param: 'top_logprobs' });
  }
  return undefined;
}

function maxTokens({ max_tokens: old, max_completion_tokens: current }: ParsedBody): number | undefined {
  if (old !== undefined && current !== undefined && old !== current) {
    throw new PlumblineError(
      'invalid_request',
      "'max_tokens' is the old name of 'max_completion_tokens'; send one of them",
      { param: 'max_tokens' },
    );
  }
  return current ?? old;
}

function chatTurn(parsed: ParsedMessage): ChatTurn {
  const name = parsed.name;
  switch (parsed.role) {
    case 'system':
    case 'developer':
      return { role: 'system', content: parsed.content, name };
    case 'user':
      return { role: 'user', content: parsed.content, name };
    case 'assistant':
      return {
        role: 'assistant',
        content: parsed.content,
        reasoningContent: parsed.reasoning_content,
        toolCalls: parsed.tool_calls,
        name,
      };
    case 'tool':
      return { role: 'tool', content: parsed.content, toolCallId: parsed.tool_call_id, name };
  }
}

/**
 * Templates know one system message, at the start. Clients send their own instructions and the user's as two, so those
 * that stand before everything else become one; later ones are the template's to take or to refuse.
 */
function joinLeadingInstructions(turns: readonly ChatTurn[]): readonly ChatTurn[] {
  const first = turns.findIndex((turn) => turn.role !== 'system');
  const leading = turns.slice(0, first === -1 ? turns.length : first);
  if (leading.length < 2) return turns;
  const content = leading.map((turn) => turn.content).join('\n\n');
  return [{ role: 'system', content }, ...turns.slice(leading.length)];
}

function ignoredFields(fields: ParsedBody): string[] {
  const inMessages = fields.messages.flatMap((turn) =>
    unreadFields(turn, new Set(Object.keys(SHAPES[turn.role])), 'messages[].'),
  );
  const inStreamOptions = unreadFields(fields.stream_options ?? {}, new Set(['include_usage']), 'stream_options.');
  return [...new Set([...unreadFields(fields, KNOWN_FIELDS), ...inMessages, ...inStreamOptions])];
}
