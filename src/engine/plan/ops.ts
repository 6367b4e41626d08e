/**
 * The op table: the narrow waist between families (which describe a forward as a list of these ops) and backends (which
 * run them). Each op has a code, an ordered list of fields, and its arithmetic in words; a backend that follows the words
 * gives the same bits as every other backend of the same float law.
 *
 * Notation. fl(x): rounded to float32. A(x): rounded to the plan's activation type (bfloat16, or nothing for float32).
 * dot: the lane law of numerics/lanes.ts. fma: one fused multiply-add (in a `mul-add` backend: fl(fl(a*b)+c)). Every
 * other operation in a formula is one float32 operation, rounded, in the written order, never contracted. exp: expF32.
 * sigma(x): ordinary sigmoid, A(sigmoidF32(x)); in a plan with `mtplx` = 1 it is table_standalone(x). silu(x): A(x *
 * sigmoidF32(x)); with `mtplx` = 1, A(x * table_standalone(x)). gate(x): the phase-dependent sigmoid: with A = bfloat16
 * the table of the op's lowering; with float32 the formula of numerics/gate-tables.ts gateF32 (float64 exponential).
 * Constants such as 1e-6 and keyDim^-0.5 are the float32 nearest to them. max(0, x) is x where x > 0, else +0. Sign and
 * payload of a NaN are no part of a result.
 * R rows run through the trunk, M selected rows through the head; `rows` = 0 means R, 1 means M, and n >= 2 means R * n
 * rows: every row of the call holds n of them, one after the other.
 * Buffers are float32 [rows, width], row-major, at a word offset in the workspace; values are A-rounded where written so.
 */

export type FieldKind =
  /** Word (4-byte) offset of a buffer in the workspace. */
  | 'buffer'
  /** As `buffer`, or -1 for none. */
  | 'buffer?'
  /** Index into the plan's weight table. */
  | 'weight'
  /** As `weight`, or -1 for none. */
  | 'weight?'
  /** A plain integer. */
  | 'int'
  /** Bits of a float32. */
  | 'float'
  /** Byte offset in the fixed slab of a state. */
  | 'fixed'
  /** Byte offset in a page of a state. */
  | 'page'
  /** 0: standalone, 1: fused. */
  | 'lowering';

export interface OpField<Name extends string = string> {
  readonly name: Name;
  readonly kind: FieldKind;
}

export interface OpSpec {
  readonly code: number;
  /** Fields in the order of the encoding, after the op's code and its length in words (these two included). */
  readonly fields: readonly OpField[];
  /** Repeated at the end, preceded by nothing: the count is a field of its own, named `segments`. */
  readonly repeated?: readonly OpField[];
  readonly doc: string;
}

/** The field names of a description such as `rows in:buffer eps:float`, as a type. */
type NamesIn<Text extends string> = Text extends `${infer Head} ${infer Rest}`
  ? NamesIn<Head> | NamesIn<Rest>
  : NameIn<Text>;
type NameIn<Item extends string> = Item extends `${infer Name}:${string}` ? Name : Item;

const fields = <const Text extends string>(text: Text): OpField<NamesIn<Text>>[] =>
  text.split(' ').map((item) => {
    const [name = '', kind = 'int'] = item.split(':');
    return { name: name as NamesIn<Text>, kind: kind as FieldKind };
  });

