/**
 * The acceptance matrix of containment, through HTTP: whatever row is invalid, wherever its session's state already lies,
 * streamed or not: one error, no id of the row, nothing left of the session, its neighbours untouched, and the next request
 * of the session cold and as in a process in which nothing ever happened.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { GivenOptions } from '../../src/config.js';
import { PagedState } from '../../src/engine/state/sequence-state.js';
import {
  ContainedServer,
  PLANTS,
  VOCABULARY,
  type Message,
  type Plant,
  type Target,
} from '../support/contained-server.js';

/** resident: kept in memory alone; persisted: on the disk, too; pending: its save is under way across the failure. */
const EARLIER = ['none', 'resident', 'persisted', 'pending'] as const;
type Earlier = (typeof EARLIER)[number];

interface Site {
  readonly id: string;
  readonly target: Target;
  /** Fields of the request. */
  readonly more?: object;
  /** Tokens that are emitted before the row, at most. */
  readonly emitted?: number;
}

interface Lane {
  readonly name: 'ar' | 'mtp';
  readonly options: GivenOptions;
  readonly sites: readonly Site[];
}

/** Penalties keep context copy away, so the head itself drafts. */
const drafting = { speculation: 'plain', frequency_penalty: 0.01 };
const greedy = { speculation: 'plain', temperature: 0, max_tokens: 10 };
const QUESTION = 'What does fs.readFile do?';

const LANES: readonly Lane[] = [
  {
    name: 'ar',
    options: {},
    sites: [
      { id: 'A-P', target: { site: 'prefill_frontier', nth: 0 }, emitted: 0 },
      { id: 'A-T 1', target: { site: 'ar_step', nth: 0 }, emitted: 1 },
      { id: 'A-T 8', target: { site: 'ar_step', nth: 7 }, emitted: 8 },
      { id: 'A-F', target: { site: 'closing_forward', nth: 0 } },
    ],
  },
  ...[1, 2, 3].map((draftDepth): Lane => ({
    name: 'mtp',
    options: { draftDepth, gatePolicy: 'uniform', contextCopy: 'off' },
    sites: [
      { id: 'M-P', target: { site: 'prefill_frontier', nth: 0 }, more: drafting, emitted: 0 },
      {
        id: 'M-D greedy',
        target: { site: 'draft', nth: draftDepth - 1 },
        more: { ...drafting, temperature: 0 },
        emitted: 1,
      },
      { id: 'M-D sampled', target: { site: 'draft', nth: draftDepth }, more: { ...drafting, temperature: 0.8 } },
      { id: 'M-T first', target: { site: 'verify', nth: 0 }, more: drafting, emitted: 1 },
      { id: 'M-T last', target: { site: 'verify', nth: draftDepth - 1, steer: 'agree' }, more: greedy },
      { id: 'M-T correction', target: { site: 'primary', nth: 0, steer: 'differ' }, more: greedy },
      { id: 'M-B', target: { site: 'bonus', nth: 0, steer: 'agree' }, more: greedy },
      { id: 'M-F', target: { site: 'final_primary', nth: 0 }, more: { ...drafting, max_tokens: 1 } },
    ],
  })),
  {
    // Without a head every block is a copied one.
    name: 'mtp',
    options: { draftDepth: 0, gatePolicy: 'uniform' },
    sites: [0, 1, 2].map((nth) => ({
      id: `M-C ${nth}`,
      target: { site: 'verify', nth, steer: 'agree' },
      more: greedy,
    })),
  },
];

let number = 0;

