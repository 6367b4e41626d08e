/*
 * Runs checked plans, op by op and stage by stage, over a pool of threads.
 *
 * Invariants: stages are separated by the end of a region, so an op sees all that its predecessors wrote; how units are
 * cut into pieces depends on costs and threads and never reaches the bits; the call's cancel word is looked at between
 * pieces, and what a cancelled plan leaves in workspace, pages and output slabs is undefined.
 */
#ifndef PL_EXECUTOR_H
#define PL_EXECUTOR_H

#include "kernel-api.h"
#include "pool.h"

typedef struct pl_executor pl_executor;

typedef enum { PL_DONE, PL_CANCELLED, PL_NO_MEMORY } pl_outcome;

/* An executor whose leader is whoever calls pl_execute; NULL when threads or memory cannot be had. */
/* Work of less than about `shared_work` nanoseconds is done by one thread; 0: every stage is cut into single units. */
pl_executor *pl_executor_new(const pl_kernels *kernels, int threads, double shared_work);
void pl_executor_free(pl_executor *executor);
/* Runs a plan for a call that was read against it. One at a time. */
pl_outcome pl_execute(pl_executor *executor, const pl_plan *plan, const pl_call *call, float *workspace);
/* Makes the running plan, and any later one, end as cancelled. */
void pl_executor_stop(pl_executor *executor);

#endif