export const OPS = {
  embed: {
    code: 1,
    fields: fields('out:buffer width copies weight:weight'),
    doc: 'out[row] = A(weight[token(row)]) written `copies` times one after the other (out width = width * copies).',
  },
  norm: {
    code: 2,
    fields: fields('rows in:buffer out:buffer width group gain:weight eps:float'),
    doc:
      'RMS norm over groups of `group` elements; gain is float32 [width]. scale = 1 / sqrt(dot(x, x) / group + eps); ' +
      'out = A(x * scale * gain), left to right. With mtplx = 1: out = A(A(x * scale) * gain). out may be in.',
  },
  linear: {
    code: 3,
    fields: fields('rows in:buffer inWidth segments'),
    repeated: fields('weight:weight bias:weight? out:buffer outWidth outColumn outs'),
    doc:
      'For each segment: out[row, outColumn + o] = A(dot(weight[o], in[row])), o < outs; weight [outs, inWidth] of any ' +
      'float dtype, widened exactly; with a bias (float32 [outs]): A(dot + bias). outWidth is the row stride of out.',
  },
  hcAct: {
    code: 4,
    fields: fields('rows down:buffer rank inject:buffer? streams lowering:lowering'),
    doc:
      'In place. down[row, 0..rank) = silu(A(v / streams)). If inject >= 0: inject[row, 0..streams) = ' +
      'A(2 * gate(A(v / streams))).',
  },
  hcMix: {
    code: 5,
    fields: fields('rows mix:buffer normed:buffer out:buffer hidden streams'),
    doc:
      'out[i] = A(sum / streams), sum = the products A(sigma(mix[c, i]) * normed[c, i]) added from 0 in ascending c; mix ' +
      'and normed are [streams * hidden], stream-major.',
  },
  hcWrite: {
    code: 6,
    fields: fields('residual:buffer inject:buffer? y:buffer hidden streams'),
    doc: 'In place, R rows: residual[c, i] = A(residual[c, i] + A(inject[c] * y[i])); without inject its weights are 1.',
  },
  conv: {
    code: 7,
    fields: fields('in:buffer out:buffer channels kernel dilation weight:weight state:fixed'),
    doc:
      'Causal depthwise convolution over time, then silu; weight float32 [channels, kernel], the last tap is the current ' +
      'token. sum = fma over taps j ascending from 0 of weight[c, j] * x[t - (kernel - 1 - j) * dilation, c]; out = ' +
      'silu(A(sum)). Rows before the call come from the state of the input slab: float32 [(kernel - 1) * dilation, ' +
      'channels], oldest first; the output slab receives the last (kernel - 1) * dilation rows of old ++ new. in != out.',
  },
  gatedDelta: {
    code: 8,
    fields: fields(
      'conv:buffer a:buffer b:buffer out:buffer keyHeads valueHeads keyDim valueDim negExpA:weight dtBias:weight state:fixed',
    ),
    doc:
      'The gated delta rule, token by token. conv row: queries [keyHeads * keyDim], keys, values [valueHeads * valueDim]; ' +
      'value head h uses key head floor(h / (valueHeads / keyHeads)). n(x) = x * (1 / sqrt(dot(x, x) + 1e-6)); q = ' +
      'n(q) * keyDim^-0.5, k = n(k), float32; with mtplx = 1: q = A(A(n(q)) * A(keyDim^-0.5)), k = A(n(k)). beta = sigma(b). ' +
      'g = negExpA[h] * fl(softplusF64(a + dtBias[h])), the sum a + dtBias in float32 (mtplx: A of it); decay = ' +
      'fl(expF64(g)). For every value column j: S[i, j] = decay * S[i, j]; kv = fma over i ascending from 0 of k[i] * ' +
      'S[i, j]; delta = beta * (v[j] - kv); S[i, j] = fma(k[i], delta, S[i, j]); o = fma over i ascending from 0 of ' +
      'q[i] * S[i, j]; out[h, j] = A(o). S float32 [valueHeads, keyDim, valueDim], read from the input slab, written to ' +
      'the output slab.',
  },
  gatedNorm: {
    code: 9,
    fields: fields('in:buffer z:buffer out:buffer heads dim weight:weight eps:float silu'),
    doc:
      'Per head of dim elements: n = A(x * scale), scale as in norm; w = A(n * weight), weight float32 [dim] shared by the ' +
      'heads; out = A(w * f(z)) with f = sigmoidF32 (silu = 0) or x * sigmoidF32(x) (silu = 1), in float32 unrounded.',
  },
  attentionPrep: {
    code: 10,
    fields: fields(
      'q:buffer k:buffer v:buffer outQ:buffer heads kvHeads dim rotary qGain:weight kGain:weight eps:float rope:weight keys:page values:page',
    ),
    doc:
      'q rows are packed per head: dim query values, dim gate values (the gates stay there). Query and key heads: norm ' +
      '(as op norm, gain float32 [dim]), then rope on the first `rotary` elements; queries to outQ [heads * dim]; keys and ' +
      'values (as they are) to the page of the row, layout [kvHeads, pageTokens, dim] at `keys` and `values`, element type ' +
      'the plan`s kv type. rope table: float32 [positions, rotary]: rotary / 2 cosines, then sines (A-rounded by the binder ' +
      'unless mtplx). lo = A(A(x * cos) - A(y * sin)), hi = A(A(y * cos) + A(x * sin)) for x = head[i], y = head[i + ' +
      'rotary / 2]; with mtplx = 1 the inner A are absent.',
  },
  indexPrep: {
    code: 11,
    fields: fields('qk:buffer outQ:buffer heads dim rotary qGain:weight eps:float rope:weight raw:page'),
    doc:
      'qk row: heads * dim query values, then dim key values. Each query head: norm, rope, as in attentionPrep, to outQ ' +
      '[heads * dim]; the raw key to the page of the row, layout [pageTokens, dim] at `raw`, kv type.',
  },
  indexBlocks: {
    code: 12,
    fields: fields('dim block rotary kGain:weight eps:float rope:weight raw:page blocks:page'),
    doc:
      'For every row whose position p ends a block ((p + 1) % block = 0): mean = A(sum / block), the raw keys of the ' +
      'block`s tokens added from 0 in ascending order; norm; rope at position p - block + 1; to the page, layout ' +
      '[pageTokens / block, dim] at `blocks`, kv type. pageTokens is a multiple of block.',
  },
  indexSelect: {
    code: 13,
    fields: fields('q:buffer out:buffer heads dim block budgetBlocks blocks:page'),
    doc:
      'out: int32 [rows, 1 + budgetBlocks]. nb = floor((position + 1) / block) complete blocks. nb <= budgetBlocks: ' +
      'out[0] = -1 (every visible token), the rest of the row stays as it was. Else score[b] = sum over heads ascending ' +
      'from 0 of max(0, dot(q[head], blockKey[b])), NaN counting as 0; out[0] = budgetBlocks, then the budgetBlocks blocks ' +
      'of highest score (equal scores: lower block first) in ascending block order.',
  },
  attention: {
    code: 14,
    fields: fields(
      'q:buffer packed:buffer select:buffer? out:buffer heads kvHeads dim block budgetBlocks lowering:lowering scale:float keys:page values:page',
    ),
    doc:
      'Per row and query head (kv head floor(h / (heads / kvHeads))). Visible tokens, ascending: 0 … position, or, where ' +
      'select >= 0 and its first entry is not -1, the tokens of the selected blocks and of the incomplete last block (from ' +
      'floor((position + 1) / block) * block). s = A(A(dot(q, key)) * scale); m = the greatest s by `>` from -inf; e = ' +
      'exp(s - m); total = the e summed by the lane law (lane = rank in the visible list mod 16); p = A(e / total); o[i] = ' +
      'fma over visible tokens ascending from 0 of p * value[i]; out = A(A(o) * gate(g)), g the head`s gate in packed ' +
      '[heads, 2 * dim].',
  },
  router: {
    code: 15,
    fields: fields('logits:buffer experts topK normalise outIndex:buffer outWeight:buffer'),
    doc:
      'm = greatest logit by `>` from -inf; p = exp(l - m) / total, total by the lane law over the experts in index order. ' +
      'The topK experts of highest logit (equal: lower index; NaN ranks as -inf) go to outIndex int32 [rows, topK] in ' +
      'ascending index order; outWeight = A(p / sum of the chosen p, added from 0 in that order) if normalise, else A(p).',
  },
  moeGroup: {
    code: 16,
    fields: fields('index:buffer experts topK outOffsets:buffer outList:buffer'),
    doc:
      'Counting sort of the pairs (row, slot) by expert: outOffsets int32 [experts + 1]; outList int32 [R * topK] of ' +
      'row * topK + slot, by expert, within an expert by row.',
  },
  moeUp: {
    code: 17,
    fields: fields('in:buffer hidden offsets:buffer list:buffer gate:weight up:weight experts topK width out:buffer'),
    doc:
      'For every pair: out[row * topK + slot, i] = A(silu(A(dot(gate_e[i], in[row]))) * A(dot(up_e[i], in[row]))), i < ' +
      'width. Expert e has weight indices gate + e and up + e, each [width, hidden].',
  },
  moeDown: {
    code: 18,
    fields: fields('in:buffer width offsets:buffer list:buffer down:weight experts topK hidden out:buffer'),
    doc: 'For every pair: out[pair, o] = A(dot(down_e[o], in[pair])), o < hidden; expert e has weight index down + e.',
  },
  moeCombine: {
    code: 19,
    fields: fields(
      'down:buffer weights:buffer shared:buffer sharedGate:buffer hidden topK out:buffer lowering:lowering',
    ),
    doc:
      'y = fma over slots ascending from 0 of weights[slot] * down[row * topK + slot]; s = sigma(sharedGate[row]) (with ' +
      'lowering = 1: gate); out = A(A(y) + A(s * shared)).',
  },
  swiglu: {
    code: 20,
    fields: fields('gate:buffer up:buffer out:buffer width'),
    doc: 'R rows: out = A(silu(gate) * up). out may be gate.',
  },
  add: {
    code: 21,
    fields: fields('rows a:buffer b:buffer out:buffer width'),
    doc: 'out = A(a + b). out may be a or b.',
  },
  pleGate: {
    code: 22,
    fields: fields('key:buffer query:buffer value:buffer out:buffer hidden streams rootHidden:float lowering:lowering'),
    doc:
      'Per row and stream c: sum of A(key[c, i] * query[c, i]) by the lane law over i, then A; a = A(sum / rootHidden); t = ' +
      'A(sqrt(max(|a|, fl(1e-6)))), NaN kept; s = sign(a) * t with sign(0) = 0; u[c, i] = A(sigma(s) * value[i]) (with ' +
      'lowering = 1: gate(s)).',
  },
  pleAdd: {
    code: 23,
    fields: fields('residual:buffer u:buffer conv:buffer width'),
    doc: 'In place, R rows: residual = A(residual + A(u + conv)).',
  },
  gather: {
    code: 24,
    fields: fields('in:buffer out:buffer width'),
    doc: 'out[m] = in[outRows[m]] for the M selected rows.',
  },
  tap: {
    code: 25,
    fields: fields('in:buffer out:buffer width'),
    doc: 'R rows copied for inspection; only plans that were asked for taps hold it.',
  },
  embedGreedy: {
    code: 45,
    fields: fields('logits:buffer vocab outIds:buffer out:buffer width copies weight:weight'),
    doc:
      'R rows. id = the lowest index of the greatest of logits [vocab] by `>` from -inf, 0 where none is greater; a NaN is ' +
      'greater than nothing. outIds: int32, one a row. out[row] = A(weight[id]) written `copies` times, as in embed; weight ' +
      'has at least `vocab` rows. So a plan can go on from the row that the plan before it left in the workspace.',
  },
} as const satisfies Record<string, OpSpec>;

export type OpName = keyof typeof OPS;

/** The decoded fields of an op by name; floats as numbers. */
export type OpFields<Name extends OpName> = Readonly<Record<(typeof OPS)[Name]['fields'][number]['name'], number>>;
/** The decoded fields of one segment of a linear op. */
export type LinearSegmentFields = Readonly<Record<(typeof OPS)['linear']['repeated'][number]['name'], number>>;

/** Dtypes of weight table entries. */
export const WEIGHT_DTYPES = ['F32', 'BF16', 'F16'] as const;
export type WeightDtype = (typeof WEIGHT_DTYPES)[number];

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
