/* See bandwidth.h. */
#include "bandwidth.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "pool.h"

enum { PIECE_BYTES = 1 << 20, MOST_ROUNDS = 4096, LEAST_ROUNDS = 3 };

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

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

pl_bandwidth pl_read_bandwidth(const pl_kernels *kernels, int64_t bytes, int threads, double seconds) {
  pl_bandwidth result = {0};
  const int64_t pieces = bytes / PIECE_BYTES;
  pl_memory *memory = pl_memory_new();
  uint8_t *data = memory && pieces > 0 ? pl_memory_allocate(memory, pieces * PIECE_BYTES) : NULL;
  pl_pool *pool = data ? pl_pool_new(threads) : NULL;
  double *rates = pool ? malloc(MOST_ROUNDS * sizeof *rates) : NULL;
  if (rates) {
    for (int64_t at = 0; at < pieces * PIECE_BYTES; at += 4096) ((volatile uint8_t *)data)[at] = 0; /* pages of its own */
    probe p = {.kernels = kernels, .data = data};
    pl_pool_run(pool, read_pieces, &p, pieces, 1); /* warms up */
    const int64_t start = pl_now();
    while (result.rounds < MOST_ROUNDS &&
           (result.rounds < LEAST_ROUNDS || (double)(pl_now() - start) < seconds * 1e9)) {
      int64_t before = pl_now();
      pl_pool_run(pool, read_pieces, &p, pieces, 1);
      rates[result.rounds++] = (double)(pieces * PIECE_BYTES) / ((double)(pl_now() - before) * 1e-9);
    }
    qsort(rates, (size_t)result.rounds, sizeof *rates, ascending);
    result.best = rates[result.rounds - 1];
    result.median = rates[result.rounds / 2];
  }
  free(rates);
  if (pool) pl_pool_free(pool);
  if (memory) pl_memory_free(memory);
  return result;
}
