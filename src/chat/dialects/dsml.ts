/**
 * The DSML dialect: sentence marks around the conversation, one mark for the user's and one for the assistant's turns, tool
 * answers inside the user's turn, tool calls in a DSML block.
 *
 * Sources: the encoding notes that are published with the model (`encoding/README.md`) for marks and turns; the server of
 * antirez/ds4 (MIT, August 2026) for the order of tools and instructions, for escapes, and for what is kept of old
 * reasoning. The sentences that introduce tools and the greatest effort are our own: docs/ds4-law.md says what follows.
 */
import type { ChatTurn, Conversation, ToolCall } from '../conversation.js';
import { objectMembers } from '../tool-call.js';
import { guardMark, toolSchemas, usesTools, withoutBetween, type ChatDialect, type ThinkingMode } from './dialect.js';
import { DSML, DsmlBlock, escapeAttribute } from './dsml-block.js';

const BEGIN = '<｜begin▁of▁sentence｜>';
const END = '<｜end▁of▁sentence｜>';
const USER = '<｜User｜>';
const ASSISTANT = '<｜Assistant｜>';
const THINK = '<think>';
const THINK_END = '</think>';
const RESULT = '<tool_result>';
const RESULT_END = '</tool_result>';

const GREATEST_EFFORT =
  'Reasoning Effort: Max\nReason for as long as it takes: look at every case, test each step, and say what you ruled out.\n\n';

function toolText({ tools }: Conversation): string {
  const example = [
    DSML.open,
    `${DSML.invokeOpen} name="TOOL">`,
    `${DSML.parameterOpen} name="PARAMETER" string="true|false">VALUE${DSML.parameterClose}`,
    DSML.invokeClose,
    DSML.close,
  ].join('\n');
  return [
    '## Tools',
    `These tools are at hand. To call some of them, end the answer with one block in this form, an invoke for each call:\n\n${example}`,
    'A string is written as it is, with string="true"; every other value is JSON, with string="false". Names of tools and ' +
      'parameters are those of the schemas. Reasoning comes before the block, inside its own tags.',
    '### Available Tool Schemas',
    toolSchemas(tools).join('\n'),
  ].join('\n\n');
}

function callText(calls: readonly ToolCall[]): string {
  if (calls.length === 0) return '';
  const invokes = calls.map((call) => {
    const head = `${DSML.invokeOpen} name="${escapeAttribute(call.name)}">\n`;
    return `${head}${parameters(call.arguments)}${DSML.invokeClose}\n`;
  });
  return `\n\n${DSML.open}\n${invokes.join('')}${DSML.close}`;
}

function parameters(text: string): string {
  // Text that is no object cannot be spread over parameters; it goes as one.
  const members = objectMembers(text) ?? [{ name: 'arguments', source: JSON.stringify(text) }];
  return members.map(({ name, source }) => parameter(name, source)).join('');
}

function parameter(name: string, source: string): string {
  const isString = source.startsWith('"');
  const value = isString
    ? guardMark(JSON.parse(source) as string, DSML.parameterClose)
    : guardMark(source, DSML.parameterClose, '\\u003c');
  const head = `${DSML.parameterOpen} name="${escapeAttribute(name)}" string="${isString}">`;
  return `${head}${value}${DSML.parameterClose}\n`;
}

function layout(conversation: Conversation, thinking: ThinkingMode, opensAnswer = true): string {
  const { turns, tools } = conversation;
  const instructions = turns.flatMap(({ role, content = '' }) => (role === 'system' ? [content] : []));
  const head = [...(tools.length > 0 ? [toolText(conversation)] : []), ...instructions].join('\n\n');
  return [
    BEGIN,
    thinking === 'max' ? GREATEST_EFFORT : '',
    head,
    ...dialogue(conversation, thinking !== 'off', opensAnswer),
  ].join('');
}

/** The turns behind the instructions, and the opening of the answer if it is asked for. */
function* dialogue(conversation: Conversation, thinks: boolean, opensAnswer: boolean): Generator<string> {
  const turns = conversation.turns.filter(({ role }) => role !== 'system');
  const lastAsked = turns.findLastIndex(({ role }) => role !== 'assistant');
  const keepsReasoning = usesTools(conversation);
  let before: ChatTurn['role'] | undefined;
  for (const [index, turn] of turns.entries()) {
    const { content = '' } = turn;
    if (turn.role === 'user') yield USER + content;
    else if (turn.role === 'tool') {
      yield `${before === 'tool' ? '' : USER}${RESULT}${guardMark(content, RESULT_END)}${RESULT_END}`;
    } else {
      const kept = thinks && (keepsReasoning || index > lastAsked);
      const reasoning = kept ? `${THINK}${turn.reasoningContent ?? ''}${THINK_END}` : THINK_END;
      const opened = before === 'user' || before === 'tool' ? ASSISTANT + reasoning : '';
      yield `${opened}${content}${callText(turn.toolCalls ?? [])}${END}`;
    }
    before = turn.role;
  }
  if (opensAnswer && (before === 'user' || before === 'tool')) yield ASSISTANT + (thinks ? THINK : THINK_END);
}

export const dsmlDialect: ChatDialect = {
  reasoning: { open: THINK, close: THINK_END },
  tools: { open: DSML.open, endsAnswer: true, begin: () => new DsmlBlock() },
  visibleTokens: [DSML.token, THINK, THINK_END, ...Object.values(DSML)],
  layout,
  // Old reasoning is left out with its opening tag; with tools in play an answer without it has both tags.
  visibleTexts: (transcript) =>
    [ASSISTANT + THINK_END, ASSISTANT + THINK + THINK_END].map((by) =>
      withoutBetween(transcript, { open: ASSISTANT + THINK, close: THINK_END, turns: [USER, ASSISTANT, END], by }),
    ),
  correction: (reason, thinking) =>
    `${END}${USER}${RESULT}${reason}${RESULT_END}${ASSISTANT}${thinking === 'off' ? THINK_END : THINK}`,
  stopTokens: (thinking) => (thinking === 'off' ? [END, THINK, THINK_END] : [END]),
};
