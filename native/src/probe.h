/*
 * What this machine can do at most: how fast `threads` threads together read a buffer that no cache holds, and how fast
 * they multiply and add what lies in registers.
 */
#ifndef PL_PROBE_H
#define PL_PROBE_H

#include "kernel-api.h"

typedef struct {
  double best, median; /* per second, over whole rounds */
  int rounds;          /* 0: memory or threads could not be had */
} pl_rate;

/* Bytes per second: reads `bytes` over and over for about `seconds`. */
pl_rate pl_read_bandwidth(const pl_kernels *kernels, int64_t bytes, int threads, double seconds);
/* Multiply-adds of float32 per second. */
pl_rate pl_multiply_rate(const pl_kernels *kernels, int threads, double seconds);

#endif
