/** Containment when something else goes wrong, too, and what it means for forks, borrowers and recycled memory; through HTTP. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as elapsed } from 'node:timers/promises';
import type { TestSeams } from '../../src/http/open-model.js';
import { ContainedServer, PLANTS, type Message } from '../support/contained-server.js';
import { MODEL } from '../support/embedded-server.js';

const [ALL_NAN] = PLANTS;
const TARGET = { site: 'ar_step', nth: 1 };
const more = { max_tokens: 6 };
const user = (content: string): Message => ({ role: 'user', content });

async function opened(t: TestContext, seams: TestSeams = {}, options: object = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'plumbline-faults-'));
  const server = await ContainedServer.open(options, folder, seams);
  t.after(async () => {
    await server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return { server, folder };
}

/** A first turn that is kept everywhere, and the messages of the second. */
async function conversation(server: ContainedServer, session: string | undefined, words = session): Promise<Message[]> {
  const ask = user(`${words}. What does path.join do?`);
  const { text } = await server.ask(session, [ask], more);
  await server.flush();
  return [ask, { role: 'assistant', content: text }, user('What does fs.readFile do?')];
}

async function failing(server: ContainedServer, session: string, messages: readonly Message[]) {
  server.spoiler.aim(session, TARGET, ALL_NAN);
  const failed = await server.ask(session, messages, more);
  server.spoiler.rest();
  assert.equal(failed.error?.code, 'non_finite_logits');
  return failed;
}

interface Health {
  readonly models: readonly {
    readonly sessions: {
      readonly containment: {
        readonly fence_durable: boolean;
        readonly restores_from_disk: boolean;
        readonly drops_owed: number;
      };
    };
  }[];
}

async function health(server: ContainedServer) {
  const report = (await (await fetch(`${server.server.url}/health`)).json()) as Health;
  return report.models[0]!.sessions.containment;
}

test('a fence that cannot be written: the files go all the same, and the session is not stored any more', async (t) => {
  const { server, folder } = await opened(t);
  const messages = await conversation(server, 'full');
  const fault = { kind: 'error', code: 'ENOSPC' } as const;
  server.gate.files.plan = { at: (step) => step === 'write staged json', fault, always: true };
  await failing(server, 'full', messages);
  server.gate.files.plan = undefined;
  const receipt = server.receipt();
  assert.deepEqual([receipt.fence.durable, receipt.errors], [false, ['F4 fence: ENOSPC']]);
  assert.ok(receipt.dropped.checkpoints >= 1);
  assert.deepEqual(server.traces('full'), []);
  assert.deepEqual(
    [await health(server)].map((told) => [told.fence_durable, told.restores_from_disk]),
    [[false, true]],
  );
  const cold = await server.ask('full', messages, more);
  assert.deepEqual(
    [cold.cached, cold.session?.reason, cold.session?.stored],
    [0, 'session_fenced', { ram: 'stored', disk: 'unusable' }],
  );
  await server.close();
  const again = await ContainedServer.open({}, folder);
  t.after(() => again.close());
  assert.deepEqual(again.sessions.store!.entries('full'), []);
});

test('neither fence nor deletion: nothing is restored from the disk until a sweep succeeds', async (t) => {
  const { server } = await opened(t, {}, { sessionRamMib: 0 });
  const messages = await conversation(server, 'stuck');
  const neighbour = await conversation(server, undefined, 'neighbour');
  await server.ask(undefined, neighbour, more);
  await server.flush();
  assert.ok((await server.ask(undefined, neighbour, more)).cached > 0);
  const fault = { kind: 'error', code: 'EROFS' } as const;
  const isDenied = (step: string): boolean => step === 'write staged json' || step.startsWith('remove');
  server.gate.files.plan = { at: isDenied, fault, always: true };
  await failing(server, 'stuck', messages);
  assert.equal(server.receipt().fence.durable, false);
  assert.equal(server.receipt().errors.length, 2);
  assert.deepEqual(
    [await health(server)].map((told) => [told.restores_from_disk, told.drops_owed]),
    [[false, 1]],
  );
  assert.equal((await server.ask(undefined, neighbour, more)).cached, 0);
  server.gate.files.plan = undefined;
  await server.sessions.containment.sweep();
  assert.deepEqual(
    [await health(server)].map((told) => [told.restores_from_disk, told.drops_owed, told.fence_durable]),
    [[true, 0, true]],
  );
  assert.ok((await server.ask(undefined, neighbour, more)).cached > 0);
});

