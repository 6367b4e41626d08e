/**
 * How the threads of one backend work together: thread 0 runs the plan; the others help with an op while it is open, if
 * they are awake in time. All of it lies in fixed words at the start of the shared memory, in cache lines of their own.
 *
 * Invariants: an op is done when all its units are taken and no helper is inside; a helper that comes late finds the op
 * closed and touches nothing, so thread 0 never waits for one that the system has not scheduled; a waiting thread spins
 * for a set number of looks, then sleeps, so that an idle backend uses no processor; once a thread has failed, every wait
 * ends. Helpers enter by counting themselves and then looking whether the op is still open; thread 0 closes it and then
 * looks at the count: sequentially consistent atomics let neither miss the other.
 */

/** Counts submitted plans; thread 0 sleeps on it. */
export const CONTROL_EPOCH: i32 = 64;
/** Odd while an op is open; helpers sleep on it. */
export const CONTROL_TURN: i32 = 128;
/** Helpers inside the open op. */
const INSIDE: usize = 192;
/** Next unit of the open op. */
const UNIT: usize = 256;
/** 1 once a thread has failed: nothing can be run any more. */
export const CONTROL_FAILED: i32 = 320;
/** Threads that sleep, or are about to, on any of the words. */
const SLEEPERS: usize = 324;
/** Address of the open op. */
const OPEN_OP: usize = 328;
/** Set by JavaScript before the epoch moves: one int32 each. */
export const CONTROL_QUIT: i32 = 384;
export const CONTROL_THREADS: i32 = 388;
export const CONTROL_SPINS: i32 = 392;
export const CONTROL_CODE: i32 = 396;
export const CONTROL_WEIGHTS: i32 = 400;
export const CONTROL_WORKSPACE: i32 = 404;
export const CONTROL_CALL: i32 = 408;
export const CONTROL_SCRATCH: i32 = 412;
export const CONTROL_SCRATCH_STRIDE: i32 = 416;
/** Least work, in units of work.ts, of an op that is shared between threads. */
export const CONTROL_SHARED_WORK: i32 = 420;
/** First byte that is not reserved. */
export const CONTROL_END: i32 = 512;

/** True as soon as the word differs from `value`; false after `looks` looks. */
export function spinWhile(address: usize, value: i32, looks: i32): bool {
  for (let i = 0; i < looks; i++) {
    if (atomic.load<i32>(address) != value) return true;
  }
  return false;
}

/** Whether all threads are to end. */
@inline
export function ending(): bool {
  return (atomic.load<i32>(CONTROL_FAILED) | atomic.load<i32>(CONTROL_QUIT)) != 0;
}

/** Waits until the word differs from `value`, or all threads are to end. */
export function awaitChange(address: usize, value: i32): void {
  if (spinWhile(address, value, load<i32>(CONTROL_SPINS))) return;
  while (atomic.load<i32>(address) == value && !ending()) {
    atomic.add<i32>(SLEEPERS, 1);
    atomic.wait<i32>(address, value, -1);
    atomic.sub<i32>(SLEEPERS, 1);
  }
}

/** Wakes whoever sleeps on the word, which has just changed. */
@inline
function wake(address: usize): void {
  if (atomic.load<i32>(SLEEPERS) != 0) atomic.notify(address, -1);
}

/** Whether there are helpers at all. */
@inline
export function hasHelpers(): bool {
  return load<i32>(CONTROL_THREADS) > 1;
}

/** Thread 0: lets helpers in, and wakes those that sleep if the op is worth it. */
export function openOp(op: usize, worthWaking: bool): void {
  atomic.store<i32>(UNIT, 0);
  store<u32>(OPEN_OP, <u32>op);
  atomic.add<i32>(CONTROL_TURN, 1);
  if (worthWaking) wake(CONTROL_TURN);
}

/** Thread 0, when no unit is left: lets nobody in any more and waits for those inside. False when a thread has failed. */
export function closeOp(): bool {
  atomic.add<i32>(CONTROL_TURN, 1);
  for (let inside = atomic.load<i32>(INSIDE); inside != 0; inside = atomic.load<i32>(INSIDE)) {
    awaitChange(INSIDE, inside);
    if (atomic.load<i32>(CONTROL_FAILED) != 0) return false;
  }
  return true;
}

/** The turn in which this helper has last been inside. */
let lastTurn: i32 = 0;

/** A helper: waits for an op, enters it and returns its address; 0 when it was closed meanwhile. */
export function enterOp(): usize {
  const turn = atomic.load<i32>(CONTROL_TURN);
  if ((turn & 1) == 0 || turn == lastTurn) {
    awaitChange(CONTROL_TURN, turn);
    return 0;
  }
  lastTurn = turn;
  atomic.add<i32>(INSIDE, 1);
  if (atomic.load<i32>(CONTROL_TURN) == turn) return load<u32>(OPEN_OP);
  leaveOp();
  return 0;
}

export function leaveOp(): void {
  atomic.sub<i32>(INSIDE, 1);
  wake(INSIDE);
}

/** Ends every wait, now and for good; the turn keeps its parity. */
export function endAll(): void {
  atomic.add<i32>(CONTROL_TURN, 2);
  atomic.add<i32>(CONTROL_EPOCH, 1);
  atomic.notify(CONTROL_TURN, -1);
  atomic.notify(CONTROL_EPOCH, -1);
  atomic.notify(INSIDE, -1);
}

// An op that thread 0 does alone counts its units here.
let alone: bool = true;
let nextAlone: i32 = 0;

/** Before an op: whether this thread does it alone. */
export function beginUnits(byOneThread: bool): void {
  alone = byOneThread;
  nextAlone = 0;
}

/** The next unit of work of the op that no thread has taken, from 0 up. */
export function nextUnit(): i32 {
  return alone ? nextAlone++ : atomic.add<i32>(UNIT, 1);
}
