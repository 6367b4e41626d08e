/*
 * A checked plan: the program's words copied and proved, its weights as pointers, and the sizes that a call must offer.
 *
 * Invariants: every field of every op has been checked against the op table (src/engine/plan/ops.ts) before a plan
 * exists, so kernels read fields without looking twice; buffers lie inside the workspace at their full capacity;
 * weights lie inside memory that was given to the check; what only a call can show (tokens, positions, pages) is
 * bounded here.
 */
#ifndef PL_PLAN_H
#define PL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan-ops.h"

/* Limits of these kernels, far above any model. */
enum {
  PL_MAX_DIM = 4096,    /* elements of an attention or index head */
  PL_MAX_KEY_DIM = 512, /* rows of a recurrent state */
  PL_MAX_INDEX_HEADS = 64,
  PL_MAX_TOP_K = 256,     /* experts of a row */
  PL_MAX_STREAMS = 8,     /* streams of a manifold hyper-connection */
  PL_MAX_EXPERTS = 65536, /* experts of a layer */
  PL_MAX_KERNEL = 64,     /* taps of a convolution */
  PL_MAX_POSITIONS = 1 << 28,
  PL_ERROR_BYTES = 256, /* room for an error text */
};

typedef struct {
  const uint8_t *data;
  int32_t dtype;
  /* How many elements were looked at, and whether all of them fit dot-pairs.h. */
  int64_t seen;
  bool pairs;
} pl_weight;


/* Whether bfloat16 weights fit dot-pairs.h. */
typedef bool (*pl_fits_pairs)(const uint16_t *weights, int64_t count);

typedef struct {
  int32_t op_count, act, mtplx, kv_type, page_tokens, row_capacity, out_capacity, weight_count;
  int64_t workspace_words, word_count;
  int32_t *words; /* the ops, header left out */
  pl_weight *weights;
  const uint8_t *tables[2]; /* sigmoid tables by lowering; NULL where the header names none */
  /* What a call must hold. */
  int64_t token_limit;    /* token ids are below it */
  int64_t position_limit; /* positions are below it */
  int64_t page_bytes;     /* bytes of a page that the ops touch; 0: no pages */
  int64_t fixed_bytes;    /* bytes of a fixed slab that the ops touch; 0: no slabs */
  pl_fits_pairs fits_pairs; /* NULL: the kernels have no use for it */
  int64_t looked_at;        /* bytes of weights that were read for it */
  /* What an execution must provide beside the workspace. */
  int64_t shared_bytes_per_row, shared_bytes;
  int64_t max_dim;
  int64_t latent_window, latent_block; /* most recent rows, and fewest tokens of a paged row, of shared-row attention */
  int64_t pool_bytes;                  /* scratch of pooling */
  bool attends, selects; /* some op needs scratch that grows with the positions */
} pl_plan;

/* Bytes of known memory from `address` on; 0 when it is not known. */
typedef int64_t (*pl_available)(void *context, uint64_t address);

typedef struct {
  const int32_t *code;
  int64_t code_words;
  const double *addresses;
  const int32_t *dtypes;
  int64_t weight_count;
} pl_program;

/*
 * A plan from a program, or NULL with a text in `error` (PL_ERROR_BYTES). The program's arrays are copied; weights must not
 * change from here on.
 */
pl_plan *pl_plan_load(const pl_program *program, pl_fits_pairs fits_pairs, pl_available available, void *context, char *error);
void pl_plan_free(pl_plan *plan);

static inline int64_t pl_dtype_bytes(int32_t dtype) { return dtype == DTYPE_F32 ? 4 : 2; }

static inline float pl_float(int32_t bits) {
  union {
    int32_t i;
    float f;
  } u = {bits};
  return u.f;
}

#endif
