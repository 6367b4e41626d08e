/* Chooses the kernels that this machine can run. */
#include <string.h>

#include "kernel-api.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Half conversion; not every compiler knows it by name. */
static int has_f16c(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int runs(const pl_kernels *k) {
  __builtin_cpu_init();
  if (k == &pl_kernels_avx512bf16 && !__builtin_cpu_supports("avx512bf16")) return 0;
  if (k == &pl_kernels_avx512bf16 || k == &pl_kernels_avx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  if (k == &pl_kernels_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  return 1;
}
static const pl_kernels *const candidates[] = {&pl_kernels_avx512bf16, &pl_kernels_avx512, &pl_kernels_avx2,
                                              &pl_kernels_generic};
#elif defined(__aarch64__)
static int runs(const pl_kernels *k) {
  (void)k; /* NEON with fused multiply-add is part of AArch64 */
  return 1;
}
static const pl_kernels *const candidates[] = {&pl_kernels_neon, &pl_kernels_generic};
#else
static int runs(const pl_kernels *k) {
  (void)k;
  return 1;
}
static const pl_kernels *const candidates[] = {&pl_kernels_generic};
#endif

const pl_kernels *pl_choose_kernels(const char *name) {
  for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
    if (name && name[0] && strcmp(name, candidates[i]->isa) != 0) continue;
    if (runs(candidates[i])) return candidates[i];
  }
  return NULL;
}
