/*
 * The check of one op: its fields against the op table, this plan's workspace, weights and state. The first complaint
 * stays in `error`; a check function then returns false and the caller gives up.
 */
#ifndef PL_PLAN_CHECK_H
#define PL_PLAN_CHECK_H

#include "plan.h"

enum { PL_MAX_EXTENTS = 10 };
typedef enum { PL_IN, PL_OUT, PL_SAME } pl_access; /* PL_SAME: an input that an output may coincide with */

typedef struct {
  const char *field;
  pl_access access;
  int64_t offset, words;
} pl_extent;

typedef struct {
  pl_plan *plan;
  const int32_t *op;
  int32_t index;
  const char *name;
  pl_available available;
  void *context;
  char *error;
  pl_extent extents[PL_MAX_EXTENTS];
  int extent_count;
} pl_check;

/* Writes "op I (NAME): ..." and returns false. */
bool pl_refuse(pl_check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Checks the op at c->op, whose code and length are right for `name`. */
bool pl_check_op(pl_check *c);
/* The name of an op code and its length in words without segments; NULL for a code that the table has not. */
const char *pl_op_name(int32_t code, int32_t *words);

#endif
