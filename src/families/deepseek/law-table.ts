/**
 * The numeric laws of the DeepSeek V4 forward pass, site by site. docs/laws-deepseek.md is made from this table, and a test
 * finds a row for every op of every plan, and every row in a plan.
 *
 * Sources: `reference` is the model authors' implementation (Hugging Face transformers 5.17, models/deepseek_v4), which
 * rounds some intermediate values to its activation type; here everything behind a projection is float32.
 */
import type { LawRow } from '../law-row.js';

const LINEAR = 'the dot product under the lane law, weights widened exactly';
const NORM = 'x * (1 / sqrt(mean x^2 + eps)) * w, left to right';
const TURN =
  'adjacent pairs of the last rd channels by the angle fl(position * f_i), f_i float32; two products, one sum each';

export const DEEPSEEK_LAWS_TABLE: readonly LawRow[] = [
  { site: 'token embedding', ops: ['embed:residual'], law: 'a copy in every stream', source: 'reference' },
  {
    site: 'hyper-connections: input of the weights',
    ops: ['norm:residual', 'norm:out.residual', 'linear:hc.normed>hc.weights', 'linear:out.hc.normed>out.hc.weights'],
    law: `x * (1 / sqrt(mean x^2 + rms_norm_eps)) over all streams of a token; then ${LINEAR}`,
    source: 'reference',
  },
  {
    site: 'hyper-connections: weights',
    ops: ['mhcWeights:hc.weights', 'mhcWeights:out.hc.weights'],
    law:
      'v = in * scale + base; read = sigmoid(v) + hc_eps; write = 2 sigmoid(v); mixing: softmax of each row + hc_eps, then ' +
      'columns / (sum + hc_eps), then hc_sinkhorn_iters - 1 times rows and columns; all sums ascending from 0',
    source: 'reference',
  },
  {
    site: 'hyper-connections: read',
    ops: ['mhcSum:residual', 'mhcSum:out.residual'],
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
    site: 'norms of block inputs, of the low-rank query, of the key row, of the output',
    ops: ['norm:x', 'norm:attn.qr', 'norm:attn.kv', 'norm:out.x'],
    law: NORM,
    source: 'reference, which rounds before the gain',
  },
  {
    site: 'projections, router logits, output logits',
    ops: [
      'linear:x>attn.qr',
      'linear:attn.qr>attn.q',
      'linear:attn.z>y',
      'linear:x>moe.logits',
      'linear:moe.gate>moe.shared',
      'linear:out.x>logits',
    ],
    law: LINEAR,
    source: 'reference',
  },
  {
    site: 'attention: head norm of queries',
    ops: ['norm:attn.q'],
    law: 'x * (1 / sqrt(mean x^2 + rms_norm_eps)) per head, no gain, before the rotation',
    source: 'reference',
  },
  {
    site: 'attention: rotations of queries, of the key row, of index queries, and back on the output',
    ops: ['ropeTail:attn.q', 'ropeTail:attn.kv', 'ropeTail:index.q', 'ropeTail:attn.o'],
    law: `${TURN}; the output by the negative angle of the query's position`,
    source: 'reference, whose cosines and sines are rounded',
  },
  {
    site: 'compressors, of attention and of the indexer',
    ops: ['pool:compressed_sparse_attention.values', 'pool:heavily_compressed_attention.values', 'pool:index.values'],
    law:
      `per channel: softmax of gate + ape over the slots of a window, ascending from 0; fma over slots; ${NORM}; ${TURN}, at ` +
      'the first position of the window',
    source: 'reference, which rounds the weights of the slots',
  },
  {
    site: 'indexer: selection',
    ops: ['indexSelect:index.q'],
    law:
      'fma over heads ascending from 0 of (v * nI^-0.5) * relu(dot * dI^-0.5); highest first, equal scores: lower row ' +
      'first, NaN last; all rows where there are no more than index_topk',
    source: 'reference; the order of equal scores is ours',
  },
  {
    site: 'attention: scores and values',
    ops: ['windowAttention:attn.q'],
    law:
      's = dot * hd^-0.5 over the window, then the compressed rows, each ascending; the sink joins maximum and total behind ' +
      'the last key; exp(s - max) / total, total by lanes of rank mod 16; fma over keys in that order',
    source: 'reference; the order is ours',
  },
  { site: 'attention: grouped output', ops: ['groupedLinear:attn.o'], law: LINEAR, source: 'reference' },
  {
    site: 'experts: choice and weights',
    ops: ['scoreRouter:moe.logits', 'moeGroup:moe.index'],
    law:
      's = sqrt(softplus(l)), softplus in float64, or sigmoid(l); the greatest s + bias, equal: lower index, or the ' +
      "experts of the token's id; weights s / (sum of chosen s, ascending by expert, + 1e-20) * routed_scaling_factor",
    source: 'reference; the order of equal scores is ours',
  },
  {
    site: 'experts: routed and shared',
    ops: ['moeUp:x', 'moeDown:moe.hidden', 'swiglu:moe.gate'],
    law: 'silu(min(gate, L)) * clamp(up, -L, L), L = swiglu_limit; the shared expert is clamped as well',
    source: 'reference',
  },
  {
    site: 'experts: sum',
    ops: ['moeCombine:moe.down'],
    law: 'fma over chosen experts, ascending; then + the shared expert, which has weight 1',
    source: 'reference; the order over experts is ours',
  },
  { site: 'row selection', ops: ['gather:residual'], law: 'a copy', source: 'ours' },
];
