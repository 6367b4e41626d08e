/* See probe.h. */
#include "probe.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "pool.h"

enum {
  PIECE_BYTES = 1 << 20,
  /* A round of multiply-adds: long enough that handing out its pieces costs nothing. */
  MULTIPLY_PIECES = 64,
  MULTIPLY_LOOPS = 20000,
  MOST_ROUNDS = 4096,
  LEAST_ROUNDS = 3,
};

typedef struct {
  const pl_kernels *kernels;
  const uint8_t *data;
  volatile float sink;
} probe;

static void read_pieces(void *context, int64_t from, int64_t to, int index) {
  (void)index;
  probe *p = context;
  float sum = p->kernels->read_sum(p->data + from * PIECE_BYTES, (to - from) * PIECE_BYTES);
  if (sum != 0.0f) p->sink = sum; /* the buffer is zero: never taken, but the sum must be had */
}

static void multiply_pieces(void *context, int64_t from, int64_t to, int index) {
  (void)index;
  probe *p = context;
  float sum = p->kernels->multiply_add((to - from) * MULTIPLY_LOOPS, 0.5f);
  if (sum == 0.0f) p->sink = sum;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Runs a region of `pieces` pieces round after round; `work` is what one round does. */
static pl_rate measure(pl_region region, probe *p, int64_t pieces, double work, int threads, double seconds) {
  pl_rate result = {0};
  pl_pool *pool = pl_pool_new(threads);
  double *rates = malloc(MOST_ROUNDS * sizeof *rates);
  int64_t *bounds = malloc((size_t)(pieces + 1) * sizeof *bounds);
  if (pool && rates && bounds) {
    for (int64_t i = 0; i <= pieces; i++) bounds[i] = i;
    pl_pool_run(pool, region, p, bounds, (uint32_t)pieces); /* warms up */
    const int64_t start = pl_now();
    while (result.rounds < MOST_ROUNDS &&
           (result.rounds < LEAST_ROUNDS || (double)(pl_now() - start) < seconds * 1e9)) {
      int64_t before = pl_now();
      pl_pool_run(pool, region, p, bounds, (uint32_t)pieces);
      rates[result.rounds++] = work / ((double)(pl_now() - before) * 1e-9);
    }
    qsort(rates, (size_t)result.rounds, sizeof *rates, ascending);
    result.best = rates[result.rounds - 1];
    result.median = rates[result.rounds / 2];
  }
  free(bounds);
  free(rates);
  if (pool) pl_pool_free(pool);
  return result;
}

pl_rate pl_read_bandwidth(const pl_kernels *kernels, int64_t bytes, int threads, double seconds) {
  pl_rate result = {0};
  const int64_t pieces = bytes / PIECE_BYTES;
  pl_memory *memory = pl_memory_new();
  uint8_t *data = memory && pieces > 0 ? pl_memory_allocate(memory, pieces * PIECE_BYTES) : NULL;
  if (data) {
    for (int64_t at = 0; at < pieces * PIECE_BYTES; at += 4096)
      ((volatile uint8_t *)data)[at] = 0; /* pages of its own */
    probe p = {.kernels = kernels, .data = data};
    result = measure(read_pieces, &p, pieces, (double)(pieces * PIECE_BYTES), threads, seconds);
  }
  if (memory) pl_memory_free(memory);
  return result;
}

pl_rate pl_multiply_rate(const pl_kernels *kernels, int threads, double seconds) {
  probe p = {.kernels = kernels};
  const double work = (double)MULTIPLY_PIECES * MULTIPLY_LOOPS * kernels->multiply_add_lanes;
  return measure(multiply_pieces, &p, MULTIPLY_PIECES, work, threads, seconds);
}
