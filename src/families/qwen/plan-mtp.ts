/**
 * The draft head's forward as a plan: the trunk's hidden stream of a token and the embedding of the next one, through one
 * sparse attention layer. Outside every decode phase, so all gates take the standalone lowering.
 *
 * Invariants: `cache` plans only append keys, values and index keys; plans of a link go on to logits and to the stream that
 * the next recursion step takes; all compute the same cache rows. The links of a chain of equal length and capacity of
 * selected rows keep what they hand on in the same places of the workspace, which no other buffer of theirs overlaps.
 */
import { PlumblineError } from '../../errors.js';
import type { Plan, PlanBuilder, PlanBuffer } from '../../engine/plan/builder.js';
import { WeightTable } from '../../engine/plan/weight-table.js';
import { RESIDUAL } from '../plan-buffers.js';
import { segment } from '../plan-rows.js';
import { missing, PlanContext, type QwenPlanOptions } from './plan-context.js';
import { mixtureOfExperts } from './plan-feedforward.js';
import { appendToCache, sparseOrDenseAttention } from './plan-mixers.js';
import { readStreams, writeStreams } from './plan-residual.js';
import type { AttentionOffsets } from './state-layout.js';

/** Name of the host-filled buffer [R, C * H] with the hidden streams. */
export const HIDDEN_INPUT = 'mtp.hidden';
/** What link n of a chain leaves: the head's own stream [M, C * H] behind its layer, its logits [M, V], and (but for the
 * first) the ids int32 [M] that it went on with. */
export const draftStream = (link: number): string => `mtp.${link}.stream`;
export const draftLogits = (link: number): string => `mtp.${link}.logits`;
export const draftIds = (link: number): string => `mtp.${link}.ids`;

/** Link `link` of a chain of `links`. The first is fed by the host, the others by the link before. */
export interface DraftLink {
  readonly link: number;
  readonly links: number;
}

export interface DraftPlanOptions extends QwenPlanOptions {
  readonly output: 'cache' | DraftLink;
  readonly head: AttentionOffsets;
}

export function buildDraftPlan(options: DraftPlanOptions, weights: WeightTable): Plan {
  return writeDraft(options, weights).finish();
}

/** Words of workspace of such a plan. */
export function draftWorkspaceWords(options: DraftPlanOptions): number {
  return writeDraft(options, new WeightTable()).workspaceWords;
}

function writeDraft(options: DraftPlanOptions, weights: WeightTable): PlanBuilder {
  const c = new PlanContext(options, weights);
  const { builder, bound } = c;
  const { mtp } = bound;
  if (!mtp) throw missing('a bound draft head');
  const { hiddenSize, hyperConnections, vocabSize } = c.qwen4();
  const width = hyperConnections.streams * hiddenSize;
  const { output } = options;
  if (output !== 'cache') placeHandedOn(c, output.links, width);
  const x = builder.buffer('x', hiddenSize);
  const y = builder.buffer('y', hiddenSize);
  const residual = frontEnd(c, width, output === 'cache' ? 0 : output.link);
  readStreams(c, mtp.attn, residual, x);
  if (output === 'cache') {
    appendToCache(c, mtp.mixer, options.head, x);
    return builder;
  }
  sparseOrDenseAttention(c, mtp.mixer, options.head, x, y);
  writeStreams(c, residual, y);
  readStreams(c, mtp.mlp, residual, x);
  mixtureOfExperts(c, mtp.moe, x, y);
  writeStreams(c, residual, y);
  const out = builder.buffer(draftStream(output.link), width, 'M');
  builder.op('gather', { in: residual.offset, out: out.offset, width });
  const headInput = builder.buffer('out.x', hiddenSize, 'M');
  readStreams(c, mtp.last, out, headInput);
  const logits = builder.buffer(draftLogits(output.link), vocabSize, 'M');
  builder.linear('M', headInput, hiddenSize, [{ weight: bound.lmHead.weight, out: logits, outs: vocabSize }]);
  return builder;
}

/** Makes the buffers of all links before any other. */
function placeHandedOn(c: PlanContext, links: number, width: number): void {
  for (let link = 0; link < links; link++) {
    c.builder.buffer(draftStream(link), width, 'M');
    c.builder.buffer(draftLogits(link), c.config.vocabSize, 'M');
    if (link > 0) c.builder.buffer(draftIds(link), 1, 'M');
  }
}

/** Z_i = fc_hidden * norm(hidden)_i + fc_embedding * norm(embedding) for every stream i. */
function frontEnd(c: PlanContext, width: number, link: number): PlanBuffer {
  const { builder, bound } = c;
  const { mtp } = bound;
  if (!mtp) throw new PlumblineError('plan_invalid', 'the model has no draft head');
  const { hiddenSize, hyperConnections, vocabSize } = c.qwen4();
  // A further link has one row a sequence, and all are selected: M = R.
  const hidden = link === 0 ? builder.buffer(HIDDEN_INPUT, width) : builder.buffer(draftStream(link - 1), width, 'M');
  const normed = builder.buffer('normed', width);
  const embedding = builder.buffer('mtp.embedding', hiddenSize);
  const projected = builder.buffer('mtp.projected', hiddenSize);
  const residual = builder.buffer(RESIDUAL, width);
  c.norm(hidden, normed, mtp.hiddenNorm, width); // one mean over all streams
  const embed = { out: embedding.offset, width: hiddenSize, copies: 1, weight: bound.embed };
  if (link === 0) builder.op('embed', embed);
  else {
    const logits = builder.buffer(draftLogits(link - 1), vocabSize, 'M').offset;
    const outIds = builder.buffer(draftIds(link), 1, 'M').offset;
    builder.op('embedGreedy', { logits, vocab: vocabSize, outIds, ...embed });
  }
  c.norm(embedding, embedding, mtp.embeddingNorm, hiddenSize);
  builder.linear('R', embedding, hiddenSize, [segment(mtp.fcEmbedding, projected)]);
  builder.linearOfSubrows(hyperConnections.streams, normed, hiddenSize, mtp.fcHidden.weight, residual, hiddenSize);
  builder.op('hcWrite', {
    residual: residual.offset,
    inject: -1,
    y: projected.offset,
    hidden: hiddenSize,
    streams: hyperConnections.streams,
  });
  return residual;
}
