/* The kernels for generic; see kernels.inc.c. */
#define PL_LANES 0
#include "kernels.inc.c"
