/**
 * The running execution as one thread sees it: where the op, the workspace, the call block and the scratch memory are.
 *
 * Invariants: every thread has its own instance of the module and so its own copy of these globals, all set by `begin`
 * before the first op; nothing here allocates; addresses are byte addresses in the shared memory, below 4 GiB.
 */
import {
  CALL_OUT_ROWS,
  CALL_OUT_ROWS_AT,
  CALL_POSITIONS_AT,
  CALL_ROWS,
  CALL_SEQUENCE_OF_ROW_AT,
  CALL_SEQUENCES,
  CALL_SEQUENCES_AT,
  CALL_SLABS_AT,
  CALL_TOKENS_AT,
  PLAN_ACT,
  PLAN_FUSED_TABLE,
  PLAN_KV_TYPE,
  PLAN_MTPLX,
  PLAN_PAGE_TOKENS,
  PLAN_STANDALONE_TABLE,
  SEQUENCE_RECORD_WORDS,
} from './plan-ops';

let op: usize = 0;
let workspace: usize = 0;
let call: usize = 0;
let weights: usize = 0;

/** Private memory of this thread, `scratchBytes` long. Its first SCRATCH_BODY bytes belong to the kernels' tails. */
export let scratch: usize = 0;
export const SCRATCH_BODY: usize = 256;

/** The plan's activation type is bfloat16; MTPLX's rounding points and table sigmoids; pages hold bfloat16. */
export let isBf16: bool = false;
export let isMtplx: bool = false;
export let kvIsBf16: bool = false;
export let pageTokens: i32 = 0;
/** Addresses of the sigmoid tables, uint16 by input bits; 0 where the plan has none. */
export let standaloneTable: usize = 0;
export let fusedTable: usize = 0;

/** Rows through the trunk, selected rows through the head, sequences. */
export let trunkRows: i32 = 0;
export let headRows: i32 = 0;
export let sequences: i32 = 0;
/** The most tokens that a row of this call sees. */
export let mostVisible: i32 = 0;

/** `code` is the plan's header; `weightTable` holds an (address, dtype) pair of int32 for every weight. */
export function begin(code: usize, weightTable: usize, workspaceAt: usize, callAt: usize, scratchAt: usize): void {
  weights = weightTable;
  workspace = workspaceAt;
  call = callAt;
  scratch = scratchAt;
  isBf16 = load<i32>(code + (PLAN_ACT << 2)) == 1;
  isMtplx = load<i32>(code + (PLAN_MTPLX << 2)) == 1;
  kvIsBf16 = load<i32>(code + (PLAN_KV_TYPE << 2)) == 1;
  pageTokens = load<i32>(code + (PLAN_PAGE_TOKENS << 2));
  standaloneTable = tableAt(load<i32>(code + (PLAN_STANDALONE_TABLE << 2)));
  fusedTable = tableAt(load<i32>(code + (PLAN_FUSED_TABLE << 2)));
  trunkRows = callWord(CALL_ROWS);
  headRows = callWord(CALL_OUT_ROWS);
  sequences = callWord(CALL_SEQUENCES);
  mostVisible = 0;
  for (let s = 0; s < sequences; s++) {
    const visible = sequenceStart(s) + sequenceRows(s);
    if (visible > mostVisible) mostVisible = visible;
  }
}

/** Sets what scratch sizes depend on, without a call: they are asked for before one runs. */
export function measure(code: usize, visible: i32): void {
  pageTokens = load<i32>(code + (PLAN_PAGE_TOKENS << 2));
  mostVisible = visible;
}

function tableAt(index: i32): usize {
  return index < 0 ? 0 : weightAddress(index);
}

export function setOp(at: usize): void {
  op = at;
}

/** An integer field of the current op; `index` counts words from the op's start. */
@inline
export function field(index: i32): i32 {
  return load<i32>(op + (<usize>index << 2));
}

@inline
export function floatField(index: i32): f32 {
  return load<f32>(op + (<usize>index << 2));
}

/** Address of a buffer field. */
@inline
export function bufferField(index: i32): usize {
  return workspace + (<usize>field(index) << 2);
}

/** Address of a buffer by its word offset. */
@inline
export function bufferAt(offset: i32): usize {
  return workspace + (<usize>offset << 2);
}

@inline
export function weightField(index: i32): usize {
  return weightAddress(field(index));
}

@inline
export function weightAddress(index: i32): usize {
  return load<u32>(weights + (<usize>index << 3));
}

@inline
export function weightDtype(index: i32): i32 {
  return load<i32>(weights + (<usize>index << 3), 4);
}

/** Address of word `index` of the current op, for the segments of a linear op. */
@inline
export function opWord(index: i32): usize {
  return op + (<usize>index << 2);
}

/** Rows of an op with a `rows` field: 0 is the trunk's, 1 the head's, n >= 2 is n for each of the trunk's. */
@inline
export function rowsOf(which: i32): i32 {
  return which == 1 ? headRows : trunkRows * max(which, 1);
}

@inline
function callWord(index: i32): i32 {
  return load<i32>(call + (<usize>index << 2));
}

@inline
export function callAddress(): usize {
  return call;
}

@inline
export function tokenOf(row: i32): i32 {
  return callWord(callWord(CALL_TOKENS_AT) + row);
}

@inline
export function positionOf(row: i32): i32 {
  return callWord(callWord(CALL_POSITIONS_AT) + row);
}

@inline
export function sequenceOf(row: i32): i32 {
  return callWord(callWord(CALL_SEQUENCE_OF_ROW_AT) + row);
}

@inline
export function selectedRow(index: i32): i32 {
  return callWord(callWord(CALL_OUT_ROWS_AT) + index);
}

@inline
function record(sequence: i32): i32 {
  return callWord(CALL_SEQUENCES_AT) + SEQUENCE_RECORD_WORDS * sequence;
}

/** First row of a sequence. */
@inline
export function sequenceFirstRow(sequence: i32): i32 {
  return callWord(record(sequence));
}

@inline
export function sequenceRows(sequence: i32): i32 {
  return callWord(record(sequence) + 1);
}

/** Position of the sequence's first row. */
@inline
export function sequenceStart(sequence: i32): i32 {
  return callWord(record(sequence) + 2);
}

/** Address of the fixed slab that holds the state before (output = 0) or after (output = 1) this call. */
@inline
export function slabAddress(sequence: i32, output: i32): usize {
  const index = callWord(CALL_SLABS_AT) + 2 * sequence + output;
  return <usize>(<u32>load<f64>(call + (<usize>index << 3)));
}

/** Address of the page that holds the tokens page * pageTokens and on. */
@inline
export function pageAddress(sequence: i32, page: i32): usize {
  const index = callWord(record(sequence) + 3) + page;
  return <usize>(<u32>load<f64>(call + (<usize>index << 3)));
}
