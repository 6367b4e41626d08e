/**
 * The numeric laws of the Qwen forward pass, site by site: what is computed, where it is rounded, and what depends on the
 * phase. docs/laws.md is made from this table, and a test finds a row for every op of every plan, and every row in a plan.
 *
 * Sources: `reference` is the model authors' implementation (Hugging Face transformers 5.17, models/qwen4_exp and
 * models/qwen3_5), `MTPLX` the MLX engine whose behaviour the family follows (2.12.2 on MLX 0.32.2).
 */
import type { GateSite } from './laws.js';

export interface LawRow {
  readonly site: string;
  /** `op:first buffer`, for linear ops `linear:input>first output`, as in a printed plan (layer numbers as #). */
  readonly ops: readonly string[];
  /** The operation order; A(x) is x rounded to the activation type. */
  readonly law: string;
  /** Where the law `bf16-mtplx` rounds otherwise; empty where it does not. */
  readonly mtplx: string;
  /** The gate whose lowering follows the phase, if the site has one. */
  readonly gate?: GateSite | undefined;
  readonly source: string;
}

const NORM = 'A(x * (1 / sqrt(mean x^2 + eps)) * (1 + w)), float32 inside, left to right';
const NORM_MTPLX = 'A(A(x * scale) * bf(1 + w))';
const LINEAR = 'A(dot), the dot product under the lane law, weights widened exactly';
const ROPE =
  'angles float32; cos and sin A; four products A, two sums A; keys and values are stored in the activation type';
const ROPE_MTPLX = 'cos, sin, products and sum in float32, one A at the end; norms as above';

