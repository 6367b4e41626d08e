/* The op table's rules, op by op, for the words of a plan. See plan-check.h. */
#include "plan-check.h"

#include <stdarg.h>
#include <stdio.h>

#include "plan-check-attention.h"
#include "plan-check-manifold.h"
#include "plan-check-latent.h"
#include "plan-fields.h"

bool pl_refuse(pl_check *c, const char *format, ...) {
  int n = snprintf(c->error, PL_ERROR_BYTES, "op %d (%s): ", c->index, c->name);
  va_list args;
  va_start(args, format);
  vsnprintf(c->error + n, (size_t)(PL_ERROR_BYTES - n), format, args);
  va_end(args);
  return false;
}

static bool check_embed(pl_check *c, const int32_t *op, int64_t R) {
  int64_t elements = 0;
  const int32_t width = op[EMBED_WIDTH];
  if (!any_size(c, "width", width) || !any_size(c, "copies", op[EMBED_COPIES]) ||
      !buffer(c, "out", op[EMBED_OUT], PL_OUT, R, times(width, op[EMBED_COPIES])) ||
      !weight(c, "weight", op[EMBED_WEIGHT], width, false, &elements)) {
    return false;
  }
  if (elements / width < c->plan->token_limit) c->plan->token_limit = elements / width;
  return true;
}

static bool check_embed_greedy(pl_check *c, const int32_t *op, int64_t R) {
  int64_t elements = 0;
  const int32_t width = op[EMBED_GREEDY_WIDTH], vocab = op[EMBED_GREEDY_VOCAB];
  return any_size(c, "width", width) && any_size(c, "copies", op[EMBED_GREEDY_COPIES]) &&
         any_size(c, "vocab", vocab) && buffer(c, "logits", op[EMBED_GREEDY_LOGITS], PL_IN, R, vocab) &&
         buffer(c, "outIds", op[EMBED_GREEDY_OUT_IDS], PL_OUT, R, 1) &&
         buffer(c, "out", op[EMBED_GREEDY_OUT], PL_OUT, R, times(width, op[EMBED_GREEDY_COPIES])) &&
         weight(c, "weight", op[EMBED_GREEDY_WEIGHT], times(width, vocab), false, &elements);
}

static bool check_norm(pl_check *c, const int32_t *op) {
  const int32_t width = op[NORM_WIDTH];
  return rows_field(c, op[NORM_ROWS]) && any_size(c, "width", width) && any_size(c, "group", op[NORM_GROUP]) &&
         divides(c, "group", op[NORM_GROUP], "width", width) && positive_float(c, "eps", op[NORM_EPS]) &&
         (op[NORM_GAIN] == -1 || vector(c, "gain", op[NORM_GAIN], width)) &&
         buffer(c, "in", op[NORM_IN], PL_SAME, rows_of(c, op[NORM_ROWS]), width) &&
         buffer(c, "out", op[NORM_OUT], PL_OUT, rows_of(c, op[NORM_ROWS]), width);
}

static bool check_linear(pl_check *c, const int32_t *op) {
  const int32_t k = op[LINEAR_IN_WIDTH];
  if (!rows_field(c, op[LINEAR_ROWS]) || !any_size(c, "inWidth", k)) return false;
  const int64_t rows = rows_of(c, op[LINEAR_ROWS]);
  if (!buffer(c, "in", op[LINEAR_IN], PL_IN, rows, k)) return false;
  for (int32_t i = 0; i < op[LINEAR_SEGMENTS]; i++) {
    const int32_t *s = op + LINEAR_FIRST_SEGMENT + i * LINEAR_SEGMENT_WORDS;
    const int32_t outs = s[SEGMENT_OUTS], column = s[SEGMENT_OUT_COLUMN], width = s[SEGMENT_OUT_WIDTH];
    c->extent_count = 1; /* segments may share an output buffer, side by side; each must be apart from the input */
    if (!any_size(c, "outs", outs) || !any_size(c, "outWidth", width)) return false;
    if (column < 0 || (int64_t)column + outs > width) {
      return pl_refuse(c, "outColumn = %d and outs = %d pass outWidth = %d", column, outs, width);
    }
    if (s[SEGMENT_BIAS] != -1 && !vector(c, "bias", s[SEGMENT_BIAS], outs)) return false;
    if (!matrix(c, "weight", s[SEGMENT_WEIGHT], outs, k) || !buffer(c, "out", s[SEGMENT_OUT], PL_OUT, rows, width) ||
        !apart(c)) {
      return false;
    }
  }
  return true;
}

