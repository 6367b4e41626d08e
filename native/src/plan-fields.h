/*
 * Checks of single fields: sizes, flags, buffers, weights, offsets in slabs and pages, and what they demand of a call.
 * For plan-check.c alone; each refuses with the field's name and returns false.
 */
#ifndef PL_PLAN_FIELDS_H
#define PL_PLAN_FIELDS_H

#include <math.h>

#include "plan-check.h"

static bool size_field(pl_check *c, const char *field, int32_t value, int32_t most) {
  if (value >= 1 && value <= most) return true;
  return pl_refuse(c, "%s = %d is not between 1 and %d", field, value, most);
}
static bool any_size(pl_check *c, const char *field, int32_t value) { return size_field(c, field, value, INT32_MAX); }

static bool bit_field(pl_check *c, const char *field, int32_t value) {
  return value == 0 || value == 1 || pl_refuse(c, "%s = %d is neither 0 nor 1", field, value);
}

static bool positive_float(pl_check *c, const char *field, int32_t bits) {
  float x = pl_float(bits);
  return (isfinite(x) && x > 0) || pl_refuse(c, "%s is not a positive finite number", field);
}

/* A number whose 0 stands for none. */
static bool positive_or_zero(pl_check *c, const char *field, int32_t bits) {
  return pl_float(bits) == 0 || positive_float(c, field, bits);
}

static bool divides(pl_check *c, const char *part_name, int32_t part, const char *whole_name, int32_t whole) {
  return whole % part == 0 || pl_refuse(c, "%s = %d does not divide %s = %d", part_name, part, whole_name, whole);
}

/* A product of sizes, or -1 when it is beyond any workspace. */
static int64_t times(int64_t a, int64_t b) {
  int64_t product;
  return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) || product > (1ll << 40) ? -1 : product;
}

/* A buffer of `rows` rows of `width` words: inside the workspace, remembered for the overlap check. */
static bool buffer(pl_check *c, const char *field, int32_t offset, pl_access access, int64_t rows, int64_t width) {
  int64_t words = times(rows, width);
  if (offset < 0) return pl_refuse(c, "%s = %d is no offset in the workspace", field, offset);
  if (words < 0 || offset + words > c->plan->workspace_words) {
    return pl_refuse(c, "%s at word %d passes the workspace of %lld", field, offset,
                     (long long)c->plan->workspace_words);
  }
  c->extents[c->extent_count++] = (pl_extent){field, access, offset, words};
  return true;
}

static bool overlaps(const pl_extent *a, const pl_extent *b) {
  return a->words > 0 && a->offset < b->offset + b->words && b->offset < a->offset + a->words;
}

/* No output may touch another buffer of the op, except where the op table lets it be the very same one. */
static bool apart(pl_check *c) {
  for (int i = 0; i < c->extent_count; i++) {
    const pl_extent *written = &c->extents[i];
    if (written->access != PL_OUT) continue;
    for (int j = 0; j < c->extent_count; j++) {
      const pl_extent *other = &c->extents[j];
      if (i == j || (other->access == PL_SAME && other->offset == written->offset)) continue;
      if (overlaps(written, other)) return pl_refuse(c, "%s overlaps %s", written->field, other->field);
    }
  }
  return true;
}

/* A weight of at least `elements`; `vector`: float32, as the op reads it. Returns what is there beyond, if asked. */
static bool weight(pl_check *c, const char *field, int32_t index, int64_t elements, bool vector, int64_t *available) {
  if (index < 0 || index >= c->plan->weight_count) {
    return pl_refuse(c, "%s = %d is no index of %d weights", field, index, c->plan->weight_count);
  }
  const pl_weight *w = &c->plan->weights[index];
  if (vector && w->dtype != DTYPE_F32) return pl_refuse(c, "%s = %d is not float32", field, index);
  int64_t bytes = c->available(c->context, (uint64_t)(uintptr_t)w->data);
  if (elements < 0 || bytes / pl_dtype_bytes(w->dtype) < elements) {
    return pl_refuse(c, "%s = %d: %lld elements do not lie in memory of this backend", field, index,
                     (long long)elements);
  }
  if (available) *available = bytes / pl_dtype_bytes(w->dtype);
  return true;
}
static bool vector(pl_check *c, const char *field, int32_t index, int64_t elements) {
  return weight(c, field, index, elements, true, NULL);
}

/* Bytes of weights. With a few rows large models wait for memory in any case, with many rows kernels look for themselves. */
enum { LOOK_AT_MOST = 256 << 20 };

