/*
 * A team of threads that share the units of one stage: the caller leads, helpers join.
 *
 * Invariants: the leader never waits for a helper that has not taken work, so a helper without a core costs nothing; a
 * region is over when all its pieces are done, and only then may the next begin; an idle helper spins for some tens of
 * microseconds, giving its core to whoever else waits for it, and then sleeps; it does not spin at all when there are
 * more threads than cores.
 */
#ifndef PL_POOL_H
#define PL_POOL_H

#include <stdint.h>

typedef struct pl_pool pl_pool;

/* Units `from` to `to` (excluded) of a region, by thread `index` (0: the leader). */
typedef void (*pl_region)(void *context, int64_t from, int64_t to, int index);

/* threads - 1 helpers; NULL when threads cannot be had. */
pl_pool *pl_pool_new(int threads);
/* Ends and joins the helpers; no region may be running. */
void pl_pool_free(pl_pool *pool);
/*
 * Runs `pieces` pieces, piece i from bounds[i] to bounds[i + 1], taken in ascending order; returns when all are done.
 * One leader at a time.
 */
void pl_pool_run(pl_pool *pool, pl_region region, void *context, const int64_t *bounds, uint32_t pieces);
int pl_pool_threads(const pl_pool *pool);

/* Cores that this process may use. */
int pl_available_cores(void);
/* A monotonic clock in nanoseconds. */
int64_t pl_now(void);
/* A hint to the core that this is a spin loop. */
void pl_relax(void);
/* Round to nearest, subnormals kept: the state that the kernels are written for. */
void pl_set_float_mode(void);

#endif