static bool check_hc_act(pl_check *c, const int32_t *op) {
  const int64_t rows = op[HC_ACT_ROWS] >= 0 && op[HC_ACT_ROWS] <= MOST_SUBROWS ? rows_of(c, op[HC_ACT_ROWS]) : 0;
  if (!rows_field(c, op[HC_ACT_ROWS]) || !any_size(c, "rank", op[HC_ACT_RANK]) ||
      !any_size(c, "streams", op[HC_ACT_STREAMS]) || !bit_field(c, "lowering", op[HC_ACT_LOWERING]) ||
      !buffer(c, "down", op[HC_ACT_DOWN], PL_OUT, rows, op[HC_ACT_RANK])) {
    return false;
  }
  if (op[HC_ACT_INJECT] == -1) return true;
  return lowering(c, op[HC_ACT_LOWERING], true) &&
         buffer(c, "inject", op[HC_ACT_INJECT], PL_OUT, rows, op[HC_ACT_STREAMS]);
}

static bool check_hc_mix(pl_check *c, const int32_t *op) {
  if (!rows_field(c, op[HC_MIX_ROWS]) || !any_size(c, "hidden", op[HC_MIX_HIDDEN]) ||
      !any_size(c, "streams", op[HC_MIX_STREAMS])) {
    return false;
  }
  const int64_t rows = rows_of(c, op[HC_MIX_ROWS]), width = times(op[HC_MIX_HIDDEN], op[HC_MIX_STREAMS]);
  return buffer(c, "mix", op[HC_MIX_MIX], PL_IN, rows, width) &&
         buffer(c, "normed", op[HC_MIX_NORMED], PL_IN, rows, width) &&
         buffer(c, "out", op[HC_MIX_OUT], PL_OUT, rows, op[HC_MIX_HIDDEN]);
}

static bool check_hc_write(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t hidden = op[HC_WRITE_HIDDEN], streams = op[HC_WRITE_STREAMS];
  return any_size(c, "hidden", hidden) && any_size(c, "streams", streams) &&
         buffer(c, "residual", op[HC_WRITE_RESIDUAL], PL_OUT, R, times(hidden, streams)) &&
         (op[HC_WRITE_INJECT] == -1 || buffer(c, "inject", op[HC_WRITE_INJECT], PL_IN, R, streams)) &&
         buffer(c, "y", op[HC_WRITE_Y], PL_IN, R, hidden);
}

static bool check_conv(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t channels = op[CONV_CHANNELS], kernel = op[CONV_KERNEL];
  return any_size(c, "channels", channels) && size_field(c, "kernel", kernel, PL_MAX_KERNEL) &&
         size_field(c, "dilation", op[CONV_DILATION], 1 << 20) &&
         vector(c, "weight", op[CONV_WEIGHT], times(channels, kernel)) &&
         fixed(c, "state", op[CONV_STATE], times(times(kernel - 1, op[CONV_DILATION]), channels)) &&
         buffer(c, "in", op[CONV_IN], PL_IN, R, channels) && buffer(c, "out", op[CONV_OUT], PL_OUT, R, channels);
}

