/* CRC-32 as zlib computes it, at the speed of memory. */
#ifndef PL_CHECKSUM_H
#define PL_CHECKSUM_H

#include <stdbool.h>
#include <stdint.h>

/* Whether this machine has what pl_crc32 is made of: carry-less products of 512 bits. */
bool pl_crc32_runs(void);

/* The checksum of `bytes` behind data whose checksum is `before` (0: nothing). Only where pl_crc32_runs(). */
uint32_t pl_crc32(uint32_t before, const uint8_t *data, int64_t bytes);

#endif
