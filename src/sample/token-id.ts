/**
 * The type of an id that may be emitted, fed back, or banked: one whose row of logits passed the validity law.
 *
 * Invariant: validity.ts is the only module that makes one (a test reads the sources and holds it). Everything that is
 * not yet proven, a draft of a device chain or a deferred draw, is a plain `number`.
 */

declare const checked: unique symbol;

/** A token id in [0, vocabSize) chosen from a valid row. */
export type TokenId = number & { readonly [checked]: true };
