/**
 * An end of the process at every step of a failure, and of the save after it: once anybody could have been told of the
 * failure, no restart brings the state back; before that, a restore is legal; what is healthy comes back always.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { BYSTANDER, CRASHING, type CrashCase, type CrashStory } from '../support/contained-child.js';
import { ContainedServer } from '../support/contained-server.js';

const CHILD = fileURLToPath(new URL('../support/contained-child.js', import.meta.url));

const A_T = { options: {}, more: { max_tokens: 6 }, target: { site: 'ar_step', nth: 1 } };
const MTP = { draftDepth: 2, gatePolicy: 'uniform', contextCopy: 'off' };
const M_T = {
  options: MTP,
  more: { max_tokens: 6, speculation: 'plain', frequency_penalty: 0.01 },
  target: { site: 'verify', nth: 0 },
};
const M_F = { ...M_T, more: { ...M_T.more, max_tokens: 1 }, target: { site: 'final_primary', nth: 0 } };

interface Row extends Omit<CrashCase, 'earlier'> {
  readonly id: string;
  readonly earlier?: 'pending';
  /** Whether the fence must be found. */
  readonly fenced: boolean;
}

const ROWS: readonly Row[] = [
  { id: 'K1 before the epoch is raised', ...A_T, point: 'before-F2', fenced: false },
  { id: 'K1 before the fence is written', ...A_T, point: 'before-F4', fenced: false },
  { id: 'K8 a fence without bytes', ...A_T, step: 'write staged json', fenced: false },
  { id: 'K8 a fence without its name', ...A_T, step: 'rename fence', fenced: false },
  { id: 'K8 a fence with its name', ...A_T, step: 'sync-folder fences', fenced: true },
  { id: 'K2 before memory is dropped', ...A_T, point: 'before-F5', fenced: true },
  { id: 'K2 before the disk is dropped', ...A_T, point: 'before-F6', fenced: true },
  { id: 'K3 before the first file goes', ...A_T, step: 'remove checkpoint', fenced: true },
  { id: 'K4 before the last file goes', ...A_T, step: 'remove segment', fenced: true },
  { id: 'K5 before the client is told', ...A_T, point: 'before-F9', fenced: true },
  { id: 'K6 a save in the making', ...A_T, earlier: 'pending', point: 'before-F9', fenced: true },
  { id: 'K9 the next save, half written', ...A_T, step: 'sync staged checkpoint', nextTurn: true, fenced: true },
  { id: 'K9 the next save, published', ...A_T, step: 'sync-folder checkpoints', nextTurn: true, fenced: true },
  { id: 'K2 M-T', ...M_T, point: 'before-F5', fenced: true },
  { id: 'K6 M-T', ...M_T, earlier: 'pending', point: 'before-F9', fenced: true },
  { id: 'K2 M-F', ...M_F, point: 'before-F5', fenced: true },
  { id: 'K5 M-F', ...M_F, point: 'before-F9', fenced: true },
];

/** Servers that keep nothing, by their options: what a process says in which nothing ever happened. */
const others = new Map<string, Promise<ContainedServer>>();
after(async () => {
  for (const other of others.values()) await (await other).close();
});

function memoryless(options: object): Promise<ContainedServer> {
  const key = JSON.stringify(options);
  const known = others.get(key) ?? ContainedServer.open({ ...options, sessions: 'off' });
  others.set(key, known);
  return known;
}

for (const { id, fenced, ...row } of ROWS) {
  test(id, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'plumbline-crash-'));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const story = await crash(folder, { earlier: 'persisted', ...row });
    const server = await ContainedServer.open(row.options, folder);
    t.after(() => server.close());
    const { containment, store } = server.sessions;
    assert.deepEqual(server.staging(), []);
    assert.deepEqual(server.traces(CRASHING), []);
    assert.equal(containment.fences.epochOf(CRASHING), fenced ? 1 : 0);
    const again = await server.ask(CRASHING, story.messages, row.more);
    const expected = await (await memoryless(row.options)).ask(undefined, story.messages, row.more);
    // A published save of the living epoch may be used, or its fence still says cold: both are right.
    const cold = fenced && row.nextTurn !== true;
    if (cold) assert.deepEqual([again.cached, again.session?.reason], [0, 'session_fenced']);
    assert.deepEqual([again.status, again.text], [200, expected.text]);
    assert.equal(again.session?.stored.ram, 'stored');
    const next = await server.ask(CRASHING, story.messages, row.more);
    assert.ok(next.cached > 0);
    const [entry] = store!.entries(BYSTANDER);
    assert.ok(entry, 'the neighbour is there');
    const outcome = await store!.restore(entry);
    assert.equal(outcome.kind, 'restored');
    outcome.capture.trunk.release();
    outcome.capture.head?.release();
  });
}

async function crash(folder: string, crashCase: CrashCase): Promise<CrashStory> {
  const child = spawn(process.execPath, [CHILD, folder, JSON.stringify(crashCase)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise<NodeJS.Signals | null>((resolve) => child.on('close', (_, signal) => resolve(signal)));
  const said = await text(child.stdout);
  assert.equal(await ended, 'SIGKILL', 'the process came to the point');
  return JSON.parse(said) as CrashStory;
}
