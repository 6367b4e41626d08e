/**
 * A language model without weights, for tests of the loops above the engine.
 *
 * Its logits are a fixed function of the whole token history, so any chunking and batching must give the same tokens. It
 * counts references, refuses every use of a dead state, and can be told to wait, to fail at a given call, or to spoil the
 * row of a given history.
 */
import assert from 'node:assert/strict';
import { PlumblineError } from '../../src/errors.js';
import type {
  FamilyLaws,
  ForwardOptions,
  ForwardRequest,
  ForwardResult,
  LanguageModel,
  SequenceState,
} from '../../src/engine/model.js';
import type { Phase } from '../../src/engine/plan/phase.js';

export interface ForwardCall {
  readonly phase: Phase;
  readonly batch: readonly {
    readonly history: readonly number[];
    readonly tokens: readonly number[];
    readonly logits: string;
  }[];
  readonly signal: AbortSignal | undefined;
}

export interface FakeModelOptions {
  readonly vocabSize?: number;
  readonly contextLength?: number;
  /** Called for each forward, 0-based; what it throws is what the forward rejects with. May wait. */
  readonly onForward?: (call: ForwardCall, index: number) => void | Promise<void>;
  /** Called for each row; may change it. `history` ends with the token that the row follows. */
  readonly onRow?: (row: Float32Array, history: readonly number[]) => void;
  /** Called for each new empty state; may throw. */
  readonly onNewState?: () => void;
}

class FakeState implements SequenceState {
  #holders = 1;
  readonly bytes = 1024;

  constructor(
    readonly model: FakeLanguageModel,
    readonly history: readonly number[],
  ) {
    model.liveStates++;
  }

  get length(): number {
    this.assertAlive();
    return this.history.length;
  }

  holdings(): { readonly key: object; readonly bytes: number }[] {
    return [{ key: this, bytes: this.bytes }];
  }

  retain(): this {
    this.assertAlive();
    this.#holders++;
    return this;
  }

  release(): void {
    this.assertAlive();
    assert.ok(!this.model.inUse.has(this) || this.#holders > 1, 'a state was released while a forward reads it');
    if (--this.#holders === 0) this.model.liveStates--;
  }

  assertAlive(): void {
    assert.ok(this.#holders > 0, 'a state was used after its last release');
  }
}

export class FakeLanguageModel implements LanguageModel {
  readonly family = 'fake';
  readonly id = 'fake';
  readonly vocabSize: number;
  readonly contextLength: number;
  readonly activationLaw = 'f32';
  readonly laws: FamilyLaws = {
    sampler: 'mtplx',
    samplingDefaults: { temperature: 0, topP: 1, topK: 0 },
    invalidRow: 'raise',
    prefixKey: 'tokens',
  };
  /** States with at least one holder. */
  liveStates = 0;
  readonly calls: ForwardCall[] = [];
  readonly inUse = new Set<SequenceState>();

  constructor(private readonly options: FakeModelOptions = {}) {
    this.vocabSize = options.vocabSize ?? 64;
    this.contextLength = options.contextLength ?? 10_000;
  }

  newState(): SequenceState {
    this.options.onNewState?.();
    return new FakeState(this, []);
  }

  async forward(batch: readonly ForwardRequest[], { phase, signal }: ForwardOptions): Promise<ForwardResult[]> {
    const inputs = batch.map(({ state, tokens, logits }) => {
      assert.ok(state instanceof FakeState && state.model === this);
      state.assertAlive();
      assert.ok(!this.inUse.has(state), 'a state is in two forwards at once');
      assert.ok(tokens.length > 0);
      return { state, history: state.history, tokens: [...tokens], logits };
    });
    const call: ForwardCall = {
      phase,
      batch: inputs.map(({ history, tokens, logits }) => ({ history, tokens, logits })),
      signal,
    };
    const index = this.calls.push(call) - 1;
    for (const { state } of inputs) this.inUse.add(state);
    try {
      await this.options.onForward?.(call, index);
      if (signal?.aborted === true) throw new PlumblineError('request_cancelled', 'the forward was cancelled');
    } finally {
      for (const { state } of inputs) this.inUse.delete(state);
    }
    return inputs.map(({ history, tokens, logits }) => {
      const all = [...history, ...tokens];
      const first = logits === 'none' ? all.length : logits === 'last' ? all.length - 1 : history.length;
      return {
        state: new FakeState(this, all),
        logits: all.slice(first).map((_, i) => this.rowAfter(all.slice(0, first + i + 1))),
      };
    });
  }

  /** The row that follows a history: float32 noise seeded by all of its tokens. */
  rowAfter(history: readonly number[]): Float32Array {
    let hash = 0x811c9dc5;
    for (const token of history) hash = Math.imul(hash ^ token, 0x01000193) >>> 0;
    const row = Float32Array.from({ length: this.vocabSize }, () => {
      hash = (Math.imul(hash, 1664525) + 1013904223) >>> 0;
      return (hash >>> 8) / 2 ** 21 - 4;
    });
    this.options.onRow?.(row, history);
    return row;
  }

  async close(): Promise<void> {}
}
