/* The bandwidth probe: how fast `threads` threads together read a buffer that no cache holds. */
#ifndef PL_BANDWIDTH_H
#define PL_BANDWIDTH_H

#include "kernel-api.h"

typedef struct {
  double best, median; /* bytes per second over whole rounds */
  int rounds;
} pl_bandwidth;

/* Reads `bytes` over and over for about `seconds`; rounds = 0 when memory or threads cannot be had. */
pl_bandwidth pl_read_bandwidth(const pl_kernels *kernels, int64_t bytes, int threads, double seconds);

#endif
