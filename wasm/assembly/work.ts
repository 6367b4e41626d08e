/**
 * How work is measured, to decide which ops are worth sharing between threads: in multiply-adds of a matrix product, of
 * which a thread does about twelve in a nanosecond. Only the order of magnitude matters.
 */

/** An element of a sum or product of rows. */
export const ELEMENT_WORK: i32 = 8;
/** An element with an exponential. */
export const EXP_WORK: i32 = 40;
/** An op with less work is done by one thread: it takes a few microseconds, and so does waking another thread. */
export const SHARED_WORK: i32 = 65536;
