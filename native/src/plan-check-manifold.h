/*
 * The op table's rules for manifold hyper-connections, per-channel decays, and the maps, norms and routers of the models
 * that have them: a part of plan-check.c.
 */
#ifndef PL_PLAN_CHECK_MANIFOLD_H
#define PL_PLAN_CHECK_MANIFOLD_H

#include "plan-fields.h"

static bool mhc_streams(pl_check *c, int32_t streams) { return size_field(c, "streams", streams, PL_MAX_STREAMS); }

static bool mhc_weights_width(pl_check *c, int32_t width, int32_t needed) {
  return width >= needed || pl_refuse(c, "weightsWidth = %d is below %d", width, needed);
}

static bool check_mhc_weights(pl_check *c, const int32_t *op) {
  const int32_t streams = op[MHC_WEIGHTS_STREAMS], iterations = op[MHC_WEIGHTS_ITERATIONS];
  if (!rows_field(c, op[MHC_WEIGHTS_ROWS]) || !mhc_streams(c, streams)) return false;
  if (iterations < 0) return pl_refuse(c, "iterations = %d is negative", iterations);
  const int64_t rows = rows_of(c, op[MHC_WEIGHTS_ROWS]), width = iterations ? (2ll + streams) * streams : streams;
  return positive_float(c, "eps", op[MHC_WEIGHTS_EPS]) &&
         vector(c, "scale", op[MHC_WEIGHTS_SCALE], iterations ? 3 : 1) &&
         vector(c, "base", op[MHC_WEIGHTS_BASE], width) && buffer(c, "in", op[MHC_WEIGHTS_IN], PL_SAME, rows, width) &&
         buffer(c, "out", op[MHC_WEIGHTS_OUT], PL_OUT, rows, width);
}

static bool check_mhc_sum(pl_check *c, const int32_t *op) {
  const int32_t hidden = op[MHC_SUM_HIDDEN], streams = op[MHC_SUM_STREAMS], width = op[MHC_SUM_WEIGHTS_WIDTH];
  if (!rows_field(c, op[MHC_SUM_ROWS]) || !any_size(c, "hidden", hidden) || !mhc_streams(c, streams)) return false;
  const int64_t rows = rows_of(c, op[MHC_SUM_ROWS]);
  if (!mhc_weights_width(c, width, op[MHC_SUM_WEIGHTS] == -1 ? 0 : streams)) return false;
  if (op[MHC_SUM_WEIGHTS] != -1 && !buffer(c, "weights", op[MHC_SUM_WEIGHTS], PL_IN, rows, width)) return false;
  return buffer(c, "residual", op[MHC_SUM_RESIDUAL], PL_IN, rows, times(hidden, streams)) &&
         buffer(c, "out", op[MHC_SUM_OUT], PL_OUT, rows, hidden);
}

static bool check_mhc_write(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t hidden = op[MHC_WRITE_HIDDEN], streams = op[MHC_WRITE_STREAMS], width = op[MHC_WRITE_WEIGHTS_WIDTH];
  return any_size(c, "hidden", hidden) && mhc_streams(c, streams) &&
         mhc_weights_width(c, width, (2 + streams) * streams) &&
         buffer(c, "residual", op[MHC_WRITE_RESIDUAL], PL_OUT, R, times(hidden, streams)) &&
         buffer(c, "weights", op[MHC_WRITE_WEIGHTS], PL_IN, R, width) &&
         buffer(c, "y", op[MHC_WRITE_Y], PL_IN, R, hidden);
}

static bool check_grouped_linear(pl_check *c, const int32_t *op) {
  const int32_t groups = op[GROUPED_LINEAR_GROUPS], ins = op[GROUPED_LINEAR_GROUP_IN],
                outs = op[GROUPED_LINEAR_GROUP_OUT], stride = op[GROUPED_LINEAR_ROW_STRIDE],
                offset = op[GROUPED_LINEAR_ROW_OFFSET];
  if (!rows_field(c, op[GROUPED_LINEAR_ROWS]) || !any_size(c, "groups", groups) || !any_size(c, "groupIn", ins) ||
      !any_size(c, "groupOut", outs) || !any_size(c, "rowStride", stride)) {
    return false;
  }
  if (offset < 0 || (int64_t)offset + outs > stride) {
    return pl_refuse(c, "rowOffset = %d and groupOut = %d pass rowStride = %d", offset, outs, stride);
  }
  const int64_t rows = rows_of(c, op[GROUPED_LINEAR_ROWS]);
  /* Rows up to the last that is read: the rest of the last stride need not be there. */
  const int64_t last = times(groups - 1, stride);
  return matrix(c, "weight", op[GROUPED_LINEAR_WEIGHT], last < 0 ? -1 : last + offset + outs, ins) &&
         buffer(c, "in", op[GROUPED_LINEAR_IN], PL_IN, rows, times(groups, ins)) &&
         buffer(c, "out", op[GROUPED_LINEAR_OUT], PL_OUT, rows, times(groups, outs));
}

