/*
 * The causal convolution. Its state is read from a sequence`s input slab and written to its output slab.
 *
 * Invariants: channels are independent of each other, so a unit owns some of them for all rows of one sequence.
 */
#ifndef PL_OPS_CONV_H
#define PL_OPS_CONV_H

#include "ops-basic.h"

/* ---- conv ---- */

enum { CONV_CHANNELS_UNIT = 64 };

static pl_stage conv_prepare(const pl_run *run, const int32_t *op) {
  int64_t cuts = pl_ceil_div(op[CONV_CHANNELS], CONV_CHANNELS_UNIT);
  double rows = (double)run->call->rows / run->call->sequence_count;
  return (pl_stage){run->call->sequence_count * cuts, 40 + rows * CONV_CHANNELS_UNIT * (0.6 + 0.1 * op[CONV_KERNEL])};
}

/* Weights [channel][tap] as vectors [tap][channel]. */
INLINE void conv_taps(const int64_t kernel, const int lanes, const float *weight, float *taps) {
  for (int64_t j = 0; j < kernel; j++) {
    for (int c = 0; c < lanes; c++) taps[j * 16 + c] = weight[c * kernel + j];
    for (int c = lanes; c < 16; c++) taps[j * 16 + c] = 0.0f;
  }
}

/* Sixteen (or `lanes`) channels of one sequence. */
static void conv_channels(const pl_run *run, const int32_t *op, const pl_sequence *sequence, int64_t channel,
                          int lanes) {
  const pl_plan *plan = run->plan;
  const int64_t channels = op[CONV_CHANNELS], kernel = op[CONV_KERNEL], dilation = op[CONV_DILATION];
  const int64_t before = (kernel - 1) * dilation, rows = sequence->row_count;
  const float *weight = pl_vector(run, op[CONV_WEIGHT]) + channel * kernel;
  const float *in = pl_at(run, op[CONV_IN], sequence->row_start, channels) + channel;
  float *out = pl_at(run, op[CONV_OUT], sequence->row_start, channels) + channel;
  const float *old = (const float *)(sequence->fixed_in + op[CONV_STATE]) + channel;
  float *fresh = (float *)(sequence->fixed_out + op[CONV_STATE]) + channel;
  float taps[PL_MAX_KERNEL * 16];
  if (kernel == 4 && lanes == 16)
    conv_taps(4, 16, weight, taps);
  else
    conv_taps(kernel, lanes, weight, taps);
  for (int64_t t = 0; t < rows; t++) {
    f32x16 sum = v_zero();
    for (int64_t j = 0; j < kernel; j++) {
      int64_t at = t - (kernel - 1 - j) * dilation;
      const float *x = at >= 0 ? in + at * channels : old + (before + at) * channels;
      sum = v_fma(v_load(taps + j * 16), v_load_n(x, lanes), sum);
    }
    v_store_n(out + t * channels, v_silu(plan, v_act(plan, sum)), lanes);
  }
  for (int64_t i = 0; i < before; i++) { /* the last `before` rows of old ++ new */
    int64_t at = i + rows - before;
    const float *x = at >= 0 ? in + at * channels : old + (before + at) * channels;
    v_store_n(fresh + i * channels, v_load_n(x, lanes), lanes);
  }
}

static void conv_work(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch) {
  (void)scratch;
  const int64_t channels = op[CONV_CHANNELS], cuts = pl_ceil_div(channels, CONV_CHANNELS_UNIT);
  for (int64_t unit = from; unit < to; unit++) {
    const pl_sequence *sequence = &run->call->sequences[unit / cuts];
    const int64_t first = unit % cuts * CONV_CHANNELS_UNIT, end = pl_min(first + CONV_CHANNELS_UNIT, channels);
    for (int64_t c = first; c < end; c += 16) conv_channels(run, op, sequence, c, (int)pl_min(16, end - c));
  }
}

#endif
