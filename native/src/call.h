/*
 * One execution's table of rows, copied out of a call block and proved against a plan, so that a block that changes
 * while a plan runs can spoil numbers but never memory. Only the block's cancel word is read again.
 */
#ifndef PL_CALL_H
#define PL_CALL_H

#include "plan.h"

typedef struct {
  int32_t row_start, row_count, start_position, page_count;
  const uint8_t *fixed_in;
  uint8_t *fixed_out;
  uint8_t *const *pages;
} pl_sequence;

typedef struct {
  int32_t rows, out_rows, sequence_count, max_position;
  const int32_t *tokens, *positions, *sequence_of_row, *selected; /* selected: the M rows of the head */
  const pl_sequence *sequences;
  volatile int32_t *block; /* the block itself: cancel word in, ops done out */
  void *memory;
} pl_call;

/* Fills `call`; false with a text in `error`. `available` as for a plan: slabs and pages must be known memory. */
bool pl_call_read(pl_call *call, const pl_plan *plan, void *block, int64_t block_bytes, pl_available available,
                  void *context, char *error);
void pl_call_free(pl_call *call);

#endif
