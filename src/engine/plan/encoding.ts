/** The headers of the two blocks that a backend reads: an encoded plan, and the call that it is replayed with. */

/** The header of an encoded plan: one int32 each, in this order. */
export const PLAN_HEADER = [
  'magic',
  'version',
  'ops',
  /** 0: activations are float32; 1: rounded to bfloat16. */
  'act',
  /** 1: MTPLX's own rounding points and table sigmoids. */
  'mtplx',
  /** Element type of keys, values and index keys in pages: 0 float32, 1 bfloat16. */
  'kvType',
  'pageTokens',
  /** Most rows of a call. */
  'rowCapacity',
  /** Most selected rows of a call. */
  'outCapacity',
  /** Size of the workspace in words. */
  'workspaceWords',
  /** Weight indices of the two sigmoid tables, uint16 [65536] by input bits; -1 where no op needs them. */
  'standaloneTable',
  'fusedTable',
  'weights',
] as const;
export const PLAN_HEADER_WORDS = 16;
export const PLAN_MAGIC = 0x504c4231; // "PLB1"
export const PLAN_VERSION = 1;

/** The header of a call block: one int32 each; see call-block.ts. */
export const CALL_HEADER = [
  /** R, M, and the number of sequences. */
  'rows',
  'outRows',
  'sequences',
  /** int32 indices from the start of the block: token id, position and sequence of every row; the selected rows. */
  'tokensAt',
  'positionsAt',
  'sequenceOfRowAt',
  'outRowsAt',
  /** int32 index of the sequence records: rowStart, rowCount, startPosition, pagesAt (float64 index) each. */
  'sequencesAt',
  /** float64 index of the slab addresses: input and output fixed slab of every sequence. */
  'slabsAt',
  /** Set to 1 by the submitter to stop before the next op. */
  'cancel',
  /** Written by the backend: ops completed. */
  'opsDone',
] as const;
export const CALL_HEADER_WORDS = 16;
export const SEQUENCE_RECORD_WORDS = 4;
