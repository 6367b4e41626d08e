/* The kernels for neon; see kernels.inc.c. */
#define PL_LANES 128
#include "kernels.inc.c"
