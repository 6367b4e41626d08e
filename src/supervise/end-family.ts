/**
 * Ends all processes of a family: SIGTERM, a time of grace, then SIGKILL until nothing is left.
 *
 * Invariants: it returns when two looks in a row have found nothing, so that a process made during the first is not
 * missed; it always returns, and names what could not be ended (a process of another user, or one that hangs in the
 * kernel).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Family } from './family.js';

export interface EndedFamily {
  /** Most processes that had to be killed at one time. */
  readonly killed: number;
  /** Ids of what runs still. */
  readonly stillRunning: readonly number[];
}

/** Between two looks while something is being ended. */
const LOOK_MS = 25;
const KILL_PATIENCE_MS = 10_000;

/** @param hurry asked at every look of the grace, which ends when it says so. @param patienceMs how long SIGKILL is sent again before what is left is given up */
export async function endFamily(
  family: Family,
  graceMs: number,
  hurry = (): boolean => false,
  patienceMs = KILL_PATIENCE_MS,
): Promise<EndedFamily> {
  if (await isGone(family)) return { killed: 0, stillRunning: [] };
  family.signal('SIGTERM');
  // A stopped process acts on no signal but SIGKILL before it goes on.
  family.signal('SIGCONT');
  const graceEnds = performance.now() + graceMs;
  while (performance.now() < graceEnds && !hurry()) {
    await sleep(Math.min(LOOK_MS, Math.max(0, graceEnds - performance.now())));
    if (await isGone(family)) return { killed: 0, stillRunning: [] };
  }
  let killed = 0;
  for (const patienceEnds = performance.now() + patienceMs; performance.now() < patienceEnds;) {
    killed = Math.max(killed, family.look());
    family.signal('SIGKILL');
    await sleep(LOOK_MS);
    if (await isGone(family)) return { killed, stillRunning: [] };
  }
  return { killed, stillRunning: family.pids };
}

async function isGone(family: Family): Promise<boolean> {
  if (family.look() > 0) return false;
  await sleep(1);
  return family.look() === 0;
}
