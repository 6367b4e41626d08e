/*
 * The memory of one backend: zeroed blocks and read-only file mappings, found again by address.
 *
 * Invariants: used from one thread (JavaScript's); `available` answers only for live regions; a region that is freed
 * while it is held (by a loaded plan) or while plans are running keeps its memory until the last of them is gone, so no
 * address that was checked can fault. A file that another process cuts short while it is mapped faults all the same:
 * that is the nature of mappings.
 */
#ifndef PL_MEMORY_H
#define PL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pl_memory pl_memory;

pl_memory *pl_memory_new(void);
/* Gives back everything, held or not. */
void pl_memory_free(pl_memory *memory);

/* Zeroed, 64-byte aligned; NULL without memory. */
uint8_t *pl_memory_allocate(pl_memory *memory, int64_t bytes);
/* A whole file, read-only; NULL with the system's reason in *reason. */
const uint8_t *pl_memory_map(pl_memory *memory, const char *path, int64_t *bytes, const char **reason);
/* Frees the region that starts at `address`: now, or at the first sweep that finds it unused. False when there is none.
 */
bool pl_memory_release(pl_memory *memory, uint64_t address);

/* Bytes from `address` to the end of its region; 0 when no live region has it. For pl_available. */
int64_t pl_memory_available(void *memory, uint64_t address);

/* One more or less holder of the live region with this address. */
void pl_memory_hold(pl_memory *memory, uint64_t address);
void pl_memory_drop(pl_memory *memory, uint64_t address);
/* Work that may touch any region begins or ends; freed regions wait while any is under way. */
void pl_memory_begin(pl_memory *memory);
void pl_memory_end(pl_memory *memory);

int64_t pl_memory_allocated(const pl_memory *memory);
int64_t pl_memory_mapped(const pl_memory *memory);

#endif
