/*
 * See checksum.h. The polynomial of the data is folded: 512 bytes at a time onto the next 512, by carry-less products with
 * x^n mod P; what is left, 16 bytes with the same remainder, and the last few bytes go through a table.
 */
#include "checksum.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

enum { ACCUMULATORS = 8, STRIDE = 64 * ACCUMULATORS };

#define FOLDING __attribute__((target("avx512f,avx512dq,avx512vl,vpclmulqdq,pclmul")))

/* VPCLMULQDQ is bit 10 of ECX of leaf 7; not every compiler knows it by name. */
static bool has_instructions(void) {
  unsigned a, b, c, d;
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("pclmul") &&
         __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & (1u << 10));
}

/* Asked once: a virtual machine leaves its guest for each question about the processor, which takes as long as a page. */
bool pl_crc32_runs(void) {
  static _Atomic int known; /* 0: not asked yet, 1: no, 2: yes */
  int answer = known;
  if (answer == 0) known = answer = has_instructions() ? 2 : 1;
  return answer == 2;
}

/* For a few bytes: P reflected, four bits at a time. */
static uint32_t table_crc(uint32_t crc, const uint8_t *p, int64_t bytes) {
  static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                     0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                     0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  for (int64_t i = 0; i < bytes; i++) {
    crc ^= p[i];
    crc = table[crc & 15] ^ (crc >> 4);
    crc = table[crc & 15] ^ (crc >> 4);
  }
  return crc;
}

/* x moved by n bits and added to next; k holds x^(n+32) and x^(n-32) mod P. */
FOLDING static inline __m512i fold(__m512i x, __m512i k, __m512i next) {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11), next,
                                   0x96);
}

FOLDING static inline __m128i fold128(__m128i x, __m128i k, __m128i next) {
  return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next);
}

FOLDING uint32_t pl_crc32(uint32_t before, const uint8_t *data, int64_t bytes) {
  uint32_t crc = ~before;
  if (bytes >= STRIDE) {
    const __m512i far = _mm512_broadcast_i64x2(_mm_set_epi64x(0x01d741f35c, 0x001072db28));  /* 4096 bits */
    const __m512i near = _mm512_broadcast_i64x2(_mm_set_epi64x(0x01c6e41596, 0x0154442bd4)); /* 512 bits */
    const __m128i next = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);                         /* 128 bits */
    __m512i acc[ACCUMULATORS];
    for (int i = 0; i < ACCUMULATORS; i++) acc[i] = _mm512_loadu_si512(data + 64 * i);
    acc[0] = _mm512_xor_si512(acc[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    data += STRIDE, bytes -= STRIDE;
    for (; bytes >= STRIDE; data += STRIDE, bytes -= STRIDE) {
      for (int i = 0; i < ACCUMULATORS; i++) acc[i] = fold(acc[i], far, _mm512_loadu_si512(data + 64 * i));
    }
    for (int i = 1; i < ACCUMULATORS; i++) acc[0] = fold(acc[0], near, acc[i]);
    for (; bytes >= 64; data += 64, bytes -= 64) acc[0] = fold(acc[0], near, _mm512_loadu_si512(data));
    __m128i one = _mm512_castsi512_si128(acc[0]);
    one = fold128(one, next, _mm512_extracti32x4_epi32(acc[0], 1));
    one = fold128(one, next, _mm512_extracti32x4_epi32(acc[0], 2));
    one = fold128(one, next, _mm512_extracti32x4_epi32(acc[0], 3));
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)rest, one);
    crc = table_crc(0, rest, sizeof rest);
  }
  return ~table_crc(crc, data, bytes);
}

#else

bool pl_crc32_runs(void) { return false; }

uint32_t pl_crc32(uint32_t before, const uint8_t *data, int64_t bytes) {
  (void)data, (void)bytes;
  return before;
}

#endif
