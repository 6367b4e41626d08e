/* Loading of plans: header, op boundaries, weights; the fields of each op are plan-check.c's. */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan-check.h"

static bool refuse(char *error, const char *text, int64_t value) {
  snprintf(error, PL_ERROR_BYTES, text, (long long)value);
  return false;
}

static bool is_bit(int32_t x) { return x == 0 || x == 1; }

static bool read_header(pl_plan *plan, const pl_program *program, char *error) {
  const int32_t *h = program->code;
  if (program->code_words < PLAN_HEADER_WORDS)
    return refuse(error, "header: %lld words are too few", program->code_words);
  if (program->code_words > INT32_MAX) return refuse(error, "header: %lld words are too many", program->code_words);
  if (h[PLAN_MAGIC] != PLAN_MAGIC_VALUE) return refuse(error, "header: magic = %lld is not a plan's", h[PLAN_MAGIC]);
  if (h[PLAN_VERSION] != PLAN_VERSION_VALUE) return refuse(error, "header: version = %lld is unknown", h[PLAN_VERSION]);
  if (!is_bit(h[PLAN_ACT])) return refuse(error, "header: act = %lld is neither 0 nor 1", h[PLAN_ACT]);
  if (!is_bit(h[PLAN_MTPLX])) return refuse(error, "header: mtplx = %lld is neither 0 nor 1", h[PLAN_MTPLX]);
  if (!is_bit(h[PLAN_KV_TYPE])) return refuse(error, "header: kvType = %lld is neither 0 nor 1", h[PLAN_KV_TYPE]);
  if (h[PLAN_MTPLX] && !h[PLAN_ACT]) return refuse(error, "header: mtplx = %lld needs bfloat16 activations", 1);
  if (h[PLAN_PAGE_TOKENS] < 1) return refuse(error, "header: pageTokens = %lld is below 1", h[PLAN_PAGE_TOKENS]);
  if (h[PLAN_ROW_CAPACITY] < 1) return refuse(error, "header: rowCapacity = %lld is below 1", h[PLAN_ROW_CAPACITY]);
  if (h[PLAN_OUT_CAPACITY] < 0) return refuse(error, "header: outCapacity = %lld is negative", h[PLAN_OUT_CAPACITY]);
  if (h[PLAN_WORKSPACE_WORDS] < 0)
    return refuse(error, "header: workspaceWords = %lld is negative", h[PLAN_WORKSPACE_WORDS]);
  if (h[PLAN_OPS] < 0) return refuse(error, "header: ops = %lld is negative", h[PLAN_OPS]);
  if (h[PLAN_WEIGHTS] != program->weight_count) {
    return refuse(error, "header: weights = %lld is not the length of the weight table", h[PLAN_WEIGHTS]);
  }
  plan->op_count = h[PLAN_OPS];
  plan->act = h[PLAN_ACT];
  plan->mtplx = h[PLAN_MTPLX];
  plan->kv_type = h[PLAN_KV_TYPE];
  plan->page_tokens = h[PLAN_PAGE_TOKENS];
  plan->row_capacity = h[PLAN_ROW_CAPACITY];
  plan->out_capacity = h[PLAN_OUT_CAPACITY];
  plan->workspace_words = h[PLAN_WORKSPACE_WORDS];
  plan->weight_count = h[PLAN_WEIGHTS];
  plan->token_limit = INT32_MAX;
  plan->position_limit = PL_MAX_POSITIONS;
  return true;
}