static bool check_gated_delta(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t key_heads = op[GATED_DELTA_KEY_HEADS], value_heads = op[GATED_DELTA_VALUE_HEADS];
  const int32_t key_dim = op[GATED_DELTA_KEY_DIM], value_dim = op[GATED_DELTA_VALUE_DIM];
  if (!any_size(c, "keyHeads", key_heads) || !any_size(c, "valueHeads", value_heads) ||
      !divides(c, "keyHeads", key_heads, "valueHeads", value_heads) ||
      !size_field(c, "keyDim", key_dim, PL_MAX_KEY_DIM) || !any_size(c, "valueDim", value_dim)) {
    return false;
  }
  const int64_t keys = times(2, times(key_heads, key_dim)), values = times(value_heads, value_dim);
  if (keys < 0 || values < 0) return pl_refuse(c, "its heads are absurdly large");
  return vector(c, "negExpA", op[GATED_DELTA_NEG_EXP_A], value_heads) &&
         vector(c, "dtBias", op[GATED_DELTA_DT_BIAS], value_heads) &&
         fixed(c, "state", op[GATED_DELTA_STATE], times(values, key_dim)) &&
         shared(c, (keys + 2ll * value_heads) * 4, 0) &&
         buffer(c, "conv", op[GATED_DELTA_CONV], PL_IN, R, keys + values) &&
         buffer(c, "a", op[GATED_DELTA_A], PL_IN, R, value_heads) &&
         buffer(c, "b", op[GATED_DELTA_B], PL_IN, R, value_heads) &&
         buffer(c, "out", op[GATED_DELTA_OUT], PL_OUT, R, values);
}

static bool check_gated_norm(pl_check *c, const int32_t *op, int64_t R) {
  const int64_t width = times(op[GATED_NORM_HEADS], op[GATED_NORM_DIM]);
  return any_size(c, "heads", op[GATED_NORM_HEADS]) && any_size(c, "dim", op[GATED_NORM_DIM]) &&
         bit_field(c, "silu", op[GATED_NORM_SILU]) && positive_float(c, "eps", op[GATED_NORM_EPS]) &&
         vector(c, "weight", op[GATED_NORM_WEIGHT], op[GATED_NORM_DIM]) &&
         buffer(c, "in", op[GATED_NORM_IN], PL_IN, R, width) && buffer(c, "z", op[GATED_NORM_Z], PL_IN, R, width) &&
         buffer(c, "out", op[GATED_NORM_OUT], PL_OUT, R, width);
}

static bool check_router(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t top_k = op[ROUTER_TOP_K];
  return chosen_experts(c, op[ROUTER_EXPERTS], top_k) && bit_field(c, "normalise", op[ROUTER_NORMALISE]) &&
         buffer(c, "logits", op[ROUTER_LOGITS], PL_IN, R, op[ROUTER_EXPERTS]) &&
         buffer(c, "outIndex", op[ROUTER_OUT_INDEX], PL_OUT, R, top_k) &&
         buffer(c, "outWeight", op[ROUTER_OUT_WEIGHT], PL_OUT, R, top_k);
}

static bool check_moe_group(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t top_k = op[MOE_GROUP_TOP_K];
  return chosen_experts(c, op[MOE_GROUP_EXPERTS], top_k) && buffer(c, "index", op[MOE_GROUP_INDEX], PL_IN, R, top_k) &&
         buffer(c, "outOffsets", op[MOE_GROUP_OUT_OFFSETS], PL_OUT, 1, op[MOE_GROUP_EXPERTS] + 1ll) &&
         buffer(c, "outList", op[MOE_GROUP_OUT_LIST], PL_OUT, R, top_k);
}

static bool expert_matrices(pl_check *c, const char *field, int32_t first, int32_t experts, int64_t rows,
                            int64_t columns) {
  if (first < 0 || (int64_t)first + experts > c->plan->weight_count) {
    return pl_refuse(c, "%s = %d and %d experts pass the table of %d weights", field, first, experts,
                     c->plan->weight_count);
  }
  for (int32_t e = 0; e < experts; e++) {
    if (!matrix(c, field, first + e, rows, columns)) return false;
  }
  return true;
}