/* Notes whether the first `elements` of a matrix fit dot-pairs.h. */
static void look_at(pl_plan *plan, pl_weight *w, int64_t elements) {
  if (!plan->fits_pairs || w->dtype != DTYPE_BF16 || elements <= w->seen) return;
  const bool known = w->seen == 0 || w->pairs;
  plan->looked_at += elements * 2;
  w->pairs = known && plan->looked_at <= LOOK_AT_MOST && plan->fits_pairs((const uint16_t *)w->data, elements);
  w->seen = elements;
}
static bool matrix(pl_check *c, const char *field, int32_t index, int64_t rows, int64_t columns) {
  if (!weight(c, field, index, times(rows, columns), false, NULL)) return false;
  look_at(c->plan, &c->plan->weights[index], rows * columns);
  return true;
}

static bool fixed(pl_check *c, const char *field, int32_t offset, int64_t words) {
  if (offset < 0 || offset % 4 != 0 || words < 0)
    return pl_refuse(c, "%s = %d is no float32 offset in a slab", field, offset);
  int64_t end = offset + words * 4;
  if (end > c->plan->fixed_bytes) c->plan->fixed_bytes = end;
  return true;
}

static bool page(pl_check *c, const char *field, int32_t offset, int64_t elements) {
  const int64_t size = c->plan->kv_type ? 2 : 4;
  if (offset < 0 || offset % size != 0 || elements < 0)
    return pl_refuse(c, "%s = %d is no element offset in a page", field, offset);
  int64_t end = offset + elements * size;
  if (end > c->plan->page_bytes) c->plan->page_bytes = end;
  return true;
}

/* `always`: lowering 0 is the standalone table and not the ordinary sigmoid. */
static bool lowering(pl_check *c, int32_t value, bool always) {
  if (!bit_field(c, "lowering", value)) return false;
  if (!c->plan->act || (value == 0 && !always) || c->plan->tables[value]) return true;
  return pl_refuse(c, "lowering = %d needs a table that the header does not name", value);
}

/* A rotary table; positions are bounded by its memory. */
static bool rope(pl_check *c, int32_t index, int32_t rotary, int32_t dim) {
  int64_t elements = 0;
  if (!any_size(c, "rotary", rotary)) return false;
  if (rotary % 2 != 0 || rotary > dim) return pl_refuse(c, "rotary = %d is odd or above dim = %d", rotary, dim);
  if (!weight(c, "rope", index, rotary, true, &elements)) return false;
  if (elements / rotary < c->plan->position_limit) c->plan->position_limit = elements / rotary;
  return true;
}

static bool block_fits(pl_check *c, int32_t block) {
  return any_size(c, "block", block) && divides(c, "block", block, "pageTokens", c->plan->page_tokens);
}

static bool head_dim(pl_check *c, int32_t dim) {
  if (!size_field(c, "dim", dim, PL_MAX_DIM)) return false;
  if (dim > c->plan->max_dim) c->plan->max_dim = dim;
  return true;
}

static bool shared(pl_check *c, int64_t per_row, int64_t bytes) {
  if (per_row < 0 || bytes < 0) return pl_refuse(c, "its sizes are absurd");
  if (per_row > c->plan->shared_bytes_per_row) c->plan->shared_bytes_per_row = per_row;
  if (bytes > c->plan->shared_bytes) c->plan->shared_bytes = bytes;
  return true;
}

static bool experts_field(pl_check *c, int32_t experts, int32_t top_k) {
  return size_field(c, "experts", experts, PL_MAX_EXPERTS) && size_field(c, "topK", top_k, PL_MAX_TOP_K) &&
         shared(c, 0, (experts + 1ll) * 64);
}
static bool chosen_experts(pl_check *c, int32_t experts, int32_t top_k) {
  return experts_field(c, experts, top_k) &&
         (top_k <= experts || pl_refuse(c, "topK = %d passes experts = %d", top_k, experts));
}

enum { MOST_SUBROWS = 64 };
/* 0: the trunk's rows, 1: the selected ones, n >= 2: n rows for each of the trunk. */
static int64_t rows_of(const pl_check *c, int32_t rows) {
  return rows == 1 ? c->plan->out_capacity : times(c->plan->row_capacity, rows ? rows : 1);
}
static bool rows_field(pl_check *c, int32_t rows) {
  if (rows >= 0 && rows <= MOST_SUBROWS) return true;
  return pl_refuse(c, "rows = %d is not in 0 to %d", rows, MOST_SUBROWS);
}

#endif
