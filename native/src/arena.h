/*
 * Blocks of memory out of large, huge-page-aligned stretches: a model's matrices, state pages and workspaces lie on
 * huge pages whatever their own size. On small pages a model that outgrows the caches is read at a fraction of the
 * bandwidth, because every page costs a walk through page tables that no longer fit a cache either.
 *
 * Invariants: blocks are zeroed and 64-byte aligned; holes of a stretch are kept sorted and joined; a stretch without
 * blocks goes back to the system.
 */
#ifndef PL_ARENA_H
#define PL_ARENA_H

#include <stdint.h>

typedef struct pl_arena pl_arena;

pl_arena *pl_arena_new(void);
/* Gives every stretch back. */
void pl_arena_free(pl_arena *arena);
/* NULL without memory. */
uint8_t *pl_arena_take(pl_arena *arena, int64_t bytes);
/* Gives back a block of this size. */
void pl_arena_give(pl_arena *arena, uint8_t *block, int64_t bytes);

#endif