test('a deletion that fails is told, refused by the fence, and made by the next sweep', async (t) => {
  const { server, folder } = await opened(t);
  const messages = await conversation(server, 'kept');
  const fault = { kind: 'error', code: 'EROFS' } as const;
  server.gate.files.plan = { at: (step) => step.startsWith('remove checkpoint'), fault, always: true };
  await failing(server, 'kept', messages);
  assert.deepEqual([server.receipt().fence.durable, server.receipt().errors], [true, ['F6 checkpoints: EROFS']]);
  assert.deepEqual(server.traces('kept'), []);
  await server.close();
  const again = await ContainedServer.open({}, folder);
  t.after(() => again.close());
  assert.equal(again.sessions.store!.health().opened.fenced, 1, 'the file was there, and was not believed');
  assert.deepEqual((await again.ask('kept', messages, more)).session?.reason, 'session_fenced');
});

test('answers that were stored with a failed session are not put back, in this process or the next, from files that stay', async (t) => {
  const { server, folder } = await opened(t, {}, { parallel: 1 });
  const messages = await conversation(server, 'noted');
  const [fault, at] = [{ kind: 'error', code: 'EROFS' } as const, (step: string) => step.startsWith('remove')];
  server.gate.files.plan = { at, fault, always: true };
  const spliced = async (asked: ContainedServer): Promise<readonly unknown[]> => {
    const { session } = await asked.ask('noted', messages, { ...more, max_tokens: 1 });
    return [session?.spliced_turns, session?.splice_declined, session?.reason];
  };
  // The next request is made before the failure, with an answer of before in its prompt, and starts after it.
  let early: Promise<readonly unknown[]> | undefined;
  server.spoiler.aim('noted', TARGET, ALL_NAN);
  const { served } = server.server.models[0]!;
  const submit = served.submit.bind(served);
  served.submit = (request) => {
    early ??= spliced(server);
    return submit(request);
  };
  assert.equal((await server.ask('noted', messages, more)).error?.code, 'non_finite_logits');
  server.spoiler.rest();
  assert.deepEqual(await early, [1, null, 'session_fenced']);
  assert.equal(readdirSync(join(folder, 'checkpoints')).length > 0, true, 'the files stay');
  await server.flush();
  assert.deepEqual((await spliced(server)).slice(0, 2), [0, 'unknown_turn']);
  server.sessions.committed.drop('noted');
  assert.deepEqual((await spliced(server)).slice(0, 2), [0, 'unknown_turn']);
  await server.close();
  const again = await ContainedServer.open({}, folder);
  t.after(() => again.close());
  assert.deepEqual((await spliced(again)).slice(0, 2), [0, 'unknown_turn']);
});

test('a client that leaves while its session is contained leaves a contained session', async (t) => {
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  let reached: () => void = () => undefined;
  const begun = new Promise<void>((resolve) => (reached = resolve));
  const { server } = await opened(t, {
    containmentPoint: async (point) => {
      if (point !== 'before-F4') return;
      reached();
      await held;
    },
  });
  const messages = await conversation(server, 'gone');
  server.spoiler.aim('gone', TARGET, ALL_NAN);
  const leave = new AbortController();
  const left = server.server.post(
    '/v1/chat/completions',
    { model: MODEL, messages, seed: 11, ...more },
    { headers: { 'x-session-id': 'gone' }, signal: leave.signal },
  );
  await begun;
  leave.abort();
  await assert.rejects(left);
  server.spoiler.rest();
  // A request of the session waits for the end of it; one of another session does not.
  const waiting = server.ask('gone', messages, more);
  assert.equal((await server.ask('somebody', [user('somebody. What is a stream?')], more)).status, 200);
  const first = await Promise.race([waiting.then(() => 'served'), elapsed(50).then(() => 'waiting')]);
  assert.equal(first, 'waiting');
  release();
  const cold = await waiting;
  assert.deepEqual([cold.cached, cold.session?.reason], [0, 'session_fenced']);
  assert.deepEqual([server.receipt().sessionId, server.traces('gone')], ['gone', []]);
});

