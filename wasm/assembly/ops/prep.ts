/**
 * Ops that prepare attention: queries and keys normed and turned, keys and values stored in the pages, and the indexer's
 * keys and block keys. A unit of work is a row; a row writes only its own places in its sequence's pages.
 */
import {
  bufferField,
  field,
  floatField,
  pageTokens,
  positionOf,
  scratch,
  SCRATCH_BODY,
  sequenceOf,
  trunkRows,
  weightField,
} from '../context';
import { normRow, ropeRow } from '../norm-rope';
import { kvBytes, loadKv, pageElement, storeKv } from '../pages';
import {
  ATTENTION_PREP_DIM,
  ATTENTION_PREP_EPS,
  ATTENTION_PREP_HEADS,
  ATTENTION_PREP_K,
  ATTENTION_PREP_K_GAIN,
  ATTENTION_PREP_KEYS,
  ATTENTION_PREP_KV_HEADS,
  ATTENTION_PREP_OUT_Q,
  ATTENTION_PREP_Q,
  ATTENTION_PREP_Q_GAIN,
  ATTENTION_PREP_ROPE,
  ATTENTION_PREP_ROTARY,
  ATTENTION_PREP_V,
  ATTENTION_PREP_VALUES,
  INDEX_BLOCKS_BLOCK,
  INDEX_BLOCKS_BLOCKS,
  INDEX_BLOCKS_DIM,
  INDEX_BLOCKS_EPS,
  INDEX_BLOCKS_K_GAIN,
  INDEX_BLOCKS_RAW,
  INDEX_BLOCKS_ROPE,
  INDEX_BLOCKS_ROTARY,
  INDEX_PREP_DIM,
  INDEX_PREP_EPS,
  INDEX_PREP_HEADS,
  INDEX_PREP_OUT_Q,
  INDEX_PREP_Q_GAIN,
  INDEX_PREP_QK,
  INDEX_PREP_RAW,
  INDEX_PREP_ROPE,
  INDEX_PREP_ROTARY,
} from '../plan-ops';
import { act4, load4, store4 } from '../rounding';
import { nextUnit } from '../sync';
import { ELEMENT_WORK } from '../work';

/** A head. */
export function attentionPrepScratch(): usize {
  return SCRATCH_BODY + (<usize>field(ATTENTION_PREP_DIM) << 2);
}

/** A sum and a token's key. */
export function indexBlocksScratch(): usize {
  return SCRATCH_BODY + (<usize>(2 * field(INDEX_BLOCKS_DIM)) << 2);
}

export function attentionPrepWork(): f64 {
  const heads = field(ATTENTION_PREP_HEADS) + 2 * field(ATTENTION_PREP_KV_HEADS);
  return <f64>trunkRows * <f64>heads * <f64>field(ATTENTION_PREP_DIM) * ELEMENT_WORK;
}

export function indexPrepWork(): f64 {
  return <f64>trunkRows * <f64>(field(INDEX_PREP_HEADS) + 1) * <f64>field(INDEX_PREP_DIM) * ELEMENT_WORK;
}

export function indexBlocksWork(): f64 {
  return <f64>trunkRows * <f64>field(INDEX_BLOCKS_DIM) * ELEMENT_WORK;
}

@inline
function anglesAt(table: usize, position: i32, rotary: i32): usize {
  return table + (<usize>position * <usize>rotary << 2);
}

export function attentionPrep(): void {
  const heads = field(ATTENTION_PREP_HEADS);
  const dim = field(ATTENTION_PREP_DIM);
  const rotary = field(ATTENTION_PREP_ROTARY);
  const eps = floatField(ATTENTION_PREP_EPS);
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    const angles = anglesAt(weightField(ATTENTION_PREP_ROPE), positionOf(row), rotary);
    for (let h = row * heads; h < (row + 1) * heads; h++) {
      const q = bufferField(ATTENTION_PREP_Q) + (<usize>h * <usize>dim << 3); // a head's gate values stand between
      const out = bufferField(ATTENTION_PREP_OUT_Q) + (<usize>h * <usize>dim << 2);
      normRow(q, dim, weightField(ATTENTION_PREP_Q_GAIN), eps, out);
      ropeRow(out, rotary, angles);
    }
    storeRow(row, dim, rotary, eps, angles);
  }
}

