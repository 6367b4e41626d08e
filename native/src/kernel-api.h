/*
 * Between the executor and the kernels: what an op sees while it runs, and the table that each instruction set fills.
 *
 * An op runs as one or two stages; a stage is a number of independent units (rows, heads, blocks of output columns),
 * which any thread may take in any order: the split never reaches into a reduction, so it never reaches the bits.
 */
#ifndef PL_KERNEL_API_H
#define PL_KERNEL_API_H

#include "call.h"
#include "plan.h"

typedef struct {
  const pl_plan *plan;
  const pl_call *call;
  float *workspace;
  uint8_t *shared; /* scratch of the whole execution: plan->shared_bytes + rows * plan->shared_bytes_per_row */
  int threads;
} pl_run;

typedef struct {
  int64_t units;
  double nanoseconds; /* about what one unit costs: decides how many go in one piece of work, nothing else */
} pl_stage;

typedef struct {
  /* Called by one thread before the stage: counts units, may write run->shared. */
  pl_stage (*prepare)(const pl_run *run, const int32_t *op);
  /* Units from (included) to `to` (excluded); `scratch` belongs to the calling thread. */
  void (*work)(const pl_run *run, const int32_t *op, int64_t from, int64_t to, uint8_t *scratch);
} pl_stage_kernel;

enum { PL_OP_CODES = 46, PL_STAGES = 2 };

typedef struct {
  const char *isa;
  pl_stage_kernel ops[PL_OP_CODES][PL_STAGES];
  /* Bytes of scratch that each thread needs for this plan and call. */
  int64_t (*scratch_bytes)(const pl_plan *plan, const pl_call *call);
  /* Sums `bytes` (a multiple of 4096) with the widest loads; the bandwidth probe. */
  float (*read_sum)(const uint8_t *p, int64_t bytes);
  /* `loops` rounds of independent multiply-adds in registers, begun with x; the arithmetic probe. */
  float (*multiply_add)(int64_t loops, float x);
  pl_fits_pairs fits_pairs;
  int multiply_add_lanes; /* multiply-adds of one round */
} pl_kernels;

extern const pl_kernels pl_kernels_generic;
#if defined(__x86_64__)
extern const pl_kernels pl_kernels_avx2, pl_kernels_avx512, pl_kernels_avx512bf16;
#elif defined(__aarch64__)
extern const pl_kernels pl_kernels_neon;
#endif

/* The kernels of this name ("" or NULL: the best of this machine), or NULL when the machine cannot run them. */
const pl_kernels *pl_choose_kernels(const char *name);

#endif