test('two sessions that fail at the same moment are each contained, and their neighbour is served and stays', async (t) => {
  const arrived: string[] = [];
  let both: () => void = () => undefined;
  const together = new Promise<void>((resolve) => (both = resolve));
  const { server } = await opened(t, {
    containmentPoint: async (point) => {
      if (point !== 'before-F4') return;
      arrived.push(point);
      if (arrived.length === 2) both();
      await together; // neither goes on before the other is there
    },
  });
  const talks = new Map<string, Message[]>();
  for (const name of ['left', 'right', 'beside']) talks.set(name, await conversation(server, name));
  const print = server.fingerprint('beside');
  server.spoiler.aim('left', TARGET, ALL_NAN);
  server.spoiler.alsoAim('right', TARGET, PLANTS[1]);
  const failed = await Promise.all(['left', 'right'].map((name) => server.ask(name, talks.get(name)!, more)));
  server.spoiler.rest();
  assert.deepEqual(
    failed.map(({ status, errors, error }) => [status, errors, error?.code]),
    Array.from({ length: 2 }, () => [500, 1, 'non_finite_logits']),
  );
  assert.deepEqual(
    failed.map(({ error }) => [error!.plumbline.census['nan'], error!.plumbline.census['inf']]),
    [ALL_NAN, PLANTS[1]].map(({ nan, inf }) => [nan, inf]),
    'each its own',
  );
  const { receipts, fences, counts } = server.sessions.containment;
  assert.deepEqual(receipts.all.map(({ sessionId }) => sessionId).sort(), ['left', 'right']);
  assert.equal(counts.containments, 2);
  for (const name of ['left', 'right']) {
    assert.deepEqual([server.traces(name), fences.epochOf(name), fences.stateOf(name)], [[], 1, 'cold']);
    const { cached, session } = await server.ask(name, talks.get(name)!, more);
    assert.deepEqual([cached, session?.reason], [0, 'session_fenced']);
  }
  assert.deepEqual([server.fingerprint('beside'), fences.stateOf('beside')], [print, 'ready']);
  assert.ok((await server.ask('beside', talks.get('beside')!, more)).cached > 0);
});

test('a session that fails twice is two epochs on, and was worth repeating only once', async (t) => {
  const { server } = await opened(t);
  const messages = await conversation(server, 'twice');
  assert.equal((await failing(server, 'twice', messages)).shouldRetry, 'true');
  assert.equal((await failing(server, 'twice', messages)).shouldRetry, 'false');
  assert.deepEqual(server.receipt().fence, { from: 1, to: 2, durable: true });
  assert.equal((await server.ask('twice', messages, more)).session?.reason, 'session_fenced');
});

test('a fork of the failed session ends well, is not kept, and is cold next; its ancestor stays', async (t) => {
  const { server } = await opened(t);
  const messages = await conversation(server, 'ancestor');
  const parent = await server.ask('failing', messages, more); // grows from the ancestor
  assert.ok(parent.cached > 0);
  const after = [...messages, { role: 'assistant' as const, content: parent.text }, user('And fs.writeFile?')];
  const fork = await server.ask('fork', after, more); // grows from the failing one
  assert.ok(fork.cached > parent.cached);
  await server.flush();
  const ancestor = server.fingerprint('ancestor');
  await failing(server, 'failing', after);
  assert.deepEqual([server.traces('failing'), server.traces('fork')], [[], []]);
  assert.equal(server.fingerprint('ancestor'), ancestor);
  const next = await server.ask('fork', [...after, { role: 'assistant', content: fork.text }, user('Thanks.')], more);
  assert.ok(next.cached <= parent.cached, 'what it had from the failed session is gone');
  assert.equal(server.sessions.containment.fences.stateOf('fork'), 'ready');
});