function storeRow(row: i32, dim: i32, rotary: i32, eps: f32, angles: usize): void {
  const kvHeads = field(ATTENTION_PREP_KV_HEADS);
  const position = positionOf(row);
  const sequence = sequenceOf(row);
  const key = scratch + SCRATCH_BODY;
  for (let h = 0; h < kvHeads; h++) {
    const from = <usize>(row * kvHeads + h) * <usize>dim << 2;
    const element = (h * pageTokens + (position % pageTokens)) * dim;
    normRow(bufferField(ATTENTION_PREP_K) + from, dim, weightField(ATTENTION_PREP_K_GAIN), eps, key);
    ropeRow(key, rotary, angles);
    storeKv(pageElement(sequence, position, field(ATTENTION_PREP_KEYS), element), key, dim);
    storeKv(pageElement(sequence, position, field(ATTENTION_PREP_VALUES), element), bufferField(ATTENTION_PREP_V) + from, dim);
  }
}

export function indexPrep(): void {
  const heads = field(INDEX_PREP_HEADS);
  const dim = field(INDEX_PREP_DIM);
  const rotary = field(INDEX_PREP_ROTARY);
  const headBytes = <usize>dim << 2;
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    const position = positionOf(row);
    const angles = anglesAt(weightField(INDEX_PREP_ROPE), position, rotary);
    const qk = bufferField(INDEX_PREP_QK) + <usize>(row * (heads + 1)) * headBytes;
    for (let h = 0; h < heads; h++) {
      const out = bufferField(INDEX_PREP_OUT_Q) + <usize>(row * heads + h) * headBytes;
      normRow(qk + <usize>h * headBytes, dim, weightField(INDEX_PREP_Q_GAIN), floatField(INDEX_PREP_EPS), out);
      ropeRow(out, rotary, angles);
    }
    const to = pageElement(sequenceOf(row), position, field(INDEX_PREP_RAW), (position % pageTokens) * dim);
    storeKv(to, qk + <usize>heads * headBytes, dim);
  }
}

export function indexBlocks(): void {
  const block = field(INDEX_BLOCKS_BLOCK);
  for (let row = nextUnit(); row < trunkRows; row = nextUnit()) {
    if ((positionOf(row) + 1) % block == 0) blockKey(sequenceOf(row), positionOf(row) - block + 1, block);
  }
}

/** The key of the block of tokens `first` and on, which lie in one page. */
function blockKey(sequence: i32, first: i32, block: i32): void {
  const dim = field(INDEX_BLOCKS_DIM);
  const rotary = field(INDEX_BLOCKS_ROTARY);
  const key = scratch + SCRATCH_BODY;
  const raw = key + (<usize>dim << 2);
  const place = first % pageTokens;
  const from = pageElement(sequence, first, field(INDEX_BLOCKS_RAW), place * dim);
  memory.fill(key, 0, <usize>dim << 2);
  for (let t = 0; t < block; t++) {
    loadKv(from + kvBytes(t * dim), dim, raw);
    for (let i = 0; i < dim; i += 4) {
      const at = <usize>i << 2;
      store4(key + at, f32x4.add(load4(key + at, dim - i), load4(raw + at, dim - i)), dim - i);
    }
  }
  for (let i = 0; i < dim; i += 4) {
    const at = key + (<usize>i << 2);
    store4(at, act4(f32x4.div(load4(at, dim - i), f32x4.splat(<f32>block))), dim - i);
  }
  normRow(key, dim, weightField(INDEX_BLOCKS_K_GAIN), floatField(INDEX_BLOCKS_EPS), key);
  ropeRow(key, rotary, anglesAt(weightField(INDEX_BLOCKS_ROPE), first, rotary));
  storeKv(pageElement(sequence, first, field(INDEX_BLOCKS_BLOCKS), (place / block) * dim), key, dim);
}
