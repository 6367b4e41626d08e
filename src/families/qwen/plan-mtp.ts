/**
 * The draft head's forward as a plan: the trunk's hidden stream of a token and the embedding of the next one, through one
 * sparse attention layer. Outside every decode phase, so all gates take the standalone lowering.
 *
 * Invariants: `cache` plans only append keys, values and index keys; `row` plans go on to logits and to the stream that the
 * next recursion step takes; both compute the same cache rows.
 */
import { PlumblineError } from '../../errors.js';
import type { Plan, PlanBuilder, PlanBuffer } from '../../engine/plan/builder.js';
import { WeightTable } from '../../engine/plan/weight-table.js';
import { LOGITS, RESIDUAL } from '../plan-buffers.js';
import { segment } from '../plan-rows.js';
import { missing, PlanContext, type QwenPlanOptions } from './plan-context.js';
import { mixtureOfExperts } from './plan-feedforward.js';
import { appendToCache, sparseOrDenseAttention } from './plan-mixers.js';
import { readStreams, writeStreams } from './plan-residual.js';
import type { AttentionOffsets } from './state-layout.js';

/** Name of the host-filled buffer [R, C * H] with the hidden streams. */
export const HIDDEN_INPUT = 'mtp.hidden';
/** Name of the head's own stream [R, C * H] behind its layer. */
export const DRAFT_STREAM = RESIDUAL;

export interface DraftPlanOptions extends QwenPlanOptions {
  readonly output: 'cache' | 'row';
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
  const x = builder.buffer('x', hiddenSize);
  const y = builder.buffer('y', hiddenSize);
  const residual = frontEnd(c, width);
  readStreams(c, mtp.attn, residual, x);
  if (options.output === 'cache') {
    appendToCache(c, mtp.mixer, options.head, x);
    return builder;
  }
  sparseOrDenseAttention(c, mtp.mixer, options.head, x, y);
  writeStreams(c, residual, y);
  readStreams(c, mtp.mlp, residual, x);
  mixtureOfExperts(c, mtp.moe, x, y);
  writeStreams(c, residual, y);
  const out = builder.buffer('out.residual', width, 'M');
  builder.op('gather', { in: residual.offset, out: out.offset, width });
  const headInput = builder.buffer('out.x', hiddenSize, 'M');
  readStreams(c, mtp.last, out, headInput);
  const logits = builder.buffer(LOGITS, vocabSize, 'M');
  builder.linear('M', headInput, hiddenSize, [{ weight: bound.lmHead.weight, out: logits, outs: vocabSize }]);
  return builder;
}

/** Z_i = fc_hidden * norm(hidden)_i + fc_embedding * norm(embedding) for every stream i. */
function frontEnd(c: PlanContext, width: number): PlanBuffer {
  const { builder, bound } = c;
  const { mtp } = bound;
  if (!mtp) throw new PlumblineError('plan_invalid', 'the model has no draft head');
  const { hiddenSize, hyperConnections } = c.qwen4();
  const hidden = builder.buffer(HIDDEN_INPUT, width);
  const normed = builder.buffer('normed', width);
  const embedding = builder.buffer('mtp.embedding', hiddenSize);
  const projected = builder.buffer('mtp.projected', hiddenSize);
  const residual = builder.buffer(RESIDUAL, width);
  c.norm(hidden, normed, mtp.hiddenNorm, width); // one mean over all streams
  builder.op('embed', { out: embedding.offset, width: hiddenSize, copies: 1, weight: bound.embed });
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