test('a borrower that runs across the failure ends well and keeps nothing', async (t) => {
  const { server } = await opened(t);
  const messages = await conversation(server, 'lender');
  const response = await server.server.post(
    '/v1/chat/completions',
    { model: MODEL, messages, seed: 11, max_tokens: 24, stream: true },
    { headers: { 'x-session-id': 'borrower' } },
  );
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let said = '';
  while (!said.includes('"content":"')) said += (await reader.read()).value ?? '';
  const census = { site: 'ar_step', phase: 'decode', step: 1, nanCount: 1, infCount: 0, vocabSize: 4096 };
  const request = { requestId: 'r', session: 'lender', family: 'f', restoredTokens: 0, emittedTokens: 0, prompts: [] };
  await server.sessions.containment.contain({ ...request, lane: 'ar', depth: 0, census });
  for (let next = await reader.read(); !next.done; next = await reader.read()) said += next.value;
  assert.match(said, /data: \[DONE\]/);
  assert.match(said, /"stored":\{"ram":"fenced","disk":"fenced"\}/);
  assert.ok(server.sessions.containment.counts.savesRefused > 0);
  assert.deepEqual(server.traces('lender'), []);
  const next = await server.ask('borrower', messages, more);
  assert.deepEqual([next.cached, next.session?.reason], [0, 'no_entry']);
});

test('a session without an id is found again by its prompt: the retry is cold, in this process and the next', async (t) => {
  const { server, folder } = await opened(t);
  const messages = await conversation(server, undefined, 'nameless');
  const known = await server.ask(undefined, messages, more);
  assert.ok(known.cached > 0);
  const name = known.session!.id;
  server.spoiler.aimAtAll(TARGET, ALL_NAN);
  assert.equal((await server.ask(undefined, messages, more)).error?.code, 'non_finite_logits');
  server.spoiler.rest();
  assert.equal(server.receipt().sessionId, name);
  await server.close();
  const again = await ContainedServer.open({}, folder);
  t.after(() => again.close());
  const retry = await again.ask(undefined, messages, more);
  assert.deepEqual([retry.session?.id, retry.cached, retry.session?.reason], [name, 0, 'session_fenced']);
  assert.ok((await again.ask(undefined, messages, more)).cached > 0);
});

test('memory that held NaN serves a healthy request bit for bit', async (t) => {
  const { server } = await opened(t, {}, { parallel: 1 });
  const healthy = [user('Healthy: what does fs.readFile do?')];
  const before = await server.ask('before', healthy, { ...more, max_tokens: 16 });
  server.sessions.bank!.clear();
  const blocks = server.server.models[0]!.backend.backend.memory().allocated;
  for (let round = 0; round < 3; round++) {
    // Every slab and page that the pool has free now holds NaN.
    for (const state of poisoned(server)) state.release();
    const after = await server.ask(`after-${round}`, healthy, { ...more, max_tokens: 16 });
    assert.equal(after.text, before.text);
    server.sessions.bank!.clear();
  }
  assert.ok(server.server.models[0]!.backend.backend.memory().allocated >= blocks);
});

/** Values whose whole memory is NaN: many pages, appended to by nobody. */
function poisoned(server: ContainedServer): { release(): void }[] {
  const { model } = server.server.models[0]!.loaded;
  const codec = model.stateCodecs!.trunk;
  return Array.from({ length: 4 }, () => {
    const reservation = codec.reserve(new Int32Array(192));
    for (const bytes of [reservation.fixed, ...reservation.pages]) bytes.fill(0xff);
    return reservation.commit();
  });
}
