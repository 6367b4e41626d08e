/*
 * All kernels for one instruction set: included once by each kernels-*.c, which chooses the form of the 16-lane vector
 * (PL_LANES) and is compiled with that set enabled. The only name that leaves the file is its table.
 */
#include "ops-basic.h"
#include "ops-linear.h"
#include "ops-moe.h"
#include "ops-pages.h"
#include "ops-attention.h"
#include "ops-index.h"
#include "ops-conv.h"
#include "ops-delta.h"
#include "ops-manifold.h"
#include "ops-router.h"
#include "ops-latent.h"
#include "ops-pool.h"

static int64_t scratch_bytes(const pl_plan *plan, const pl_call *call) {
  int64_t attention = attention_scratch_bytes(plan, call), index = index_scratch_bytes(plan, call);
  int64_t state = PL_MAX_KEY_DIM * DELTA_COLUMNS * 4, router = ROUTER_SCRATCH;
  int64_t most = attention > index ? attention : index;
  const int64_t latent = latent_scratch_bytes(plan, call);
  most = most > latent ? most : latent;
  most += (int64_t)sizeof(pl_dot_scratch);
  most = most > plan->pool_bytes ? most : plan->pool_bytes;
  most = most > state ? most : state;
  return most > router ? most : router;
}

static float read_sum(const uint8_t *p, int64_t bytes) {
  f32x16 acc[8];
  UNROLL
  for (int i = 0; i < 8; i++) acc[i] = v_zero();
  for (int64_t at = 0; at < bytes; at += 512) {
    const float *x = (const float *)(p + at);
    UNROLL
    for (int i = 0; i < 8; i++) {
      PREFETCH(p + at + 4096 + i * 64);
      acc[i] = v_add(acc[i], v_load(x + i * 16));
    }
  }
  for (int i = 1; i < 8; i++) acc[0] = v_add(acc[0], acc[i]);
  return v_sum(acc[0]);
}

/* The most multiply-adds an instruction of this set does. */
#if PL_PAIR_PRODUCTS
#define PROBE_FMA(a, b, c) v_fma_pairs(a, b, c)
enum { PROBE_LANES = 2 * VF_LANES };
#else
#define PROBE_FMA(a, b, c) vf_fma(a, b, c)
enum { PROBE_LANES = VF_LANES };
#endif

/* Enough chains to hide the latency of an addition behind the others, few enough for sixteen registers. */
enum { CHAINS = 12 };

static float multiply_add(int64_t loops, float x) {
  vf acc[CHAINS], factor = vf_set(x), term = vf_set(1.0f);
  UNROLL
  for (int i = 0; i < CHAINS; i++) acc[i] = vf_set(x + (float)i);
  for (int64_t loop = 0; loop < loops; loop++) {
    UNROLL
    for (int i = 0; i < CHAINS; i++) acc[i] = PROBE_FMA(factor, term, acc[i]);
  }
  float out[CHAINS * VF_LANES], sum = 0.0f;
  for (int i = 0; i < CHAINS; i++) vf_store(out + i * VF_LANES, acc[i]);
  for (int i = 0; i < CHAINS * VF_LANES; i++) sum += out[i];
  return sum;
}

#define PL_JOIN_(a, b) a##b
#define PL_JOIN(a, b) PL_JOIN_(a, b)

const pl_kernels PL_JOIN(pl_kernels_, PL_ISA) = {
    .isa = PL_ISA_NAME,
    .ops =
        {
            [OP_EMBED] = {{embed_prepare, embed_work}},
            [OP_NORM] = {{norm_prepare, norm_work}},
            [OP_LINEAR] = {{linear_prepare, linear_work}},
            [OP_HC_ACT] = {{hc_act_prepare, hc_act_work}},
            [OP_HC_MIX] = {{hc_mix_prepare, hc_mix_work}},
            [OP_HC_WRITE] = {{hc_write_prepare, hc_write_work}},
            [OP_CONV] = {{conv_prepare, conv_work}},
            [OP_GATED_DELTA] = {{delta_gates_prepare, delta_gates_work}, {delta_prepare, delta_work}},
            [OP_GATED_NORM] = {{gated_norm_prepare, gated_norm_work}},
            [OP_ATTENTION_PREP] = {{attention_prep_prepare, attention_prep_work}},
            [OP_INDEX_PREP] = {{index_prep_prepare, index_prep_work}},
            [OP_INDEX_BLOCKS] = {{index_blocks_prepare, index_blocks_work}},
            [OP_INDEX_SELECT] = {{index_select_prepare, index_select_work}},
            [OP_ATTENTION] = {{attention_prepare, attention_work}},
            [OP_ROUTER] = {{router_prepare, router_work}},
            [OP_MOE_GROUP] = {{moe_group_prepare, moe_group_work}},
            [OP_MOE_UP] = {{moe_up_prepare, moe_up_work}},
            [OP_MOE_DOWN] = {{moe_down_prepare, moe_down_work}},
            [OP_MOE_COMBINE] = {{moe_combine_prepare, moe_combine_work}},
            [OP_SWIGLU] = {{swiglu_prepare, swiglu_work}},
            [OP_ADD] = {{add_prepare, add_work}},
            [OP_PLE_GATE] = {{ple_gate_prepare, ple_gate_work}},
            [OP_PLE_ADD] = {{ple_add_prepare, ple_add_work}},
            [OP_GATHER] = {{gather_prepare, gather_work}},
            [OP_TAP] = {{tap_prepare, tap_work}},
            [OP_MHC_WEIGHTS] = {{mhc_weights_prepare, mhc_weights_work}},
            [OP_MHC_SUM] = {{mhc_sum_prepare, mhc_sum_work}},
            [OP_MHC_WRITE] = {{mhc_write_prepare, mhc_write_work}},
            [OP_GROUPED_LINEAR] = {{grouped_linear_prepare, grouped_linear_work}},
            [OP_SCORE_ROUTER] = {{score_router_prepare, score_router_work}},
            [OP_LAYER_NORM] = {{layer_norm_prepare, layer_norm_work}},
            [OP_KDA] = {{kda_gates_prepare, kda_gates_work}, {kda_prepare, kda_work}},
            [OP_ROPE_TAIL] = {{rope_tail_prepare, rope_tail_work}},
            [OP_POOL] = {{pool_prepare, pool_work}, {pool_keep_prepare, pool_keep_work}},
            [OP_WINDOW_ATTENTION] = {{window_attention_prepare, window_attention_work},
                                     {window_keep_prepare, window_keep_work}},
            [OP_LATENT_ATTENTION] = {{latent_attention_prepare, latent_attention_work}},
            [OP_LATENT_STORE] = {{latent_store_prepare, latent_store_work}},
            [OP_EMBED_GREEDY] = {{embed_greedy_prepare, embed_greedy_work}},
        },
    .scratch_bytes = scratch_bytes,
    .fits_pairs = FITS_PAIRS,
    .read_sum = read_sum,
    .multiply_add = multiply_add,
    .multiply_add_lanes = CHAINS * PROBE_LANES,
};
