/* See executor.h. */
#include "executor.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
  ALIGNMENT = 64,
  LEAST_PIECE = 3000, /* nanoseconds that a piece should last, where there is enough work */
  MOST_PIECES = 1024,
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
  int64_t bounds[MOST_PIECES + 1];
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

static uint8_t *aligned(int64_t bytes) {
  return aligned_alloc(ALIGNMENT, (size_t)((bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT));
}

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

/*
 * Cuts units into pieces, large ones first, each a part of what is left: neighbouring weights stay with one thread,
 * which reads them in one stream, and the last pieces are small enough that the threads end together. Returns how many.
 */
static uint32_t cut(int64_t *bounds, int64_t units, double unit_nanoseconds, int threads) {
  const double least = LEAST_PIECE / unit_nanoseconds;
  uint32_t pieces = 0;
  bounds[0] = 0;
  for (int64_t at = 0; at < units; bounds[++pieces] = at) {
    const int64_t left = units - at;
    double piece = 2.0 * (double)left / (3.0 * threads);
    if (piece < least) piece = least;
    if (piece < 1) piece = 1;
    at = pieces == MOST_PIECES - 1 || piece >= (double)left ? units : at + (int64_t)piece;
  }
  return pieces;
}

static void run_stage(pl_executor *e, const pl_run *run, const int32_t *op, const pl_stage_kernel *kernel) {
  const pl_stage stage = kernel->prepare(run, op);
  if (stage.units == 0) return;
  e->run = run;
  e->op = op;
  e->stage = kernel;
  if (run->threads == 1 || (double)stage.units * stage.nanoseconds < e->shared_work) {
    run_piece(e, 0, stage.units, 0);
    return;
  }
  /* Units that are as good as free are all the more to be shared: only tests ask for that. */
  const double unit = e->shared_work == 0 ? LEAST_PIECE : stage.nanoseconds;
  const uint32_t pieces = cut(e->bounds, stage.units, unit, run->threads);
  pl_pool_run(e->pool, run_piece, e, e->bounds, pieces);
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
