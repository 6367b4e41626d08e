/**
 * Follows the tokens of an answer while they are chosen: inside a block of tool calls, what is structure is chosen greedily;
 * in some dialects the answer is complete with the block.
 *
 * Invariant: it sees every token once, in order, before the next is chosen; the first block of a dialect whose answers end
 * with it is the only one.
 */
import type { AnswerGuide } from '../schedule/request.js';
import { Detokenizer, type TokenBytes } from '../tokens/detokenizer.js';
import type { ToolDefinition } from './conversation.js';
import type { ToolBlock, ToolSyntax } from './dialects/dialect.js';

export class BlockGuide implements AnswerGuide {
  completedAt: number | undefined;
  readonly #text: Detokenizer;
  /** Text that may still hold the beginning of an opening mark. */
  #outside = '';
  #block: ToolBlock | undefined;
  #tokens = 0;

  constructor(
    private readonly syntax: ToolSyntax,
    private readonly tools: readonly ToolDefinition[],
    tokenizer: TokenBytes,
  ) {
    this.#text = new Detokenizer(tokenizer);
  }

  get forcesGreedy(): boolean {
    return this.#block !== undefined && !this.#block.inPayload;
  }

  push(tokenId: number): void {
    this.#tokens++;
    if (this.completedAt !== undefined) return;
    this.#read(this.#text.push(tokenId));
  }

  #read(text: string): void {
    const block = this.#block;
    if (block === undefined) {
      this.#search(text);
      return;
    }
    const before = this.#pushed;
    this.#pushed += text.length;
    block.push(text);
    if (block.state !== 'done') return;
    this.#block = undefined;
    if (this.syntax.endsAnswer) this.completedAt = this.#tokens;
    else this.#search(text.slice(block.end - before));
  }

  /** Characters pushed into the block. */
  #pushed = 0;

  #search(text: string): void {
    const { open } = this.syntax;
    this.#outside += text;
    const at = this.#outside.indexOf(open);
    if (at < 0) {
      this.#outside = this.#outside.slice(Math.max(0, this.#outside.length - open.length + 1));
      return;
    }
    const inside = this.#outside.slice(at + open.length);
    this.#outside = '';
    this.#block = this.syntax.begin(this.tools);
    this.#pushed = 0;
    this.#read(inside);
  }
}
