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
import { fields, type OpSpec } from './op-spec.js';
export type { FieldKind, OpField, OpSpec } from './op-spec.js';
export * from './encoding.js';

export const OPS = {
  embed: {
    code: 1,
    fields: fields('out:buffer width copies weight:weight'),
    doc: 'out[row] = A(weight[token(row)]) written `copies` times one after the other (out width = width * copies).',
  },
  norm: {
    code: 2,
    fields: fields('rows in:buffer out:buffer width group gain:weight? eps:float'),
    doc:
      'RMS norm over groups of `group` elements; gain is float32 [width]. scale = 1 / sqrt(dot(x, x) / group + eps); ' +
      'out = A(x * scale * gain), left to right. With mtplx = 1: out = A(A(x * scale) * gain). Without a gain: out = ' +
      'A(x * scale). out may be in.',
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
    fields: fields(
      'q:buffer out:buffer heads dim block budgetBlocks blocks:page weights:buffer? weightScale:float dotScale:float',
    ),
    doc:
      'out: int32 [rows, 1 + budgetBlocks]. nb = floor((position + 1) / block) complete blocks. nb <= budgetBlocks: ' +
      'out[0] = -1 (every visible token), the rest of the row stays as it was. Else score[b] = sum over heads ascending ' +
      'from 0 of max(0, dot(q[head], blockKey[b])), NaN counting as 0; with weights [rows, heads]: fma over heads ascending ' +
      'from 0 of fl(weights[head] * weightScale) * max(0, fl(dot * dotScale)). out[0] = budgetBlocks, then the ' +
      'budgetBlocks blocks of highest score (equal scores: lower block first; a score of NaN ranks as -inf) in ascending ' +
      'block order.',
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
    fields: fields(
      'in:buffer hidden offsets:buffer list:buffer gate:weight up:weight experts topK width out:buffer limit:float',
    ),
    doc:
      'For every pair: out[row * topK + slot, i] = A(silu(A(dot(gate_e[i], in[row]))) * A(dot(up_e[i], in[row]))), i < ' +
      'width. Expert e has weight indices gate + e and up + e, each [width, hidden]. With a limit (not 0) both rounded ' +
      'products are clamped first, as in swiglu.',
  },
  moeDown: {
    code: 18,
    fields: fields('in:buffer width offsets:buffer list:buffer down:weight experts topK hidden out:buffer'),
    doc: 'For every pair: out[pair, o] = A(dot(down_e[o], in[pair])), o < hidden; expert e has weight index down + e.',
  },
  moeCombine: {
    code: 19,
    fields: fields(
      'down:buffer weights:buffer shared:buffer sharedGate:buffer? hidden topK out:buffer lowering:lowering',
    ),
    doc:
      'y = fma over slots ascending from 0 of weights[slot] * down[row * topK + slot]; s = sigma(sharedGate[row]) (with ' +
      'lowering = 1: gate), or 1 without sharedGate; out = A(A(y) + A(s * shared)).',
  },
  swiglu: {
    code: 20,
    fields: fields('gate:buffer up:buffer out:buffer width limit:float'),
    doc:
      'R rows: out = A(silu(g) * u), g = gate, u = up; with a limit (not 0): g = gate > limit ? limit : gate; u = up > ' +
      'limit ? limit : up < -limit ? -limit : up. out may be gate.',
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
  mhcWeights: {
    code: 26,
    fields: fields('rows in:buffer out:buffer streams iterations scale:weight base:weight eps:float'),
    doc:
      'The weights of a manifold hyper-connection of H = streams (at most 8) streams. in and out rows: H read weights, H ' +
      'write weights, then H * H mixing weights comb[j, k] (from stream j into stream k) row by row; with iterations = 0 ' +
      'the H read weights alone. scale float32 [3] ([1] with iterations = 0), one for each part; base float32, as long as ' +
      'a row. v = fl(fl(in * scale[part]) + base). read = fl(sigmoidF32(v) + eps); write = fl(2 * sigmoidF32(v)). comb: ' +
      'for each row j: m = greatest v by `>` from -inf, e = expF32(fl(v - m)), c = fl(fl(e / total) + eps), total = the e ' +
      'added from 0 in ascending k; then the column pass: c = fl(c / fl(s + eps)), s = the column added from 0 in ' +
      'ascending j; then iterations - 1 times the row pass (the same along rows) and the column pass. Nothing is A-rounded. ' +
      'out may be in.',
  },
  mhcSum: {
    code: 27,
    fields: fields('rows weights:buffer? weightsWidth residual:buffer out:buffer hidden streams'),
    doc:
      'out[i] = A(sum), sum = fma over streams h ascending from 0 of weights[h] * residual[h, i]; weights rows are ' +
      'weightsWidth long. Without weights: out[i] = A(fl(sum / streams)), the residuals added from 0 in ascending h.',
  },
  mhcWrite: {
    code: 28,
    fields: fields('residual:buffer weights:buffer weightsWidth y:buffer hidden streams'),
    doc:
      'In place, R rows: residual[k, i] = A(sum), sum = fma over streams j ascending, from fl(write[k] * y[i]), of ' +
      'comb[j, k] * residual[j, i] (all of them as they were before); weights rows as mhcWeights leaves them: write at ' +
      'column H, comb at 2 * H.',
  },
  groupedLinear: {
    code: 29,
    fields: fields('rows in:buffer out:buffer groups groupIn groupOut weight:weight rowStride rowOffset'),
    doc:
      'out[row, g * groupOut + o] = A(dot(weight[g * rowStride + rowOffset + o], in[row, g * groupIn …])), o < groupOut; ' +
      'weight rows have groupIn elements of any float dtype, and rowOffset + groupOut is at most rowStride.',
  },
  scoreRouter: {
    code: 30,
    fields: fields(
      'logits:buffer experts topK groups groupsKept score normalise scaling:float bias:weight? table:weight? outIndex:buffer outWeight:buffer',
    ),
    doc:
      'R rows. s = sigmoidF32(l) (score = 0) or fl(sqrt(fl(softplusF64(l)))) (score = 1); t = fl(s + bias), s without ' +
      'bias (float32 [experts]). NaN ranks as -inf; equal values: lower index. With groups > 1 the experts fall into that ' +
      'many blocks; a block`s value is fl of the sum of its two greatest t, as they rank (of its one t where it has one ' +
      'expert), and only the experts of the groupsKept greatest blocks can be chosen. The topK experts of greatest t go to ' +
      'outIndex int32 [rows, topK] in ascending index order. With a table (int32 [tokens, topK], listed as F32) the ' +
      'experts are those of the row`s token, clamped into 0 … experts - 1, ascending; bias and groups play no part. ' +
      'outWeight = A(fl(fl(s / fl(sum + 1e-20)) * scaling)) with normalise, sum = the chosen s added from 0 in that order, ' +
      'else A(fl(s * scaling)).',
  },
  layerNorm: {
    code: 31,
    fields: fields('rows in:buffer out:buffer width gain:weight bias:weight eps:float'),
    doc:
      'mean = fl(sum / width), the sum by the lane law; d = fl(x - mean); scale = 1 / sqrt(fl(dot(d, d) / width) + eps); ' +
      'out = A(fl(fl(fl(d * scale) * gain) + bias)), gain and bias float32 [width]. out may be in.',
  },
  kda: {
    code: 32,
    fields: fields(
      'conv:buffer f:buffer b:buffer out:buffer heads dim bound:float expA:weight dtBias:weight state:fixed',
    ),
    doc:
      'The delta rule with a decay for every key channel, token by token. conv row: queries, keys, values, each [heads, ' +
      'dim]; f row [heads, dim]; b row [heads]. q, k, beta and the update as in gatedDelta without mtplx, in every plan. z = ' +
      'fl(f + dtBias) (dtBias float32 [heads, dim], expA float32 [heads]); log decay g = fl(-bound * sigmoidF32(fl(expA[h] ' +
      '* z))) with a bound (not 0), else fl(-expA[h] * fl(softplusF64(z))); decay[i] = expF32(g[i]); S[i, j] = decay[i] * ' +
      'S[i, j] where gatedDelta has one decay. S float32 [heads, dim, dim] (key channel, value channel).',
  },
  ropeTail: {
    code: 35,
    fields: fields('rows in:buffer out:buffer heads dim rotary rope:weight inverse'),
    doc:
      'Turns the last `rotary` elements of every head of dim elements in adjacent pairs by the angles of the row`s position ' +
      '(a row of several: the position of the row that holds it); the others are copied. rope table as in attentionPrep. ' +
      'For i < rotary / 2, x = head[dim - rotary + 2 * i], y the element behind it: x` = A(A(x * cos) - A(y * sin)), y` = ' +
      'A(A(y * cos) + A(x * sin)); with mtplx = 1 the inner A are absent; inverse = 1: sin negated. out may be in.',
  },
  pool: {
    code: 36,
    fields: fields(
      'values:buffer gates:buffer channels window overlap ape:weight gain:weight? eps:float rope:weight? rotary state:fixed pooled:page',
    ),
    doc:
      'Pools windows of `window` tokens at absolute positions into one row of `channels` each. values, gates [rows, (1 + ' +
      'overlap) * channels], ape float32 [window, (1 + overlap) * channels]. For every row whose position p ends window w ' +
      '(p + 1 = (w + 1) * window), for each channel c: the slots are the window`s tokens j ascending, value and gate at ' +
      'column overlap * channels + c, ape row j; with overlap = 1 and w > 0 before them those of the window before, at ' +
      'column c, ape[j, c]. l = fl(gate + ape); m = greatest l by `>` from -inf; e = expF32(fl(l - m)); total = the e added ' +
      'from 0; pooled = A(fma over slots ascending from 0 of fl(e / total) * value). With gain (float32 [channels]) norm ' +
      'as in op norm; with rope (rotary as in ropeTail) turned as there, at position w * window. To the page, layout ' +
      '[pageTokens / window, channels] at `pooled`, kv type; pageTokens is a multiple of window. Tokens before the call ' +
      'come from the state of the input slab: float32 [(1 + overlap) * window, 2, (1 + overlap) * channels], values then ' +
      'gates of position p in row p mod (1 + overlap) * window, zeros where no token was; the output slab receives the ' +
      'same after the call.',
  },
  windowAttention: {
    code: 37,
    fields: fields(
      'q:buffer kv:buffer select:buffer? out:buffer heads dim window block budgetBlocks sink:weight? scale:float state:fixed compressed:page',
    ),
    doc:
      'Attention whose keys are their own values, one row of dim elements for all heads. Keys of the row at position p, in ' +
      'this order: the rows kv of positions max(0, p - window + 1) … p; then, unless block = 0, the compressed rows of ' +
      'complete blocks ascending, all floor((p + 1) / block) of them or, where select >= 0 and its first entry is not -1, ' +
      'those of the selected blocks; from the pages, layout [pageTokens / block, dim] at `compressed`, kv type. s = ' +
      'A(A(dot(q, key)) * scale), after the last key the sink (float32 [heads], as it is); m = the greatest s by `>` from ' +
      '-inf; e = exp(s - m); total = the e summed by the lane law (lane = rank in the list mod 16, the sink`s last); out[i] ' +
      '= A(fma over keys ascending from 0 of A(e / total) * key[i]), without the sink. Rows kv before the call come from ' +
      'the state of the input slab: float32 [window, dim], position p in row p mod window; the output slab receives the ' +
      'same after the call, rows of no token zero.',
  },
  latentAttention: {
    code: 38,
    fields: fields('q:buffer select:buffer? out:buffer heads dim block budgetBlocks tail scale:float latent:page'),
    doc:
      'Attention whose keys are their own values, one row of dim elements a token for all heads, from the pages, layout ' +
      '[pageTokens, dim] at `latent`, kv type. Visible tokens, ascending: 0 … position; where select >= 0 the tokens of ' +
      'the selected blocks (all floor((position + 1) / block) complete ones if its first entry is -1) and, with tail = 1, ' +
      'those of the incomplete last block. s, m, e, total, out as in windowAttention without a sink; out = 0 where no ' +
      'token is visible.',
  },
  latentStore: {
    code: 39,
    fields: fields('in:buffer dim latent:page'),
    doc: 'Each row to the page of its position, layout [pageTokens, dim] at `latent`, kv type.',
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
