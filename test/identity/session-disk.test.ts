/**
 * A state that went through the disk is the state that never left memory: the same bytes in every part, and the same rows and
 * states of whatever goes on from it, in this process and in one that was started afterwards; for families and memories
 * that the turns of sessions.test.ts do not reach.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { SequenceState } from '../../src/engine/model.js';
import type { PagedState } from '../../src/engine/state/sequence-state.js';
import type { PagedModel } from '../../src/families/paged-model.js';
import { SessionFolder } from '../../src/sessions/checkpoints/session-folder.js';
import { CheckpointStore } from '../../src/sessions/checkpoints/store.js';
import type { SaveOutcome } from '../../src/sessions/checkpoints/save.js';
import { NO_FENCES } from '../../src/sessions/fence-view.js';
import type { Capture } from '../../src/sessions/types.js';
import { openPagedTestModel, type Checkpoint } from '../support/models.js';
import { temporaryFolder } from '../support/repository.js';
import { KNOWN_POLICIES, STAMP } from '../support/session-states.js';
import { ROOMY } from '../support/session-store.js';

type Store = CheckpointStore<SequenceState>;

async function open(path: string, model: PagedModel): Promise<Store> {
  return CheckpointStore.open<SequenceState>({
    folder: await SessionFolder.open(path),
    codecs: model.stateCodecs,
    knownGatePolicies: KNOWN_POLICIES,
    fences: NO_FENCES,
    budget: ROOMY,
  });
}

async function keep(store: Store, capture: Capture<SequenceState>): Promise<void> {
  const outcome = await new Promise<SaveOutcome>((resolve) =>
    store.save({ capture, stamp: STAMP, lineage: [{ session: 's', epoch: 0 }], session: 's' }, resolve),
  );
  assert.equal(outcome.kind, 'stored', JSON.stringify(outcome));
}

async function fetchBack(store: Store, tokens: readonly number[]) {
  const found = store.match([...tokens, 0], STAMP);
  assert.ok(found.kind === 'candidate', JSON.stringify(found));
  assert.equal(found.candidate.length, tokens.length);
  const outcome = await store.restore(found.candidate);
  assert.ok(outcome.kind === 'restored', JSON.stringify(outcome));
  return outcome.capture;
}

const bytesOf = (state: SequenceState | undefined) =>
  state && [...(state as PagedState).snapshot()].map(([name, bytes]) => [name, Buffer.from(bytes).toString('base64')]);
const rowBytes = (rows: readonly Float32Array[]) =>
  rows.map((row) => Buffer.from(row.slice().buffer).toString('base64'));

/** The rows of `tokens` behind a state and the state that they leave; the state given stays the caller's. */
async function goOn(model: PagedModel, state: SequenceState, tokens: readonly number[]) {
  const [prompt] = await model.forward([{ state, tokens: tokens.slice(0, -1), logits: 'all', hidden: 'all' }], {
    phase: 'prefill',
  });
  const [last] = await model.forward([{ state: prompt!.state, tokens: tokens.slice(-1), logits: 'last' }], {
    phase: 'decode',
  });
  const said = {
    rows: rowBytes([...prompt!.logits, ...last!.logits]),
    hidden: rowBytes(prompt!.hidden ?? []),
    state: bytesOf(last!.state),
  };
  prompt!.state.release();
  last!.state.release();
  return said;
}

/** Block ends of the indexer, page ends, and their neighbours. */
const LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 100, 127, 128, 129];

async function assertIdentity(t: TestContext, name: Checkpoint, dtype: string, backend: 'cpu' | 'wasm' = 'cpu') {
  const { model } = await openPagedTestModel(t, name, { dtype, backend, threads: 1, sequences: 24, draftHead: false });
  const path = join(temporaryFolder(t, 'identity'), 'store');
  const ids = Array.from({ length: 140 }, (_, i) => 2 + ((i * 37 + (i >> 3)) % Math.min(200, model.vocabSize - 3)));
  const expected = new Map<number, { state: unknown; after: Awaited<ReturnType<typeof goOn>> }>();
  const store = await open(path, model);
  let state = model.newState();
  const rest = (length: number): number[] => ids.slice(length, Math.min(length + 12, ids.length));
  for (const length of LENGTHS) {
    const [grown] = await model.forward([{ state, tokens: ids.slice(state.length, length), logits: 'none' }], {
      phase: 'prefill',
    });
    state.release();
    state = grown!.state;
    expected.set(length, { state: bytesOf(state), after: await goOn(model, state, rest(length)) });
    await keep(store, { kind: 'chunk', tokens: Int32Array.from(ids.slice(0, length)), trunk: state });
  }
  state.release();
  const check = async (from: Store, where: PagedModel, what: string): Promise<void> => {
    for (const length of LENGTHS) {
      const { trunk, tokens } = await fetchBack(from, ids.slice(0, length));
      assert.deepEqual([...tokens], ids.slice(0, length));
      assert.deepEqual(bytesOf(trunk), expected.get(length)!.state, `${name} ${dtype} ${what}, ${length}: the state`);
      const after = await goOn(where, trunk, rest(length));
      assert.deepEqual(after, expected.get(length)!.after, `${name} ${dtype} ${what}, ${length}: what follows`);
      trunk.release();
    }
  };
  await check(store, model, 'from disk');
  await store.close();
  assert.equal(model.stateUsage().used, 0);

  const { model: later } = await openPagedTestModel(t, name, {
    dtype,
    backend,
    threads: 1,
    sequences: 24,
    draftHead: false,
  });
  const reopened = await open(path, later);
  await check(reopened, later, 'after a restart');
  await reopened.close();
  assert.equal(later.stateUsage().used, 0);
}

test('states of the DeepSeek family go to the disk and back', async (t) => {
  await assertIdentity(t, 'deepseek-v4-strong', 'f32');
});

test('shared choices, pools and recurrences of the GLM family go to the disk and back, from shared memory, too', async (t) => {
  await assertIdentity(t, 'glm5-next-shared-index', 'f32', 'wasm');
});

test('pages of rows narrower than float32 go to the disk and back', async (t) => {
  await assertIdentity(t, 'qwen4-exp-tiny', 'bf16');
});

test('shared memory of the wasm backend goes to the disk and back as well', async (t) => {
  await assertIdentity(t, 'qwen4-exp-tiny', 'f32', 'wasm');
});