static bool check_moe_up(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t hidden = op[MOE_UP_HIDDEN], width = op[MOE_UP_WIDTH], experts = op[MOE_UP_EXPERTS],
                top_k = op[MOE_UP_TOP_K];
  return any_size(c, "hidden", hidden) && any_size(c, "width", width) && experts_field(c, experts, top_k) &&
         positive_or_zero(c, "limit", op[MOE_UP_LIMIT]) &&
         expert_matrices(c, "gate", op[MOE_UP_GATE], experts, width, hidden) &&
         expert_matrices(c, "up", op[MOE_UP_UP], experts, width, hidden) &&
         buffer(c, "in", op[MOE_UP_IN], PL_IN, R, hidden) &&
         buffer(c, "offsets", op[MOE_UP_OFFSETS], PL_IN, 1, experts + 1ll) &&
         buffer(c, "list", op[MOE_UP_LIST], PL_IN, R, top_k) &&
         buffer(c, "out", op[MOE_UP_OUT], PL_OUT, R, times(top_k, width));
}

static bool check_moe_down(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t hidden = op[MOE_DOWN_HIDDEN], width = op[MOE_DOWN_WIDTH], experts = op[MOE_DOWN_EXPERTS];
  const int32_t top_k = op[MOE_DOWN_TOP_K];
  return any_size(c, "hidden", hidden) && any_size(c, "width", width) && experts_field(c, experts, top_k) &&
         expert_matrices(c, "down", op[MOE_DOWN_DOWN], experts, hidden, width) &&
         buffer(c, "in", op[MOE_DOWN_IN], PL_IN, R, times(top_k, width)) &&
         buffer(c, "offsets", op[MOE_DOWN_OFFSETS], PL_IN, 1, experts + 1ll) &&
         buffer(c, "list", op[MOE_DOWN_LIST], PL_IN, R, top_k) &&
         buffer(c, "out", op[MOE_DOWN_OUT], PL_OUT, R, times(top_k, hidden));
}

static bool check_moe_combine(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t hidden = op[MOE_COMBINE_HIDDEN], top_k = op[MOE_COMBINE_TOP_K];
  return any_size(c, "hidden", hidden) && size_field(c, "topK", top_k, PL_MAX_TOP_K) &&
         lowering(c, op[MOE_COMBINE_LOWERING], false) &&
         buffer(c, "down", op[MOE_COMBINE_DOWN], PL_IN, R, times(top_k, hidden)) &&
         buffer(c, "weights", op[MOE_COMBINE_WEIGHTS], PL_IN, R, top_k) &&
         buffer(c, "shared", op[MOE_COMBINE_SHARED], PL_IN, R, hidden) &&
         (op[MOE_COMBINE_SHARED_GATE] == -1 ||
          buffer(c, "sharedGate", op[MOE_COMBINE_SHARED_GATE], PL_IN, R, 1)) &&
         buffer(c, "out", op[MOE_COMBINE_OUT], PL_OUT, R, hidden);
}

static bool check_swiglu(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t width = op[SWIGLU_WIDTH];
  return any_size(c, "width", width) && positive_or_zero(c, "limit", op[SWIGLU_LIMIT]) &&
         buffer(c, "gate", op[SWIGLU_GATE], PL_SAME, R, width) &&
         buffer(c, "up", op[SWIGLU_UP], PL_IN, R, width) && buffer(c, "out", op[SWIGLU_OUT], PL_OUT, R, width);
}

static bool check_add(pl_check *c, const int32_t *op) {
  const int32_t width = op[ADD_WIDTH];
  return rows_field(c, op[ADD_ROWS]) && any_size(c, "width", width) &&
         buffer(c, "a", op[ADD_A], PL_SAME, rows_of(c, op[ADD_ROWS]), width) &&
         buffer(c, "b", op[ADD_B], PL_SAME, rows_of(c, op[ADD_ROWS]), width) &&
         buffer(c, "out", op[ADD_OUT], PL_OUT, rows_of(c, op[ADD_ROWS]), width);
}

static bool check_ple_gate(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t hidden = op[PLE_GATE_HIDDEN], streams = op[PLE_GATE_STREAMS];
  const int64_t width = times(hidden, streams);
  return any_size(c, "hidden", hidden) && any_size(c, "streams", streams) &&
         lowering(c, op[PLE_GATE_LOWERING], false) && positive_float(c, "rootHidden", op[PLE_GATE_ROOT_HIDDEN]) &&
         buffer(c, "key", op[PLE_GATE_KEY], PL_IN, R, width) &&
         buffer(c, "query", op[PLE_GATE_QUERY], PL_IN, R, width) &&
         buffer(c, "value", op[PLE_GATE_VALUE], PL_IN, R, hidden) &&
         buffer(c, "out", op[PLE_GATE_OUT], PL_OUT, R, width);
}

