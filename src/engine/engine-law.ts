/**
 * The version of everything that decides the bytes of a state and is not named elsewhere: the arithmetic of the op table,
 * the order of reductions, the meaning of state parts. A change of any of it changes this name, so that states which were
 * stored before are never gone on from.
 */
export const ENGINE_LAW = 'plumbline-engine-1';
