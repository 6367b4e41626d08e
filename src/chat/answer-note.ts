/**
 * What is written down of the answers of a conversation, so that they can be put back with their tokens after a restart: for
 * each answer which conversation it was given to, how many tokens there were behind it, and what it meant. The tokens
 * themselves are those of the checkpoint that carries the note.
 *
 * Invariants: a note holds no text: of contents, reasoning and calls only digests; it counts only under the prompt format
 * (tokenizer and template) that it was written under; equal meanings have equal digests, however the client prints them.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { ToolCall } from './conversation.js';

/** An answer as the client was given it. */
export interface GivenAnswer {
  readonly content: string;
  readonly reasoning: string;
  readonly toolCalls: readonly ToolCall[];
}

/** By what a re-sent answer is compared with the one that was given: digests. */
export interface AnswerMeaning {
  readonly content: string;
  readonly reasoning: string;
  readonly calls: string;
}

/** One answer of a note. */
export interface NotedAnswer {
  /** Names the conversation that was answered. */
  readonly key: string;
  /** Tokens from the beginning to the end of the answer. */
  readonly tokens: number;
  readonly meaning: AnswerMeaning;
}

const text = z.string().max(64);
const noteSchema = z.strictObject({
  format: z.string().max(256),
  /** The oldest first: key, tokens, content, reasoning, calls. */
  answers: z.array(z.tuple([text, z.number().int().positive(), text, text, text])),
});

/** 128 bits of SHA-256. */
const shortDigest = (value: string): string => createHash('sha256').update(value).digest('base64url').slice(0, 22);

export const contentMeaning = (content: string): string => shortDigest(content);

export const reasoningMeaning = (reasoning: string): string => shortDigest(reasoning);

/** Equal for calls of the same ids, names and parsed arguments, in the same order. */
export const callsMeaning = (calls: readonly ToolCall[]): string =>
  shortDigest(calls.map(({ id, name, arguments: json }) => `${JSON.stringify([id, name])}${valueOf(json)}`).join('\n'));

export function meaningOf({ content, reasoning, toolCalls }: GivenAnswer): AnswerMeaning {
  return {
    content: contentMeaning(content),
    reasoning: reasoningMeaning(reasoning),
    calls: callsMeaning(toolCalls),
  };
}

export function encodeNote(format: string, answers: readonly NotedAnswer[]): Uint8Array {
  const rows = answers.map(({ key, tokens, meaning: { content, reasoning, calls } }) => {
    return [key, tokens, content, reasoning, calls];
  });
  return Buffer.from(JSON.stringify({ format, answers: rows }));
}

/** The answers of a note, the oldest first; none of one that was written under another format or by another version. */
export function decodeNote(format: string, bytes: Uint8Array): readonly NotedAnswer[] {
  const { data } = noteSchema.safeParse(parseJson(Buffer.from(bytes).toString('utf8')));
  if (data?.format !== format) return [];
  return data.answers.map(([key, tokens, content, reasoning, calls]) => ({
    key,
    tokens,
    meaning: { content, reasoning, calls },
  }));
}

/** A JSON text in the one form that all texts of its value share; text that is none is its own value. */
function valueOf(json: string): string {
  try {
    return canonical(JSON.parse(json));
  } catch (error) {
    // A value that nests too deep to be walked is compared as it is written.
    if (error instanceof SyntaxError || error instanceof RangeError) return JSON.stringify(json);
    throw error;
  }
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join()}}`;
  }
  // JSON has values that printing would make equal: 1e999 and null, 0 and -0.
  if (typeof value === 'number') return Object.is(value, -0) ? '-0' : String(value);
  return JSON.stringify(value);
}

function parseJson(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
