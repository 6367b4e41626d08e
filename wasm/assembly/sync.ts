/**
 * How the threads of one execution work together: a barrier, a shared counter of work units, and the word that starts the
 * next plan. All of it lies in fixed words at the start of the shared memory, each in its own cache line.
 *
 * Invariants: a waiting thread spins for a set number of looks, then sleeps, so that an idle backend uses no processor; the
 * last thread to arrive releases the barrier and takes the stop request of thread 0 into the new generation, so that all
 * threads take the same turn; when a thread has failed, the main thread wakes the others, who leave at their barrier.
 */

/** Counts submitted plans; workers sleep on it. */
export const CONTROL_EPOCH: i32 = 64;
/** Moves by 2 at every barrier; bit 0 says that the plan stops here. */
const GENERATION: usize = 128;
const ARRIVED: usize = 192;
/** Next unit of the running op. */
const UNIT: usize = 256;
/** 1 once a thread has failed: nothing can be run any more. */
export const CONTROL_FAILED: i32 = 320;
const WANT_STOP: usize = 324;
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

export const GO_ON: i32 = 0;
export const STOP: i32 = 1;
export const FAILED: i32 = 2;

/** True as soon as the word differs from `value`; false after `spins` looks. */
export function spinWhile(address: usize, value: i32, spins: i32): bool {
  for (let i = 0; i < spins; i++) {
    if (atomic.load<i32>(address) != value) return true;
  }
  return false;
}

/** Waits until the word differs from `value`, or a thread has failed. */
export function awaitChange(address: usize, value: i32): void {
  if (spinWhile(address, value, load<i32>(CONTROL_SPINS))) return;
  while (atomic.load<i32>(address) == value && atomic.load<i32>(CONTROL_FAILED) == 0) {
    atomic.wait<i32>(address, value, -1);
  }
}

/** Threads of this execution. */
@inline
export function threads(): i32 {
  return load<i32>(CONTROL_THREADS);
}

/** Asks all threads to leave at the next barrier. Only thread 0 may, and must then go to a barrier. */
export function wantStop(): void {
  atomic.store<i32>(WANT_STOP, 1);
}

/** Nobody goes on before all threads are here. */
export function barrier(): i32 {
  const generation = atomic.load<i32>(GENERATION);
  if (atomic.add<i32>(ARRIVED, 1) == threads() - 1) {
    atomic.store<i32>(ARRIVED, 0);
    atomic.store<i32>(UNIT, 0);
    const stop = atomic.xchg<i32>(WANT_STOP, 0);
    atomic.store<i32>(GENERATION, ((generation & ~1) + 2) | stop);
    atomic.notify(GENERATION, -1);
  } else {
    awaitChange(GENERATION, generation);
  }
  if (atomic.load<i32>(CONTROL_FAILED) != 0) return FAILED;
  return atomic.load<i32>(GENERATION) & 1;
}

/** Marks the backend as failed and wakes whoever waits. */
export function fail(): void {
  atomic.store<i32>(CONTROL_FAILED, 1);
  atomic.add<i32>(GENERATION, 2);
  atomic.notify(GENERATION, -1);
  atomic.notify(CONTROL_EPOCH, -1);
}

// An op that one thread does alone counts its units here.
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
