/* The kernels for avx512; see kernels.inc.c. */
#define PL_LANES 512
#include "kernels.inc.c"
