/* The kernels for avx512 with products of bfloat16 pairs; see kernels.inc.c. */
#define PL_LANES 512
#define PL_PAIR_PRODUCTS 1
#include "kernels.inc.c"