static bool check_ple_add(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t width = op[PLE_ADD_WIDTH];
  return any_size(c, "width", width) && buffer(c, "residual", op[PLE_ADD_RESIDUAL], PL_OUT, R, width) &&
         buffer(c, "u", op[PLE_ADD_U], PL_IN, R, width) && buffer(c, "conv", op[PLE_ADD_CONV], PL_IN, R, width);
}

static bool check_gather(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t width = op[GATHER_WIDTH];
  return any_size(c, "width", width) && buffer(c, "in", op[GATHER_IN], PL_IN, R, width) &&
         buffer(c, "out", op[GATHER_OUT], PL_OUT, c->plan->out_capacity, width);
}

static bool check_tap(pl_check *c, const int32_t *op, int64_t R) {
  const int32_t width = op[TAP_WIDTH];
  return any_size(c, "width", width) && buffer(c, "in", op[TAP_IN], PL_IN, R, width) &&
         buffer(c, "out", op[TAP_OUT], PL_OUT, R, width);
}

static bool check_fields(pl_check *c) {
  const int32_t *op = c->op;
  const int64_t R = c->plan->row_capacity;
  switch (op[0]) {
    case OP_EMBED: return check_embed(c, op, R);
    case OP_NORM: return check_norm(c, op);
    case OP_LINEAR: return check_linear(c, op);
    case OP_HC_ACT: return check_hc_act(c, op);
    case OP_HC_MIX: return check_hc_mix(c, op);
    case OP_HC_WRITE: return check_hc_write(c, op, R);
    case OP_CONV: return check_conv(c, op, R);
    case OP_GATED_DELTA: return check_gated_delta(c, op, R);
    case OP_GATED_NORM: return check_gated_norm(c, op, R);
    case OP_ATTENTION_PREP: return check_attention_prep(c, op, R);
    case OP_INDEX_PREP: return check_index_prep(c, op, R);
    case OP_INDEX_BLOCKS: return check_index_blocks(c, op);
    case OP_INDEX_SELECT: return check_index_select(c, op, R);
    case OP_ATTENTION: return check_attention(c, op, R);
    case OP_ROUTER: return check_router(c, op, R);
    case OP_MOE_GROUP: return check_moe_group(c, op, R);
    case OP_MOE_UP: return check_moe_up(c, op, R);
    case OP_MOE_DOWN: return check_moe_down(c, op, R);
    case OP_MOE_COMBINE: return check_moe_combine(c, op, R);
    case OP_SWIGLU: return check_swiglu(c, op, R);
    case OP_ADD: return check_add(c, op);
    case OP_PLE_GATE: return check_ple_gate(c, op, R);
    case OP_PLE_ADD: return check_ple_add(c, op, R);
    case OP_GATHER: return check_gather(c, op, R);
    case OP_TAP: return check_tap(c, op, R);
    case OP_MHC_WEIGHTS: return check_mhc_weights(c, op);
    case OP_MHC_SUM: return check_mhc_sum(c, op);
    case OP_MHC_WRITE: return check_mhc_write(c, op, R);
    case OP_GROUPED_LINEAR: return check_grouped_linear(c, op);
    case OP_SCORE_ROUTER: return check_score_router(c, op, R);
    case OP_LAYER_NORM: return check_layer_norm(c, op);
    case OP_KDA: return check_kda(c, op, R);
    case OP_ROPE_TAIL: return check_rope_tail(c, op);
    case OP_POOL: return check_pool(c, op, R);
    case OP_WINDOW_ATTENTION: return check_window_attention(c, op, R);
    case OP_LATENT_ATTENTION: return check_latent_attention(c, op, R);
    case OP_LATENT_STORE: return check_latent_store(c, op, R);
    case OP_EMBED_GREEDY: return check_embed_greedy(c, op, R);
    default: return pl_refuse(c, "code %d is not in the op table", op[0]);
  }
}