export const QWEN_LAWS: readonly LawRow[] = [
  {
    site: 'token embedding',
    ops: ['embed:residual'],
    law: 'A(row), copied to every stream',
    mtplx: '',
    source: 'reference',
  },
  {
    site: 'stream norm, layer norms, final norm',
    ops: ['norm:residual', 'norm:out.residual'],
    law: `${NORM}; qwen4_exp: the mean over one stream`,
    mtplx: NORM_MTPLX,
    source: 'reference; MTPLX',
  },
  {
    site: 'read of the streams: projections',
    ops: [
      'linear:normed>hc.down',
      'linear:hc.down>hc.mix',
      'linear:out.normed>out.hc.down',
      'linear:out.hc.down>out.hc.mix',
    ],
    law: LINEAR,
    mtplx: '',
    source: 'reference',
  },
  {
    site: 'read of the streams: low rank and write weights',
    ops: ['hcAct:hc.down', 'hcAct:out.hc.down'],
    law: 'down: A(silu(A(v / C))). inject: A(2 * gate(A(v / C)))',
    mtplx: 'silu(x) = A(x * table(x)), the standalone sigmoid table',
    gate: 'injection',
    source: 'reference; MTPLX for the gate',
  },
  {
    site: 'read of the streams: mix',
    ops: ['hcMix:hc.mix', 'hcMix:out.hc.mix'],
    law: 'A((sum over streams of A(A(sigmoid(m)) * n)) / C), the sum in float32, streams ascending',
    mtplx: 'the sigmoid from the standalone table',
    source: 'reference',
  },
  {
    site: 'write to the streams',
    ops: ['hcWrite:residual'],
    law: 'A(R + A(inject * y))',
    mtplx: '',
    source: 'reference',
  },
  {
    site: 'n-gram embedding: projections',
    ops: ['linear:ple.#.embedding>ple.key'],
    law: `${LINEAR}; table rows are gathered exactly, row ids in 64-bit integer arithmetic`,
    mtplx: '',
    source: 'reference',
  },
  {
    site: 'n-gram embedding: norms',
    ops: ['norm:ple.key', 'norm:ple.u'],
    law: NORM,
    mtplx: NORM_MTPLX,
    source: 'reference',
  },
  {
    site: 'n-gram embedding: value gate',
    ops: ['pleGate:ple.key'],
    law: 'a = A(A(sum of A(k * q)) / sqrt(H)); a = sign(a) * A(sqrt(max(|a|, 1e-6))); A(A(sigmoid(a)) * v)',
    mtplx: 'the sigmoid from the standalone table',
    gate: 'ple-value',
    source: 'reference',
  },
  {
    site: 'n-gram embedding: convolution',
    ops: ['conv:ple.normed', 'conv:stash.#.ple'],
    law: 'A(silu(A(fma over taps, oldest first))), dilation G',
    mtplx: 'silu from the standalone table',
    source: 'reference',
  },
  {
    site: 'n-gram embedding: sum',
    ops: ['pleAdd:residual'],
    law: 'A(R + A(u + w))',
    mtplx: '',
    source: 'reference',
  },
  {
    site: 'gated DeltaNet: projections',
    ops: ['linear:x>gdn.qkv', 'linear:x>stash.#.qkv', 'linear:gdn.gated>y'],
    law: LINEAR,
    mtplx: '',
    source: 'reference',
  },
  {
    site: 'gated DeltaNet: convolution',
    ops: ['conv:gdn.qkv', 'conv:stash.#.qkv'],
    law: 'A(silu(A(fma over taps, oldest first)))',
    mtplx: 'silu from the standalone table',
    source: 'reference',
  },
  {
    site: 'gated DeltaNet: recurrence',
    ops: ['gatedDelta:gdn.conv'],
    law:
      'q, k by x / sqrt(sum x^2 + 1e-6) in float32, q * Dk^-0.5; beta = A(sigmoid(b)); decay = exp(-exp(A_log) * ' +
      'softplus(a + dt_bias)); then token by token, key index ascending: S = decay * S; d = beta * (v - S^T k); S += k d; ' +
      'A(S^T q); S float32',
    mtplx: 'q, k rounded after the division, q scaled as a product of activations; a + dt_bias rounded; beta by table',
    source: 'reference; MTPLX',
  },
  {
    site: 'gated DeltaNet: head norm and gate',
    ops: ['gatedNorm:gdn.o'],
    law: 'A(A(A(o * scale) * w) * f(z)), f = sigmoid or silu in float32, w plain',
    mtplx: '',
    source: 'reference',
  },
  {
    site: 'attention: projections',
    ops: ['linear:x>attn.packed', 'linear:attn.o>y'],
    law: `${LINEAR}; biases, where configured, are added before A`,
    mtplx: '',
    source: 'reference',
  },
  {
    site: 'attention: head norms and rope',
    ops: ['attentionPrep:attn.packed'],
    law: `${NORM}; ${ROPE}`,
    mtplx: ROPE_MTPLX,
    source: 'reference; MTPLX',
  },
  {
    site: 'indexer: queries and raw keys',
    ops: ['indexPrep:index.qk'],
    law: `queries: ${NORM}, then rope; keys raw`,
    mtplx: ROPE_MTPLX,
    source: 'reference; MTPLX',
  },
  {
    site: 'indexer: block keys',
    ops: ['indexBlocks:'],
    law: 'A(mean of the raw keys), norm, rope at the first position of the block',
    mtplx: ROPE_MTPLX,
    source: 'reference; MTPLX',
  },
  {
    site: 'indexer: selection',
    ops: ['indexSelect:index.q'],
    law: 'sum over heads of max(0, dot) in float32; highest first, equal scores: lower block first; all blocks within budget',
    mtplx: '',
    source: 'reference; the order of equal scores is ours',
  },
  {
    site: 'attention: scores, values, output gate',
    ops: ['attention:attn.q'],
    law:
      's = A(A(dot) * D^-0.5); p = A(exp(s - max) / total), float32 inside, total by lanes of rank mod 16; A(fma over ' +
      'visible tokens ascending); A(o * gate(g))',
    mtplx: '',
    gate: 'attention-output',
    source: 'reference; MTPLX for the gate',
  },
  {
    site: 'experts: router, shared expert projections',
    ops: ['linear:x>moe.logits', 'linear:moe.gate>moe.shared'],
    law: LINEAR,
    mtplx: '',
    source: 'reference',
  },
  {
    site: 'experts: choice and weights',
    ops: ['router:moe.logits', 'moeGroup:moe.index'],
    law: 'softmax float32 over all experts; highest logits, equal: lower index; weights A(p / sum of chosen p)',
    mtplx: '',
    source: 'reference; the order of equal logits is ours',
  },
  {
    site: 'experts: routed',
    ops: ['moeUp:x', 'moeDown:moe.hidden'],
    law: 'A(silu(A(gate))) * A(up), A; A(dot) down',
    mtplx: 'silu from the standalone table',
    source: 'reference',
  },
  {
    site: 'experts: shared, and the sum',
    ops: ['swiglu:moe.gate', 'moeCombine:moe.down'],
    law: 'A(fma over chosen experts, ascending) + A(A(sigmoid(g)) * shared), A',
    mtplx: 'sigmoid and silu from the standalone table',
    gate: 'shared-expert',
    source: 'reference; the order over experts is ours',
  },
  {
    site: 'dense MLP (qwen3_5)',
    ops: ['linear:x>mlp.gate', 'swiglu:mlp.gate', 'linear:mlp.gate>y'],
    law: 'A(silu(A(gate))) * A(up), A; A(dot) down',
    mtplx: 'silu from the standalone table',
    source: 'reference',
  },
  { site: 'residual sum (qwen3_5)', ops: ['add:residual'], law: 'A(x + y)', mtplx: '', source: 'reference' },
  { site: 'row selection', ops: ['gather:residual'], law: 'a copy', mtplx: '', source: 'ours' },
  {
    site: 'logits',
    ops: ['linear:out.x>logits', 'linear:out.x>mtp.#.logits'],
    law: LINEAR,
    mtplx: '',
    source: 'reference',
  },
  {
    site: 'draft head: norms',
    ops: ['norm:mtp.hidden', 'norm:mtp.embedding', 'norm:mtp.#.stream'],
    law: `${NORM}; hidden, also where a chain goes on: one mean over all streams; its last read: one for each stream`,
    mtplx: NORM_MTPLX,
    source: 'MTPLX',
  },
  {
    site: 'draft head: embedding and projections',
    ops: ['embed:mtp.embedding', 'linear:mtp.embedding>mtp.projected', 'linear:normed>residual'],
    law: `${LINEAR}; one map for every stream, then A(stream + projected embedding)`,
    mtplx: '',
    source: 'MTPLX',
  },
  {
    site: 'draft head: going on by itself',
    ops: ['embedGreedy:mtp.#.logits'],
    law: 'the lowest id of the greatest logit, a NaN never being greater; A(row)',
    mtplx: '',
    source: 'ours',
  },
];