for (const { name: lane, options, sites } of LANES) {
  const depth = lane === 'mtp' ? options.draftDepth! : 0;
  describe(`${lane}${depth > 0 ? ` depth ${depth}` : ''}`, () => {
    const folder = mkdtempSync(join(tmpdir(), 'plumbline-contain-'));
    let withDisk: ContainedServer;
    let ramOnly: ContainedServer;
    /** Has seen nothing of what it is asked: what a fresh process says. */
    let fresh: ContainedServer;
    const bystanders: { session: string; history: Message[]; said: string; prints: string; server: ContainedServer }[] =
      [];

    before(async () => {
      withDisk = await ContainedServer.open(options, folder);
      ramOnly = await ContainedServer.open(options);
      fresh = await ContainedServer.open(options);
      for (const server of [withDisk, ramOnly]) {
        const session = `bystander-${number++}`;
        const ask = user(`${session} What does path.join do?`);
        const first = await server.ask(session, [ask], sites.at(-1)?.more);
        await server.flush();
        const history = [ask, { role: 'assistant' as const, content: first.text }, user('And resolve?')];
        const { text: said } = await server.ask(session, history, sites.at(-1)?.more);
        await server.flush();
        bystanders.push({ session, history, said, prints: server.fingerprint(session), server });
      }
    });
    after(async () => {
      for (const server of [withDisk, ramOnly, fresh]) await server.close();
      rmSync(folder, { recursive: true, force: true });
    });

    /** One turn, with digests of all its rows and of what is kept behind it: states, and in the other lane the hidden row. */
    const watchedTurn = async (
      server: ContainedServer,
      session: string,
      messages: readonly Message[],
      more: object,
    ) => {
      server.spoiler.watch();
      const outcome = await server.ask(session, messages, more);
      const rows = server.spoiler.watched();
      return { ...outcome, rows, kept: turnPrint(server, session) };
    };

    const fail = async (site: Site, plant: Plant, earlier: Earlier, stream: boolean): Promise<void> => {
      const server = earlier === 'none' || earlier === 'resident' ? ramOnly : withDisk;
      const session = `${site.id} ${plant.name} ${earlier} ${stream ? 'streamed' : 'whole'} ${number++}`.replaceAll(
        ' ',
        '-',
      );
      const where = `${lane} ${depth}: ${session}`;
      const more = { max_tokens: 10, ...site.more };
      const history: Message[] = [];
      const first = user(`${session}. And fs.writeFile?`);
      if (earlier !== 'none') {
        if (earlier === 'pending') server.gate.shut();
        const turn = await server.ask(session, [first], more);
        assert.equal(turn.session?.stored.ram, 'stored', where);
        if (earlier === 'persisted') {
          await server.flush();
          assert.ok(server.sessions.store?.entries(session).length, where);
        }
        history.push(first, { role: 'assistant', content: turn.text });
      }
      const messages = [...history, user(`${session}. ${QUESTION}`)];
      const { counts: before } = server.sessions.containment;
      const refusedBefore = server.sessions.store?.health().not_stored.session_fenced ?? 0;

      server.spoiler.aim(session, site.target, plant);
      const failed = await server.ask(session, messages, { ...more, stream, stream_options: undefined });
      server.spoiler.rest();

      // E1: exactly one error, with its place and its census, and nothing behind it.
      const { site: at } = site.target;
      assert.equal(failed.status, stream ? 200 : 500, where);
      assert.deepEqual([failed.errors, failed.done, failed.finish, failed.lastIsError], [1, false, null, true], where);
      assert.deepEqual([failed.error?.code, failed.error?.type], ['non_finite_logits', 'server_error'], where);
      const { census, retryable } = failed.error!.plumbline;
      assert.deepEqual([census['site'], census['nan'], census['inf']], [at, plant.nan, plant.inf], where);
      assert.equal(census['vocab'], VOCABULARY);
      assert.match(failed.error!.message, /all cached state of its session was dropped/);
      assert.ok(failed.requestId !== null && failed.error!.message.includes(failed.requestId), where);
      assert.equal(server.spoiler.seen.at(-1), at, `${where}: no row after the invalid one`);
      // E3: nothing of the session is left.
      assert.deepEqual(server.traces(session), [], where);
      assert.equal(server.sessions.committed.drop(session), 0, `${where}: no answer that could be put back`);
      // E8: the receipt.
      const receipt = server.receipt();
      assert.deepEqual(
        [receipt.sessionId, receipt.site, receipt.lane, receipt.depth],
        [session, at, lane, depth],
        where,
      );
      assert.deepEqual([receipt.errors, receipt.requestId], [[], failed.requestId], where);
      assert.equal(receipt.fence.durable, server === withDisk ? true : null, where);
      if (earlier !== 'none') assert.ok(receipt.dropped.resident >= 1 && receipt.restoredTokens > 0, where);
      if (earlier === 'persisted') assert.ok(receipt.dropped.checkpoints >= 1, where);
      if (site.emitted !== undefined) assert.ok(receipt.emittedTokens <= site.emitted + depth, where);
      assert.equal(retryable, receipt.restoredTokens > 0, where);
      if (!stream) assert.equal(failed.shouldRetry, String(retryable), where);
      assert.equal(server.sessions.containment.counts.containments, before.containments + 1, where);
      // E4: what was being saved is refused when it comes to its publication.
      if (earlier === 'pending') {
        server.gate.open();
        await server.flush();
        const refused = server.sessions.store?.health().not_stored.session_fenced ?? 0;
        assert.ok(refused > refusedBefore && receipt.dropped.pendingSaves >= 1, where);
        assert.deepEqual([server.staging(), server.traces(session)], [[], []], where);
      }
      // E6: the next request is cold, and as in a process in which nothing happened; the one after it is warm.
      fresh.sessions.bank!.clear();
      const expected = await watchedTurn(fresh, session, messages, more);
      const cold = await watchedTurn(server, session, messages, more);
      assert.deepEqual([cold.cached, cold.session?.reason, cold.text], [0, 'session_fenced', expected.text], where);
      assert.equal(expected.cached, 0, where);
      assert.equal(cold.rows, expected.rows, `${where}: every row of logits`);
      assert.equal(cold.kept, expected.kept, `${where}: states and hidden rows`);
      // E2. Where there was an earlier turn, its very tokens may have stood in the prompt, which nobody remembers now.
      if (earlier === 'none' && site.target.steer === undefined)
        assert.ok(expected.text.startsWith(failed.text), `${where}: text of an undisturbed run`);
      const next = [...messages, { role: 'assistant' as const, content: cold.text }, user('Thanks.')];
      const warm = await server.ask(session, next, more);
      assert.ok(warm.cached > 0 && warm.session?.restore === 'restored', where);
    };

    for (const [index, site] of sites.entries()) {
      test(`${site.id}: one error, no trace, and the next request is cold and right`, async () => {
        for (const [row, plant] of PLANTS.entries()) {
          for (const stream of [false, true]) {
            // The lower depths take each row in one delivery.
            if ((depth === 1 || depth === 2) && stream === ((row + index) % 2 === 0)) continue;
            // Every row, delivery and place; the earlier states in rotation.
            await fail(site, plant, EARLIER[(row + index + (stream ? 2 : 0)) % EARLIER.length]!, stream);
          }
        }
      });
    }

    test('E5: the neighbours are byte for byte what they were, and restore warm', async () => {
      for (const { session, history, said, prints, server } of bystanders) {
        assert.equal(
          server.sessions.bank!.stats().evicted,
          0,
          'there was room for all, so only a drop could change them',
        );
        assert.equal(server.fingerprint(session), prints);
        const answer = await server.ask(session, history, sites.at(-1)?.more);
        assert.ok(answer.cached > 0);
        assert.equal(answer.text, said);
      }
    });

    test('legal masks at every site are no failure', async () => {
      const mask = (row: Float32Array): void => {
        row.fill(-Infinity);
        row[1] = 2;
        row[3] = 1;
      };
      for (const site of sites) {
        const session = `legal-${site.id.replaceAll(' ', '-')}`;
        const { containments } = ramOnly.sessions.containment.counts;
        ramOnly.spoiler.aim(session, site.target, { fill: mask });
        const more = { max_tokens: 10, ...site.more };
        const answer = await ramOnly.ask(session, [user(`${session}. ${QUESTION}`)], more);
        ramOnly.spoiler.rest();
        assert.ok(ramOnly.spoiler.seen.includes(site.target.site), session);
        assert.deepEqual([answer.status, answer.errors], [200, 0], session);
        assert.equal(ramOnly.sessions.containment.counts.containments, containments);
        assert.equal(ramOnly.sessions.containment.fences.stateOf(session), 'ready');
      }
    });

    test('E7: after a restart nothing of a failed epoch is there, and what is healthy comes back as it was', async () => {
      await withDisk.flush();
      const failed = withDisk.sessions.containment.receipts.all.map(({ sessionId }) => sessionId);
      const [{ session }] = bystanders as [(typeof bystanders)[0]];
      const before = await restoredHash(withDisk, session);
      await withDisk.close();
      withDisk = await ContainedServer.open(options, folder);
      assert.equal(withDisk.sessions.store!.health().opened.fenced, 0, 'the failed were deleted, not only fenced');
      for (const session of failed) assert.deepEqual(withDisk.traces(session), []);
      assert.ok(failed.length > 0);
      assert.equal(await restoredHash(withDisk, session), before);
    });

    test('health and metrics tell of it', async () => {
      const health = (await (await fetch(`${ramOnly.server.url}/health`)).json()) as {
        models: { sessions: { containment: { contained: number; receipts: unknown[] } } }[];
      };
      const { contained, receipts } = health.models[0]!.sessions.containment;
      assert.ok(contained > 0 && receipts.length === Math.min(16, contained));
      const metrics = await (await fetch(`${ramOnly.server.url}/metrics`)).text();
      assert.match(metrics, new RegExp(`plumbline_containments_total ${contained}\n`));
      assert.match(metrics, new RegExp(`plumbline_containment_seconds_count ${contained}\n`));
    });
  });
}

