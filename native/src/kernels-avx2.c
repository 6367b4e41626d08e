/* The kernels for avx2; see kernels.inc.c. */
#define PL_LANES 256
#include "kernels.inc.c"