bool pl_check_op(pl_check *c) { return check_fields(c) && apart(c); }

const char *pl_op_name(int32_t code, int32_t *words) {
  /* The last field of an op stands just before its end. */
  static const struct {
    const char *name;
    int32_t last;
  } table[] = {
      [OP_EMBED] = {"embed", EMBED_WEIGHT},
      [OP_NORM] = {"norm", NORM_EPS},
      [OP_LINEAR] = {"linear", LINEAR_SEGMENTS},
      [OP_HC_ACT] = {"hcAct", HC_ACT_LOWERING},
      [OP_HC_MIX] = {"hcMix", HC_MIX_STREAMS},
      [OP_HC_WRITE] = {"hcWrite", HC_WRITE_STREAMS},
      [OP_CONV] = {"conv", CONV_STATE},
      [OP_GATED_DELTA] = {"gatedDelta", GATED_DELTA_STATE},
      [OP_GATED_NORM] = {"gatedNorm", GATED_NORM_SILU},
      [OP_ATTENTION_PREP] = {"attentionPrep", ATTENTION_PREP_VALUES},
      [OP_INDEX_PREP] = {"indexPrep", INDEX_PREP_RAW},
      [OP_INDEX_BLOCKS] = {"indexBlocks", INDEX_BLOCKS_BLOCKS},
      [OP_INDEX_SELECT] = {"indexSelect", INDEX_SELECT_DOT_SCALE},
      [OP_ATTENTION] = {"attention", ATTENTION_VALUES},
      [OP_ROUTER] = {"router", ROUTER_OUT_WEIGHT},
      [OP_MOE_GROUP] = {"moeGroup", MOE_GROUP_OUT_LIST},
      [OP_MOE_UP] = {"moeUp", MOE_UP_LIMIT},
      [OP_MOE_DOWN] = {"moeDown", MOE_DOWN_OUT},
      [OP_MOE_COMBINE] = {"moeCombine", MOE_COMBINE_LOWERING},
      [OP_SWIGLU] = {"swiglu", SWIGLU_LIMIT},
      [OP_ADD] = {"add", ADD_WIDTH},
      [OP_PLE_GATE] = {"pleGate", PLE_GATE_LOWERING},
      [OP_PLE_ADD] = {"pleAdd", PLE_ADD_WIDTH},
      [OP_GATHER] = {"gather", GATHER_WIDTH},
      [OP_TAP] = {"tap", TAP_WIDTH},
      [OP_MHC_WEIGHTS] = {"mhcWeights", MHC_WEIGHTS_EPS},
      [OP_MHC_SUM] = {"mhcSum", MHC_SUM_STREAMS},
      [OP_MHC_WRITE] = {"mhcWrite", MHC_WRITE_STREAMS},
      [OP_GROUPED_LINEAR] = {"groupedLinear", GROUPED_LINEAR_ROW_OFFSET},
      [OP_SCORE_ROUTER] = {"scoreRouter", SCORE_ROUTER_OUT_WEIGHT},
      [OP_LAYER_NORM] = {"layerNorm", LAYER_NORM_EPS},
      [OP_KDA] = {"kda", KDA_STATE},
      [OP_ROPE_TAIL] = {"ropeTail", ROPE_TAIL_INVERSE},
      [OP_POOL] = {"pool", POOL_POOLED},
      [OP_WINDOW_ATTENTION] = {"windowAttention", WINDOW_ATTENTION_COMPRESSED},
      [OP_LATENT_ATTENTION] = {"latentAttention", LATENT_ATTENTION_LATENT},
      [OP_LATENT_STORE] = {"latentStore", LATENT_STORE_LATENT},
      [OP_EMBED_GREEDY] = {"embedGreedy", EMBED_GREEDY_WEIGHT},
  };
  if (code < 1 || code >= (int32_t)(sizeof table / sizeof table[0])) return NULL;
  *words = table[code].last + 1;
  return table[code].name;
}
