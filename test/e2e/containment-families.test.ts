/**
 * Containment is of the family whose law is to raise: the same invalid rows on models under the ds4 law are answers, contain
 * nothing, and leave their own sessions and those of a neighbour of the other family as they are; and the other way round.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SessionBlock } from '../../src/api/session-block.js';
import type { OpenedModel } from '../../src/http/open-model.js';
import { PLANTS, RowSpoiler } from '../support/contained-server.js';
import { temporaryFolder } from '../support/repository.js';
import { ALL_MODELS, DS4_MODELS, threeFamilies, type TinyModel } from '../support/three-families.js';

interface Said {
  readonly status: number;
  readonly choices: unknown;
  readonly warned: boolean;
  readonly session: SessionBlock | null;
}

test('rows that fail a session of one family are answers of the others, and touch nobody', async (t) => {
  const spoiler = new RowSpoiler();
  const sessionDir = temporaryFolder(t, 'families');
  const server = await threeFamilies(ALL_MODELS, { rowHook: spoiler.hook }, { sessionDir, sessionMinFreeMib: 0 });
  t.after(() => server.end());
  const ask = async (model: TinyModel, session: string): Promise<Said> => {
    const messages = [{ role: 'user', content: `${session}. Tell me.` }];
    const body = { model, messages, max_tokens: 6, temperature: 0, think: false };
    const response = await server.post('/v1/chat/completions', body, { headers: { 'x-session-id': session } });
    const { choices, plumbline } = (await response.json()) as {
      choices?: unknown;
      plumbline?: { logits_warning?: object; session: SessionBlock | null };
    };
    const warned = plumbline?.logits_warning !== undefined;
    return { status: response.status, choices, warned, session: plumbline?.session ?? null };
  };
  const opened = (model: TinyModel): OpenedModel => server.models[ALL_MODELS.indexOf(model)]!;
  const contained = (): number[] =>
    ALL_MODELS.map((model) => opened(model).sessions.containment?.counts.containments ?? 0);
  /** What is kept of a model's sessions. */
  const kept = (model: TinyModel): string[] => {
    const { bank, store } = opened(model).sessions;
    const inRam = (bank?.entries() ?? []).map(({ session, capture }) => `${session} ${capture.tokens.join()}`);
    // Of what says the same the newest stays, under an id of its own.
    const onDisk = (store?.entries() ?? []).map(
      (entry) => `${entry.session} on disk ${entry.tokensOf('trunk').join()}`,
    );
    return [...inRam, ...onDisk].sort();
  };
  const flush = async (): Promise<void> => {
    for (const { sessions } of server.models) await sessions.store?.flush(10_000);
  };

  const healthy = new Map<TinyModel, Said>();
  for (const model of ALL_MODELS) healthy.set(model, await ask(model, 'same'));
  await flush();
  assert.equal(kept('qwen').length > 1, true);

  for (const model of DS4_MODELS) {
    for (const plant of PLANTS) {
      const before = kept('qwen');
      const own = kept(model);
      spoiler.aim('same', { site: 'ar_step', nth: 1 }, plant);
      const answer = await ask(model, 'same');
      assert.equal(
        spoiler.seen.filter((site) => site === 'ar_step').length > 1,
        true,
        `${model} ${plant.name} was hit`,
      );
      spoiler.rest();
      await flush();
      assert.deepEqual([answer.status, answer.warned], [200, true], `${model} ${plant.name}`);
      assert.deepEqual(contained(), [0, 0, 0], `${model} ${plant.name}: nothing is contained`);
      assert.deepEqual(kept('qwen'), before);
      for (const entry of own) assert.ok(kept(model).includes(entry), 'nothing of its own goes');
    }
    assert.deepEqual((await ask(model, 'another')).status, 200);
  }
  assert.equal((await ask('qwen', 'same')).session?.restore, 'restored');

  const others = DS4_MODELS.map(kept);
  spoiler.aim('same', { site: 'ar_step', nth: 1 }, PLANTS[0]);
  assert.equal((await ask('qwen', 'same')).status, 500);
  spoiler.rest();
  assert.deepEqual(contained(), [1, 0, 0]);
  assert.deepEqual(
    kept('qwen').filter((entry) => entry.startsWith('same ')),
    [],
  );
  assert.deepEqual(DS4_MODELS.map(kept), others);
  for (const model of DS4_MODELS) {
    const { status, session } = await ask(model, 'untouched');
    assert.deepEqual([status, session?.reason ?? 'no_entry'], [200, 'no_entry'], model);
  }
  const cold = await ask('qwen', 'same');
  assert.deepEqual([cold.session?.reason, cold.choices], ['session_fenced', healthy.get('qwen')!.choices]);
});
