/**
 * The dialect of role marks: a mark before every turn and none behind it, an effort line while the model is to reason, tools
 * in an instruction turn of their own, tool calls as a name and pairs of argument and value.
 *
 * Sources: the server of antirez/ds4 (MIT, August 2026) and the templates published with the models' predecessors. The
 * sentences that introduce tools are our own: docs/ds4-law.md says what follows.
 */
import type { Conversation, ToolCall } from '../conversation.js';
import { objectMembers } from '../tool-call.js';
import { ArgumentPairsBlock, PAIRS } from './argument-pairs-block.js';
import { guardMark, toolSchemas, usesTools, withoutBetween, type ChatDialect, type ThinkingMode } from './dialect.js';

const BEGIN = '[gMASK]<sop>';
const SYSTEM = '<|system|>';
const USER = '<|user|>';
const ASSISTANT = '<|assistant|>';
const OBSERVATION = '<|observation|>';
const END_OF_TEXT = '<|endoftext|>';
const THINK = '<think>';
const THINK_END = '</think>';
const RESPONSE = '<tool_response>';
const RESPONSE_END = '</tool_response>';

const EFFORT: Readonly<Record<Exclude<ThinkingMode, 'off'>, string>> = {
  high: 'Reasoning Effort: High',
  max: 'Reasoning Effort: Max',
};

function toolText({ tools }: Conversation): string {
  const pair = `${PAIRS.keyOpen}PARAMETER${PAIRS.keyClose}${PAIRS.valueOpen}VALUE${PAIRS.valueClose}`;
  return [
    '# Tools',
    `These functions are at hand, one signature a line:\n<tools>\n${toolSchemas(tools).join('\n')}\n</tools>`,
    `A call is written as one block, with a pair for each argument:\n${PAIRS.open}FUNCTION${pair}${PAIRS.close}`,
    'A string is written as it is, every other value as JSON. Names are those of the signatures.',
  ].join('\n\n');
}

function callText({ name, arguments: text }: ToolCall): string {
  const members = objectMembers(text) ?? [{ name: 'arguments', source: JSON.stringify(text) }];
  const pairs = members.map(({ name: key, source }) => {
    const value = source.startsWith('"') ? (JSON.parse(source) as string) : source;
    const guarded = guardMark(value, PAIRS.valueClose);
    return `${PAIRS.keyOpen}${guardMark(key, PAIRS.keyClose)}${PAIRS.keyClose}${PAIRS.valueOpen}${guarded}${PAIRS.valueClose}`;
  });
  return `\n\n${PAIRS.open}${name}${pairs.join('')}${PAIRS.close}`;
}

function layout(conversation: Conversation, thinking: ThinkingMode, opensAnswer = true): string {
  const { turns, tools } = conversation;
  const instructions = turns.flatMap(({ role, content = '' }) => (role === 'system' ? [SYSTEM + content] : []));
  return [
    BEGIN,
    thinking === 'off' ? '' : SYSTEM + EFFORT[thinking],
    tools.length > 0 ? SYSTEM + toolText(conversation) : '',
    ...instructions,
    ...dialogue(conversation, thinking !== 'off', opensAnswer),
  ].join('');
}

/** The turns behind the instructions, and the opening of the answer if it is asked for. */
function* dialogue(conversation: Conversation, thinks: boolean, opensAnswer: boolean): Generator<string> {
  const turns = conversation.turns.filter(({ role }) => role !== 'system');
  const lastAsked = turns.findLastIndex(({ role }) => role !== 'assistant');
  const keepsReasoning = usesTools(conversation);
  for (const [index, { role, content = '', reasoningContent = '', toolCalls = [] }] of turns.entries()) {
    if (role === 'user') yield USER + content;
    else if (role === 'tool') yield `${OBSERVATION}${RESPONSE}${guardMark(content, RESPONSE_END)}${RESPONSE_END}`;
    else {
      const kept = thinks && (keepsReasoning || index > lastAsked) ? reasoningContent : '';
      const reasoning = /^<\/?think>/.test(content) ? '' : `${THINK}${kept}${THINK_END}`;
      yield `${ASSISTANT}${reasoning}${content}${toolCalls.map(callText).join('')}`;
    }
  }
  const last = turns.at(-1)?.role;
  if (opensAnswer && (last === 'user' || last === 'tool')) yield `${ASSISTANT}${THINK}${thinks ? '' : THINK_END}`;
}

const ROLES = [SYSTEM, USER, ASSISTANT, OBSERVATION, END_OF_TEXT];

export const argumentPairsDialect: ChatDialect = {
  reasoning: { open: THINK, close: THINK_END },
  tools: { open: PAIRS.open, endsAnswer: false, begin: (tools) => new ArgumentPairsBlock(tools) },
  visibleTokens: [THINK, THINK_END, ...Object.values(PAIRS)],
  layout,
  visibleTexts: (transcript) => {
    const [open, by] = [ASSISTANT + THINK, ASSISTANT + THINK + THINK_END];
    return [withoutBetween(transcript, { open, close: THINK_END, turns: ROLES, by })];
  },
  correction: (reason, thinking) =>
    `${OBSERVATION}${RESPONSE}${reason}${RESPONSE_END}${ASSISTANT}${THINK}${thinking === 'off' ? THINK_END : ''}`,
  stopTokens: (thinking) => (thinking === 'off' ? [...ROLES, THINK, THINK_END] : ROLES),
};