static bool check_score_router(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t experts = op[SCORE_ROUTER_EXPERTS], top_k = op[SCORE_ROUTER_TOP_K], groups = op[SCORE_ROUTER_GROUPS];
  const int32_t kept = op[SCORE_ROUTER_GROUPS_KEPT], table = op[SCORE_ROUTER_TABLE];
  if (!chosen_experts(c, experts, top_k) || !any_size(c, "groups", groups) ||
      !divides(c, "groups", groups, "experts", experts) || !size_field(c, "groupsKept", kept, groups) ||
      !bit_field(c, "score", op[SCORE_ROUTER_SCORE]) || !bit_field(c, "normalise", op[SCORE_ROUTER_NORMALISE]) ||
      !positive_float(c, "scaling", op[SCORE_ROUTER_SCALING]) ||
      (op[SCORE_ROUTER_BIAS] != -1 && !vector(c, "bias", op[SCORE_ROUTER_BIAS], experts))) {
    return false;
  }
  if (table == -1) {
    const int64_t candidates = (int64_t)kept * (experts / groups);
    if (top_k > candidates) {
      return pl_refuse(c, "topK = %d passes the %lld experts of the kept groups", top_k, (long long)candidates);
    }
  } else {
    int64_t words = 0;
    if (!weight(c, "table", table, top_k, true, &words)) return false;
    if (words / top_k < c->plan->token_limit) c->plan->token_limit = words / top_k;
  }
  return buffer(c, "logits", op[SCORE_ROUTER_LOGITS], PL_IN, R, experts) &&
         buffer(c, "outIndex", op[SCORE_ROUTER_OUT_INDEX], PL_OUT, R, top_k) &&
         buffer(c, "outWeight", op[SCORE_ROUTER_OUT_WEIGHT], PL_OUT, R, top_k);
}

static bool check_layer_norm(pl_check *c, const int32_t *op) {
  const int32_t width = op[LAYER_NORM_WIDTH];
  if (!rows_field(c, op[LAYER_NORM_ROWS]) || !any_size(c, "width", width)) return false;
  const int64_t rows = rows_of(c, op[LAYER_NORM_ROWS]);
  return positive_float(c, "eps", op[LAYER_NORM_EPS]) && vector(c, "gain", op[LAYER_NORM_GAIN], width) &&
         vector(c, "bias", op[LAYER_NORM_BIAS], width) && buffer(c, "in", op[LAYER_NORM_IN], PL_SAME, rows, width) &&
         buffer(c, "out", op[LAYER_NORM_OUT], PL_OUT, rows, width);
}

static bool check_kda(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t heads = op[KDA_HEADS], dim = op[KDA_DIM];
  if (!any_size(c, "heads", heads) || !size_field(c, "dim", dim, PL_MAX_KEY_DIM)) return false;
  const int64_t width = times(heads, dim);
  if (width < 0) return pl_refuse(c, "its heads are absurdly large");
  return positive_or_zero(c, "bound", op[KDA_BOUND]) && vector(c, "expA", op[KDA_EXP_A], heads) &&
         vector(c, "dtBias", op[KDA_DT_BIAS], width) && fixed(c, "state", op[KDA_STATE], times(width, dim)) &&
         shared(c, (3 * width + heads) * 4, 0) && buffer(c, "conv", op[KDA_CONV], PL_IN, R, 3 * width) &&
         buffer(c, "f", op[KDA_F], PL_IN, R, width) && buffer(c, "b", op[KDA_B], PL_IN, R, heads) &&
         buffer(c, "out", op[KDA_OUT], PL_OUT, R, width);
}

#endif
