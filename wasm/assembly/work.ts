/**
 * How work is measured, to decide which ops are worth sharing between threads: in multiply-adds of a matrix product, of
 * which a thread does about twelve in a nanosecond. Only the order of magnitude matters.
 */

/** An element of a sum or product of rows. */
export const ELEMENT_WORK: i32 = 8;
/** An element with an exponential. */
export const EXP_WORK: i32 = 40;
/** An op with less work is done by one thread: it takes a few microseconds, and sharing it takes one. */
export const SHARED_WORK: i32 = 65536;
/** How many times that much work an op must be for threads that sleep to be woken: waking takes up to 100 microseconds. */
export const WAKING_WORK: i32 = 16;
