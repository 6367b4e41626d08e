/**
 * The numeric laws of the GLM forward pass, site by site. docs/laws-glm.md is made from this table, and a test finds a row
 * for every op of every plan, and every row in a plan.
 *
 * Sources: `reference` is the model authors' implementation (Hugging Face transformers 5.17, models/glm5_next), which
 * rounds some intermediate values to its activation type; here everything is float32.
 */
import type { LawRow } from '../law-row.js';

const LINEAR = 'the dot product under the lane law, weights widened exactly';
const NORM = 'x * (1 / sqrt(mean x^2 + eps)) * w, left to right';

export const GLM_LAWS_TABLE: readonly LawRow[] = [
  { site: 'token embedding', ops: ['embed:residual'], law: 'a copy in every stream', source: 'reference' },
  {
    site: 'hyper-connections: input of the weights',
    ops: ['norm:residual', 'linear:hc.normed>hc.weights'],
    law: `x * (1 / sqrt(mean x^2 + rms_norm_eps)) over all streams of a token; then ${LINEAR}`,
    source: 'reference',
  },
  {
    site: 'hyper-connections: weights',
    ops: ['mhcWeights:hc.weights'],
    law:
      'v = in * scale + base; read = sigmoid(v) + hc_eps; write = 2 sigmoid(v); mixing: softmax of each row + hc_eps, then ' +
      'columns / (sum + hc_eps), then hc_sinkhorn_iters - 1 times rows and columns; all sums ascending from 0',
    source: 'reference',
  },
  {
    site: 'hyper-connections: read',
    ops: ['mhcSum:residual'],
    law: 'fma over streams, ascending from 0',
    source: 'reference, which rounds here; the order is ours',
  },
  {
    site: 'hyper-connections: write',
    ops: ['mhcWrite:residual'],
    law: 'X[k] = fma over streams j ascending, from write[k] * y, of comb[j, k] * X[j]',
    source: 'reference, which rounds the weights here; the order is ours',
  },
  {
    site: 'streams behind the last layer',
    ops: ['mhcSum:out.residual'],
    law: '(sum over streams, ascending from 0) / H',
    source: 'reference; the order is ours',
  },
  {
    site: 'norms of block inputs, of the query rank, of the latent row, of the output',
    ops: ['norm:x', 'norm:dsa.q.rank', 'norm:dsa.latent', 'norm:out.mean'],
    law: NORM,
    source: 'reference, which rounds before the gain',
  },
  {
    site: 'projections, router logits, output logits',
    ops: [
      'linear:x>kda.qkv',
      'linear:kda.f.rank>kda.f',
      'linear:kda.g.rank>kda.g',
      'linear:kda.gated>y',
      'linear:x>dsa.q.rank',
      'linear:dsa.q.rank>dsa.q',
      'linear:dsa.o>y',
      'linear:x>mlp.gate',
      'linear:mlp.gate>y',
      'linear:x>moe.logits',
      'linear:moe.gate>moe.shared',
      'linear:out.x>logits',
    ],
    law: LINEAR,
    source: 'reference',
  },
  {
    site: 'KDA: convolution',
    ops: ['conv:kda.qkv'],
    law: 'silu(fma over taps, oldest first)',
    source: 'reference',
  },
  {
    site: 'KDA: recurrence',
    ops: ['kda:kda.conv'],
    law:
      'q, k by x / sqrt(sum x^2 + 1e-6), q * dl^-0.5; beta = sigmoid(b); per key channel decay = exp(linear_lower_bound * ' +
      'sigmoid(exp(A_log) * (f + dt_bias))), without a bound exp(-exp(A_log) * softplus(f + dt_bias)); then token by ' +
      'token, key index ascending: S = decay * S; d = beta * (v - S^T k); S += k d; S^T q',
    source: 'reference, which walks long chunks in blocks of 64; the order is ours',
  },
  {
    site: 'KDA: head norm and gate',
    ops: ['gatedNorm:kda.o'],
    law: 'o * scale * w * sigmoid(g), left to right',
    source: 'reference',
  },
  {
    site: 'latent attention: queries to the latent rows, latent rows to the heads',
    ops: ['groupedLinear:dsa.q', 'groupedLinear:dsa.mixed'],
    law: `per head, ${LINEAR}: queries times the transposed key rows of kv_b_proj, the mixed row times its value rows`,
    source: 'ours; the reference makes keys and values of every token',
  },
  {
    site: 'latent attention: rows of the cache',
    ops: ['latentStore:dsa.latent'],
    law: 'a copy, one row a token for all heads',
    source: 'ours',
  },
  {
    site: 'indexer: keys',
    ops: ['layerNorm:index.k'],
    law: '(x - mean) / sqrt(var + 1e-6) * w + b, biased variance, mean and variance by lanes',
    source: 'reference',
  },
  {
    site: 'indexer: pools',
    ops: ['pool:index.k'],
    law: 'per channel: softmax of gate + ape over the tokens of a pool, ascending from 0; fma over tokens',
    source: 'reference, which rounds the weights of the tokens',
  },
  {
    site: 'indexer: selection',
    ops: ['indexSelect:index.q'],
    law:
      'fma over heads ascending from 0 of (v * nI^-0.5) * relu(dot * dI^-0.5); highest first, equal scores: lower pool ' +
      'first, NaN last; all complete pools where there are no more than index_topk / index_kpool',
    source: 'reference; the order of equal scores is ours',
  },
  {
    site: 'latent attention: scores and mixed rows',
    ops: ['latentAttention:dsa.q.latent'],
    law:
      's = dot * dk^-0.5 over the tokens of the chosen pools, then of the unfinished one, ascending; exp(s - max) / total, ' +
      'total by lanes of rank mod 16; fma over tokens in that order; nothing visible: 0. A shared layer takes the choice ' +
      'of the last full layer before it',
    source: 'reference; the order, the empty choice and sharing across layers are ours',
  },
  {
    site: 'dense MLP and experts: gate',
    ops: ['swiglu:mlp.gate', 'moeUp:x', 'moeDown:moe.hidden', 'swiglu:moe.gate'],
    law: 'silu(min(gate, L)) * clamp(up, -L, L), L = swiglu_limit, in dense, routed and shared MLPs',
    source: 'reference',
  },
  {
    site: 'experts: choice and weights',
    ops: ['scoreRouter:moe.logits', 'moeGroup:moe.index'],
    law:
      's = sigmoid(l); the greatest s + bias of the kept groups (a group`s value: its two greatest), equal: lower index; ' +
      'weights s / (sum of chosen s, ascending by expert, + 1e-20) * routed_scaling_factor',
    source: 'reference; the order of equal scores is ours',
  },
  {
    site: 'experts: sum',
    ops: ['moeCombine:moe.down'],
    law: 'fma over chosen experts, ascending; then + the shared expert, which has weight 1',
    source: 'reference; the order over experts is ours',
  },
  { site: 'row selection', ops: ['gather:residual'], law: 'a copy', source: 'ours' },
];
