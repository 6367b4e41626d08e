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
