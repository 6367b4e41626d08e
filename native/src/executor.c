/* See executor.h. */
#include "executor.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
  ALIGNMENT = 64,
  PIECE = 3000,         /* nanoseconds that a piece should last, where there is enough work */
  PIECES_PER_THREAD = 6, /* at least, where units allow: the tail of a region is at most one piece */
};

struct pl_executor {
  const pl_kernels *kernels;
  double shared_work;
  pl_pool *pool;
  uint8_t **scratch; /* one a thread */
  int64_t scratch_bytes;
  uint8_t *shared;
  int64_t shared_bytes;
  atomic_bool stop;
  /* The running stage, for the helpers. */
  const pl_run *run;
  const int32_t *op;
  const pl_stage_kernel *stage;
};

pl_executor *pl_executor_new(const pl_kernels *kernels, int threads, double shared_work) {
  pl_executor *e = calloc(1, sizeof *e);
  if (!e) return NULL;
  e->kernels = kernels;
  e->shared_work = shared_work;
  e->scratch = calloc((size_t)threads, sizeof *e->scratch);
  e->pool = e->scratch ? pl_pool_new(threads) : NULL;
  if (e->pool) return e;
  free(e->scratch);
  free(e);
  return NULL;
}

static void drop_scratch(pl_executor *e) {
  for (int i = 0; i < pl_pool_threads(e->pool); i++) {
    free(e->scratch[i]);
    e->scratch[i] = NULL;
  }
  e->scratch_bytes = 0;
}

void pl_executor_free(pl_executor *e) {
  drop_scratch(e);
  pl_pool_free(e->pool);
  free(e->scratch);
  free(e->shared);
  free(e);
}

void pl_executor_stop(pl_executor *e) { atomic_store(&e->stop, true); }

static uint8_t *aligned(int64_t bytes) { return aligned_alloc(ALIGNMENT, (size_t)((bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)); }

/* Scratch for this plan and call; kept for the next. */
static bool provide(pl_executor *e, const pl_plan *plan, const pl_call *call) {
  int64_t scratch = e->kernels->scratch_bytes(plan, call) + ALIGNMENT;
  if (scratch > e->scratch_bytes) {
    drop_scratch(e);
    for (int i = 0; i < pl_pool_threads(e->pool); i++) {
      if (!(e->scratch[i] = aligned(scratch))) return false;
    }
    e->scratch_bytes = scratch;
  }
  int64_t shared = plan->shared_bytes + plan->shared_bytes_per_row * call->rows + ALIGNMENT;
  if (shared > e->shared_bytes) {
    free(e->shared);
    e->shared_bytes = 0;
    if (!(e->shared = aligned(shared))) return false;
    e->shared_bytes = shared;
  }
  return true;
}

static bool cancelled(const pl_executor *e, const pl_call *call) {
  return call->block[CALL_CANCEL] != 0 || atomic_load_explicit(&e->stop, memory_order_relaxed);
}

static void run_piece(void *context, int64_t from, int64_t to, int index) {
  pl_executor *e = context;
  if (cancelled(e, e->run->call)) return;
  e->stage->work(e->run, e->op, from, to, e->scratch[index]);
}

static void run_stage(pl_executor *e, const pl_run *run, const int32_t *op, const pl_stage_kernel *kernel) {
  const pl_stage stage = kernel->prepare(run, op);
  if (stage.units == 0) return;
  e->run = run;
  e->op = op;
  e->stage = kernel;
  int64_t piece = stage.units;
  const double work = (double)stage.units * stage.nanoseconds;
  if (e->shared_work == 0) {
    piece = 1;
  } else if (run->threads > 1 && work > e->shared_work) {
    const double wanted = PIECE / stage.nanoseconds;
    const int64_t most = stage.units / ((int64_t)run->threads * PIECES_PER_THREAD);
    piece = wanted < (double)most ? (int64_t)wanted : most;
    if (piece < 1) piece = 1;
  }
  pl_pool_run(e->pool, run_piece, e, stage.units, piece);
}

pl_outcome pl_execute(pl_executor *e, const pl_plan *plan, const pl_call *call, float *workspace) {
  if (!provide(e, plan, call)) return PL_NO_MEMORY;
  const pl_run run = {plan, call, workspace, e->shared, pl_pool_threads(e->pool)};
  const int32_t *op = plan->words, *end = op + plan->word_count;
  for (int32_t index = 0; op < end; op += op[1], index++) {
    if (cancelled(e, call)) return PL_CANCELLED;
    for (int s = 0; s < PL_STAGES && e->kernels->ops[op[0]][s].work; s++) {
      run_stage(e, &run, op, &e->kernels->ops[op[0]][s]);
    }
    if (cancelled(e, call)) return PL_CANCELLED; /* pieces may have been left out */
    call->block[CALL_OPS_DONE] = index + 1;
  }
  return PL_DONE;
}
