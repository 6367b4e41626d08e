/* See arena.h. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, STRETCH = 64 << 20, ALIGNMENT = 64 };

typedef struct {
  int64_t at, bytes;
} hole;

typedef struct {
  uint8_t *base;
  int64_t bytes;
  int64_t touched; /* nothing beyond has ever been given out: it is still zero */
  int64_t used;
  hole *holes;
  int count, capacity;
} stretch;

struct pl_arena {
  stretch *stretches;
  int count, capacity;
};

pl_arena *pl_arena_new(void) { return calloc(1, sizeof(pl_arena)); }

void pl_arena_free(pl_arena *a) {
  for (int i = 0; i < a->count; i++) {
    munmap(a->stretches[i].base, (size_t)a->stretches[i].bytes);
    free(a->stretches[i].holes);
  }
  free(a->stretches);
  free(a);
}

/* Whole huge pages of fresh memory, aligned as such. */
static uint8_t *map_aligned(int64_t bytes) {
  uint8_t *p = mmap(NULL, (size_t)(bytes + HUGE_PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  const int64_t before = (int64_t)(-(uintptr_t)p & (HUGE_PAGE - 1));
  if (before > 0) munmap(p, (size_t)before);
  if (before < HUGE_PAGE) munmap(p + before + bytes, (size_t)(HUGE_PAGE - before));
#if defined(MADV_HUGEPAGE)
  madvise(p + before, (size_t)bytes, MADV_HUGEPAGE); /* advice: small pages do as well, slowly */
#endif
  return p + before;
}

/* Room for one more hole, so that giving a block back can never fail. */
static bool reserve_hole(stretch *s) {
  if (s->count + 1 < s->capacity) return true;
  const int capacity = s->capacity ? s->capacity * 2 : 16;
  hole *holes = realloc(s->holes, (size_t)capacity * sizeof *holes);
  if (!holes) return false;
  s->holes = holes;
  s->capacity = capacity;
  return true;
}

static stretch *add_stretch(pl_arena *a, int64_t bytes) {
  if (a->count == a->capacity) {
    const int capacity = a->capacity ? a->capacity * 2 : 16;
    stretch *stretches = realloc(a->stretches, (size_t)capacity * sizeof *stretches);
    if (!stretches) return NULL;
    a->stretches = stretches;
    a->capacity = capacity;
  }
  stretch s = {.bytes = bytes < STRETCH ? STRETCH : (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE};
  if (!reserve_hole(&s)) return NULL;
  s.base = map_aligned(s.bytes);
  if (!s.base) {
    free(s.holes);
    return NULL;
  }
  s.holes[s.count++] = (hole){0, s.bytes};
  a->stretches[a->count] = s;
  return &a->stretches[a->count++];
}

static int64_t padded(int64_t bytes) {
  return bytes < ALIGNMENT ? ALIGNMENT : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The first hole that is large enough, from its start. */
static uint8_t *take_from(stretch *s, int64_t bytes) {
  int i = 0;
  while (i < s->count && s->holes[i].bytes < bytes) i++;
  if (i == s->count || !reserve_hole(s)) return NULL;
  hole *h = &s->holes[i];
  const int64_t at = h->at;
  h->at += bytes;
  h->bytes -= bytes;
  if (h->bytes == 0) {
    memmove(h, h + 1, (size_t)(s->count - i - 1) * sizeof *h);
    s->count--;
  }
  if (at < s->touched) memset(s->base + at, 0, (size_t)(at + bytes < s->touched ? bytes : s->touched - at));
  if (at + bytes > s->touched) s->touched = at + bytes;
  s->used += bytes;
  return s->base + at;
}

uint8_t *pl_arena_take(pl_arena *a, int64_t bytes) {
  const int64_t size = padded(bytes);
  for (int i = 0; i < a->count; i++) {
    uint8_t *block = take_from(&a->stretches[i], size);
    if (block) return block;
  }
  stretch *fresh = add_stretch(a, size);
  return fresh ? take_from(fresh, size) : NULL;
}

/* Puts a hole where it belongs, joined with its neighbours. */
static void add_hole(stretch *s, int64_t at, int64_t bytes) {
  int i = 0;
  while (i < s->count && s->holes[i].at < at) i++;
  const bool joins_last = i > 0 && s->holes[i - 1].at + s->holes[i - 1].bytes == at;
  const bool joins_next = i < s->count && at + bytes == s->holes[i].at;
  if (joins_last)
    s->holes[i - 1].bytes += bytes + (joins_next ? s->holes[i].bytes : 0);
  else if (joins_next)
    s->holes[i] = (hole){at, bytes + s->holes[i].bytes};
  if (joins_last && joins_next) {
    memmove(&s->holes[i], &s->holes[i + 1], (size_t)(s->count - i - 1) * sizeof(hole));
    s->count--;
  } else if (!joins_last && !joins_next) {
    memmove(&s->holes[i + 1], &s->holes[i], (size_t)(s->count - i) * sizeof(hole));
    s->holes[i] = (hole){at, bytes};
    s->count++;
  }
}

void pl_arena_give(pl_arena *a, uint8_t *block, int64_t bytes) {
  int i = 0;
  while (block < a->stretches[i].base || block >= a->stretches[i].base + a->stretches[i].bytes) i++;
  stretch *s = &a->stretches[i];
  const int64_t size = padded(bytes);
  add_hole(s, block - s->base, size);
  s->used -= size;
  if (s->used > 0) return;
  munmap(s->base, (size_t)s->bytes);
  free(s->holes);
  a->stretches[i] = a->stretches[--a->count];
}