/* Weight addresses as pointers. Their extents are checked where ops use them: entries that no op names may be stale. */
static bool read_weights(pl_plan *plan, const pl_program *program, char *error) {
  plan->weights = calloc((size_t)plan->weight_count + 1, sizeof *plan->weights);
  if (!plan->weights) return refuse(error, "out of memory for %lld weights", plan->weight_count);
  for (int32_t i = 0; i < plan->weight_count; i++) {
    double address = program->addresses[i];
    if (!(address >= 1.0 && address <= 9007199254740991.0) || address != (double)(uint64_t)address) {
      return refuse(error, "weight %lld: its address is no positive integer", i);
    }
    if (program->dtypes[i] < 0 || program->dtypes[i] > DTYPE_F16)
      return refuse(error, "weight %lld: unknown dtype code", i);
    plan->weights[i] = (pl_weight){.data = (const uint8_t *)(uintptr_t)address, .dtype = program->dtypes[i]};
  }
  return true;
}

static bool read_tables(pl_plan *plan, const int32_t *header, pl_available available, void *context, char *error) {
  const int32_t index[2] = {header[PLAN_STANDALONE_TABLE], header[PLAN_FUSED_TABLE]};
  for (int i = 0; i < 2; i++) {
    if (index[i] == -1) continue;
    if (index[i] < -1 || index[i] >= plan->weight_count)
      return refuse(error, "header: a table's index is %lld", index[i]);
    const uint8_t *data = plan->weights[index[i]].data;
    if (available(context, (uint64_t)(uintptr_t)data) < 2 * 65536) {
      return refuse(error, "header: table %lld does not lie in memory of this backend", i);
    }
    plan->tables[i] = data;
  }
  if (plan->mtplx && !plan->tables[0]) return refuse(error, "header: standaloneTable = %lld, but mtplx needs it", -1);
  return true;
}

static bool read_ops(pl_plan *plan, const pl_program *program, pl_available available, void *context, char *error) {
  plan->word_count = program->code_words - PLAN_HEADER_WORDS;
  plan->words = malloc((size_t)(plan->word_count + 1) * 4);
  if (!plan->words) return refuse(error, "out of memory for %lld words", plan->word_count);
  memcpy(plan->words, program->code + PLAN_HEADER_WORDS, (size_t)plan->word_count * 4);
  int32_t index = 0;
  for (int64_t at = 0; at < plan->word_count; index++) {
    const int32_t *op = plan->words + at;
    const int64_t left = plan->word_count - at;
    int32_t words = 0;
    pl_check check = {
        .plan = plan, .op = op, .index = index, .available = available, .context = context, .error = error};
    check.name = pl_op_name(op[0], &words);
    if (!check.name) {
      check.name = "unknown";
      return pl_refuse(&check, "code %d is not in the op table", op[0]);
    }
    if (left < 2 || op[1] < words || op[1] > left)
      return pl_refuse(&check, "its length does not fit, %lld words are left", (long long)left);
    int64_t expected = words;
    if (op[0] == OP_LINEAR) {
      if (op[LINEAR_SEGMENTS] < 1) return pl_refuse(&check, "segments = %d is below 1", op[LINEAR_SEGMENTS]);
      expected += (int64_t)op[LINEAR_SEGMENTS] * LINEAR_SEGMENT_WORDS;
    }
    if (op[1] != expected) return pl_refuse(&check, "length %d, the op table says %lld", op[1], (long long)expected);
    if (!pl_check_op(&check)) return false;
    at += op[1];
  }
  if (index != plan->op_count) return refuse(error, "header: ops = %lld is not how many follow", plan->op_count);
  return true;
}

pl_plan *pl_plan_load(const pl_program *program, pl_fits_pairs fits_pairs, pl_available available, void *context,
                      char *error) {
  pl_plan *plan = calloc(1, sizeof *plan);
  if (!plan) {
    refuse(error, "out of memory for a plan of %lld words", program->code_words);
    return NULL;
  }
  plan->fits_pairs = fits_pairs;
  if (read_header(plan, program, error) && read_weights(plan, program, error) &&
      read_tables(plan, program->code, available, context, error) &&
      read_ops(plan, program, available, context, error)) {
    return plan;
  }
  pl_plan_free(plan);
  return NULL;
}

void pl_plan_free(pl_plan *plan) {
  if (!plan) return;
  free(plan->words);
  free(plan->weights);
  free(plan);
}
