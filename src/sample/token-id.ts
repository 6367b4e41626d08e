/**
 * The type of an id that may be emitted, fed back, or banked: one that the family's law took from a row of logits, after
 * the row passed the validity law where the family follows it.
 *
 * Invariant: validity.ts is the only module that makes one (a test reads the sources and holds it). Everything that is
 * not yet proven, a draft of a device chain or a deferred draw, is a plain `number`.
 */

declare const checked: unique symbol;

/** A token id in [0, vocabSize) chosen from a row. */
export type TokenId = number & { readonly [checked]: true };
