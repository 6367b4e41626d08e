/* Reading and proving of call blocks. See call.h; the layout is src/engine/plan/call-block.ts. */
#include "call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const int32_t *ints;
  const double *doubles;
  int64_t int_count, double_count;
  const pl_plan *plan;
  pl_available available;
  void *context;
  char *error;
} reader;

static bool refuse(reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(reader *r, const char *format, ...) {
  int n = snprintf(r->error, PL_ERROR_BYTES, "call block: ");
  va_list args;
  va_start(args, format);
  vsnprintf(r->error + n, (size_t)(PL_ERROR_BYTES - n), format, args);
  va_end(args);
  return false;
}

/* A section of `count` entries at `at` lies inside a block of `size`. */
static bool section(reader *r, const char *name, int64_t at, int64_t count, int64_t size) {
  if (at >= 0 && count >= 0 && at <= size && count <= size - at) return true;
  return refuse(r, "%s, %lld entries at %lld, passes its end", name, (long long)count, (long long)at);
}

/* `bytes` of known memory at the address in the double at `index`. */
static bool known(reader *r, const char *name, int64_t index, int64_t bytes, uint8_t **out) {
  double address = r->doubles[index];
  if (!(address >= 1.0 && address <= 9007199254740991.0) || address != (double)(uint64_t)address) {
    return refuse(r, "%s: %g is no address", name, address);
  }
  if (r->available(r->context, (uint64_t)address) < bytes) {
    return refuse(r, "%s: %lld bytes at %.0f do not lie in memory of this backend", name, (long long)bytes, address);
  }
  *out = (uint8_t *)(uintptr_t)address;
  return true;
}

/* Pages that a sequence's record asks for; -1 for a record of nonsense. */
static int64_t page_count(const reader *r, const int32_t *record) {
  if (record[1] < 1 || record[2] < 0) return -1;
  return ((int64_t)record[1] + record[2] + r->plan->page_tokens - 1) / r->plan->page_tokens;
}

static bool read_sequence(reader *r, int32_t index, pl_call *call, pl_sequence *s, uint8_t **pages, int32_t next_row) {
  const int32_t *record = r->ints + r->ints[CALL_SEQUENCES_AT] + (int64_t)index * SEQUENCE_RECORD_WORDS;
  *s = (pl_sequence){.row_start = record[0], .row_count = record[1], .start_position = record[2], .pages = pages};
  if (s->row_start != next_row || s->row_count < 1 || s->row_count > call->rows - next_row) {
    return refuse(r, "sequence %d: rows %d + %d do not follow row %d", index, s->row_start, s->row_count, next_row);
  }
  int64_t end = (int64_t)s->start_position + s->row_count;
  if (s->start_position < 0 || end > r->plan->position_limit) {
    return refuse(r, "sequence %d: positions %d + %d pass %lld", index, s->start_position, s->row_count,
                  (long long)r->plan->position_limit);
  }
  for (int32_t i = 0; i < s->row_count; i++) {
    if (call->positions[next_row + i] != s->start_position + i || call->sequence_of_row[next_row + i] != index) {
      return refuse(r, "row %d is not at the place that sequence %d gives it", next_row + i, index);
    }
  }
  if (r->plan->fixed_bytes > 0) {
    uint8_t *in = NULL;
    const int64_t at = r->ints[CALL_SLABS_AT] + 2ll * index;
    if (!known(r, "input slab", at, r->plan->fixed_bytes, &in) ||
        !known(r, "output slab", at + 1, r->plan->fixed_bytes, &s->fixed_out)) {
      return false;
    }
    s->fixed_in = in;
  }
  if (r->plan->page_bytes > 0) {
    s->page_count = (int32_t)page_count(r, record);
    for (int32_t p = 0; p < s->page_count; p++) {
      if (!known(r, "page", record[3] + (int64_t)p, r->plan->page_bytes, &pages[p])) return false;
    }
  }
  if (end - 1 > call->max_position) call->max_position = (int32_t)(end - 1);
  return true;
}

/* Header and sections; then room for copies of everything. */
static bool read_sections(reader *r, pl_call *call) {
  const int32_t *h = r->ints;
  if (r->int_count < CALL_HEADER_WORDS)
    return refuse(r, "%lld words are less than its header", (long long)r->int_count);
  call->rows = h[CALL_ROWS];
  call->out_rows = h[CALL_OUT_ROWS];
  call->sequence_count = h[CALL_SEQUENCES];
  if (call->rows < 1 || call->rows > r->plan->row_capacity) {
    return refuse(r, "%d rows, the plan takes 1 to %d", call->rows, r->plan->row_capacity);
  }
  if (call->out_rows < 0 || call->out_rows > r->plan->out_capacity) {
    return refuse(r, "%d selected rows, the plan takes up to %d", call->out_rows, r->plan->out_capacity);
  }
  if (call->sequence_count < 1 || call->sequence_count > call->rows) {
    return refuse(r, "%d sequences for %d rows", call->sequence_count, call->rows);
  }
  return section(r, "tokens", h[CALL_TOKENS_AT], call->rows, r->int_count) &&
         section(r, "positions", h[CALL_POSITIONS_AT], call->rows, r->int_count) &&
         section(r, "sequenceOfRow", h[CALL_SEQUENCE_OF_ROW_AT], call->rows, r->int_count) &&
         section(r, "outRows", h[CALL_OUT_ROWS_AT], call->out_rows, r->int_count) &&
         section(r, "sequences", h[CALL_SEQUENCES_AT], (int64_t)call->sequence_count * SEQUENCE_RECORD_WORDS,
                 r->int_count) &&
         (r->plan->fixed_bytes == 0 ||
          section(r, "slabs", h[CALL_SLABS_AT], 2ll * call->sequence_count, r->double_count));
}

static bool read_all(reader *r, pl_call *call) {
  if (!read_sections(r, call)) return false;
  const int32_t *h = r->ints;
  const size_t rows = (size_t)call->rows, selected = (size_t)call->out_rows, sequences = (size_t)call->sequence_count;
  size_t pages = 0;
  for (size_t s = 0; r->plan->page_bytes > 0 && s < sequences; s++) {
    const int32_t *record = h + h[CALL_SEQUENCES_AT] + s * SEQUENCE_RECORD_WORDS;
    const int64_t count = page_count(r, record);
    if (!section(r, "page table", record[3], count, r->double_count)) return false;
    pages += (size_t)count;
  }
  const size_t bytes = sequences * sizeof(pl_sequence) + pages * sizeof(uint8_t *) + (3 * rows + selected) * 4;
  uint8_t *memory = malloc(bytes);
  if (!memory) return refuse(r, "out of memory for a copy of %zu bytes", bytes);
  call->memory = memory;
  pl_sequence *list = (pl_sequence *)memory;
  uint8_t **page_list = (uint8_t **)(list + sequences);
  int32_t *tokens = (int32_t *)(page_list + pages), *positions = tokens + rows, *owners = positions + rows,
          *chosen = owners + rows;
  memcpy(tokens, h + h[CALL_TOKENS_AT], rows * 4);
  memcpy(positions, h + h[CALL_POSITIONS_AT], rows * 4);
  memcpy(owners, h + h[CALL_SEQUENCE_OF_ROW_AT], rows * 4);
  memcpy(chosen, h + h[CALL_OUT_ROWS_AT], selected * 4);
  call->tokens = tokens;
  call->positions = positions;
  call->sequence_of_row = owners;
  call->selected = chosen;
  call->sequences = list;
  int32_t row = 0;
  size_t used = 0;
  for (int32_t s = 0; s < call->sequence_count; s++) {
    if (!read_sequence(r, s, call, &list[s], page_list + used, row)) return false;
    used += (size_t)list[s].page_count;
    row += list[s].row_count;
  }
  if (row != call->rows) return refuse(r, "its sequences hold %d rows of %d", row, call->rows);
  for (size_t i = 0; i < rows; i++) {
    if (tokens[i] < 0 || tokens[i] >= r->plan->token_limit) {
      return refuse(r, "token %d of row %zu is not below %lld", tokens[i], i, (long long)r->plan->token_limit);
    }
  }
  for (size_t i = 0; i < selected; i++) {
    if (chosen[i] < 0 || chosen[i] >= call->rows) return refuse(r, "selected row %d of %d", chosen[i], call->rows);
  }
  return true;
}

bool pl_call_read(pl_call *call, const pl_plan *plan, void *block, int64_t block_bytes, pl_available available,
                  void *context, char *error) {
  reader r = {block, block, block_bytes / 4, block_bytes / 8, plan, available, context, error};
  *call = (pl_call){.block = block};
  if (read_all(&r, call)) return true;
  pl_call_free(call);
  return false;
}

void pl_call_free(pl_call *call) {
  free(call->memory);
  call->memory = NULL;
}