function user(content: string): Message {
  return { role: 'user', content };
}

/** What the bank has behind the longest turn of a session. */
function turnPrint({ sessions: { bank } }: ContainedServer, session: string): string {
  const own = bank!.entries().filter((entry) => entry.session === session && entry.capture.kind === 'turn');
  assert.ok(own.length > 0, `${session} has a turn`);
  const { capture } = own.reduce((a, b) => (b.capture.tokens.length > a.capture.tokens.length ? b : a));
  const hash = createHash('sha256').update(new Uint8Array(capture.tokens.buffer));
  for (const state of [capture.trunk, capture.head]) {
    if (state instanceof PagedState) for (const [name, bytes] of state.snapshot()) hash.update(name).update(bytes);
  }
  if (capture.hidden) hash.update(new Uint8Array(capture.hidden.slice().buffer));
  return hash.digest('hex');
}

/** What the newest checkpoint of a session comes back as. */
async function restoredHash({ sessions: { store } }: ContainedServer, session: string): Promise<string> {
  const entry = store!.entries(session).at(-1);
  assert.ok(entry);
  const outcome = await store!.restore(entry);
  assert.equal(outcome.kind, 'restored');
  const { capture } = outcome;
  const hash = createHash('sha256').update(new Uint8Array(capture.tokens.buffer));
  for (const state of [capture.trunk, capture.head]) {
    if (state instanceof PagedState) for (const [name, bytes] of state.snapshot()) hash.update(name).update(bytes);
    state?.release();
  }
  return hash.digest('hex');
}
