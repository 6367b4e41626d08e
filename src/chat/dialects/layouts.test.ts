/**
 * The prompts of the two dialects against texts written down by hand from the published layouts (test/fixtures/chat/
 * layouts.json); what those leave open, and how it was settled, stands in docs/ds4-law.md.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fixture } from '../../../test/support/repository.js';
import type { ChatTurn, ToolDefinition } from '../conversation.js';
import type { ThinkingMode } from './dialect.js';
import { chatDialect } from './index.js';

interface LayoutCase {
  readonly name: string;
  readonly thinking: ThinkingMode;
  readonly turns: readonly ChatTurn[];
  readonly tools?: readonly ToolDefinition[];
  /** `{tools}` and `{effort}` stand for the introductions, which are our own words and have fixtures of their own. */
  readonly dsml: string;
  readonly 'argument-pairs': string;
}

interface Fixture {
  readonly introductions: Record<'dsml' | 'argument-pairs', { readonly tools: string; readonly effort: string }>;
  readonly cases: readonly LayoutCase[];
}

const { introductions, cases } = JSON.parse(readFileSync(fixture('chat', 'layouts.json'), 'utf8')) as Fixture;

for (const name of ['dsml', 'argument-pairs'] as const) {
  for (const one of cases) {
    test(`${name}: ${one.name}`, () => {
      const { tools, effort } = introductions[name];
      const expected = one[name].replace('{tools}', () => tools).replace('{effort}', () => effort);
      const conversation = { turns: one.turns, tools: one.tools ?? [], templateArguments: {} };
      assert.equal(chatDialect(name)?.layout(conversation, one.thinking), expected);
    });
  }
}

for (const name of ['dsml', 'argument-pairs'] as const) {
  test(`${name}: a transcript without its reasoning is the text that the layout writes when it is sent again`, () => {
    const dialect = chatDialect(name)!;
    const end = name === 'dsml' ? '<｜end▁of▁sentence｜>' : '<|user|>';
    const tools = [{ type: 'function', function: { name: 'f' } }];
    const user = (content: string): ChatTurn => ({ role: 'user', content });
    const said = (content: string): ChatTurn => ({ role: 'assistant', content });
    const layout = (turns: readonly ChatTurn[], offered: readonly ToolDefinition[]): string =>
      dialect.layout({ turns, tools: offered, templateArguments: {} }, 'high');
    for (const offered of [[], tools]) {
      const turns = [{ role: 'system', content: 'Be brief.' } as const, user('<think>no reasoning</think>?')];
      let transcript = layout(turns, offered);
      for (const [i, answer] of ['One.', '', 'Three\n'].entries()) {
        // The reasoning of before is in the transcript, as after a restore.
        transcript += `thought ${i}</think>${answer}${end}`;
        turns.push(said(answer), user('next'));
        const sent = layout(turns, offered);
        assert.ok(
          dialect.visibleTexts(transcript).some((visible) => sent.startsWith(visible)),
          `${offered.length} ${i}`,
        );
        transcript += sent.slice(sent.lastIndexOf(end) + end.length);
      }
    }
  });

  test(`${name}: reasoning that was not closed stays`, () => {
    const dialect = chatDialect(name)!;
    const turns = [{ role: 'user', content: 'a' } as const];
    const opened = dialect.layout({ turns, tools: [], templateArguments: {} }, 'high');
    for (const visible of dialect.visibleTexts(`${opened}cut off`)) assert.equal(visible, `${opened}cut off`);
    const closed = dialect.layout({ turns, tools: [], templateArguments: {} }, 'off');
    for (const next of [`${opened}cut off${opened}b</think>c`, `${opened}cut off${closed}c`]) {
      for (const visible of dialect.visibleTexts(next)) assert.ok(visible.startsWith(`${opened}cut off`), visible);
    }
  });
}
