/* See memory.h. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arena.h"

/* Larger files may be tables of which few rows are ever read. */
#define READ_AHEAD_MOST (1ll << 32)
#define MOST_BYTES (1ll << 46)

typedef struct {
  uint8_t *base;
  int64_t bytes;
  bool file;
  int holders;
  bool released;
} region;

/* Regions by ascending base; released ones stay in the list until they can go. */
struct pl_memory {
  pl_arena *arena;
  region *regions;
  size_t count, capacity;
  size_t last; /* where the last look-up ended: neighbours are asked for together */
  int running;
  int64_t allocated, mapped;
};

pl_memory *pl_memory_new(void) {
  pl_memory *m = calloc(1, sizeof *m);
  if (m && !(m->arena = pl_arena_new())) {
    free(m);
    return NULL;
  }
  return m;
}

static void give_back(pl_memory *m, region *r) {
  if (r->file)
    munmap(r->base, (size_t)r->bytes);
  else
    pl_arena_give(m->arena, r->base, r->bytes);
}

void pl_memory_free(pl_memory *m) {
  for (size_t i = 0; i < m->count; i++) {
    if (m->regions[i].file) give_back(m, &m->regions[i]);
  }
  pl_arena_free(m->arena);
  free(m->regions);
  free(m);
}

/* Index of the first region whose base is above `address`. */
static size_t above(const pl_memory *m, uint64_t address) {
  size_t low = 0, high = m->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if ((uint64_t)(uintptr_t)m->regions[middle].base <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool holds(const region *r, uint64_t address) {
  uint64_t base = (uint64_t)(uintptr_t)r->base;
  return !r->released && address >= base && address - base < (uint64_t)r->bytes;
}

static region *find(pl_memory *m, uint64_t address) {
  if (m->last < m->count && holds(&m->regions[m->last], address)) return &m->regions[m->last];
  size_t i = above(m, address);
  if (i == 0 || !holds(&m->regions[i - 1], address)) return NULL;
  m->last = i - 1;
  return &m->regions[i - 1];
}

static bool add(pl_memory *m, region r) {
  if (m->count == m->capacity) {
    size_t capacity = m->capacity ? m->capacity * 2 : 64;
    region *regions = realloc(m->regions, capacity * sizeof *regions);
    if (!regions) return false;
    m->regions = regions;
    m->capacity = capacity;
  }
  size_t at = above(m, (uint64_t)(uintptr_t)r.base);
  memmove(m->regions + at + 1, m->regions + at, (m->count - at) * sizeof *m->regions);
  m->regions[at] = r;
  m->count++;
  if (r.file)
    m->mapped += r.bytes;
  else
    m->allocated += r.bytes;
  return true;
}

/* Removes what is released, unheld and untouched by running work. */
static void sweep(pl_memory *m) {
  if (m->running > 0) return;
  size_t kept = 0;
  for (size_t i = 0; i < m->count; i++) {
    region *r = &m->regions[i];
    if (r->released && r->holders == 0)
      give_back(m, r);
    else
      m->regions[kept++] = *r;
  }
  m->count = kept;
}

uint8_t *pl_memory_allocate(pl_memory *m, int64_t bytes) {
  if (bytes < 0 || bytes > MOST_BYTES) return NULL;
  region r = {.base = pl_arena_take(m->arena, bytes), .bytes = bytes};
  if (!r.base) return NULL;
  if (add(m, r)) return r.base;
  give_back(m, &r);
  return NULL;
}

const uint8_t *pl_memory_map(pl_memory *m, const char *path, int64_t *bytes, const char **reason) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    *reason = strerror(errno);
    return NULL;
  }
  struct stat info;
  region r = {.file = true};
  void *p = MAP_FAILED;
  if (fstat(fd, &info) != 0)
    *reason = strerror(errno);
  else if (!S_ISREG(info.st_mode))
    *reason = "not a regular file";
  else if (info.st_size == 0)
    *reason = "the file is empty";
  else {
    r.bytes = info.st_size;
    p = mmap(NULL, (size_t)r.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) *reason = strerror(errno);
  }
  close(fd);
  if (p == MAP_FAILED) return NULL;
  if (r.bytes <= READ_AHEAD_MOST) madvise(p, (size_t)r.bytes, MADV_WILLNEED);
  r.base = p;
  if (add(m, r)) {
    *bytes = r.bytes;
    return r.base;
  }
  give_back(m, &r);
  *reason = strerror(ENOMEM);
  return NULL;
}

bool pl_memory_release(pl_memory *m, uint64_t address) {
  region *r = find(m, address);
  if (!r) { /* an empty block holds no address of its own */
    size_t i = above(m, address);
    if (i > 0 && !m->regions[i - 1].released && (uint64_t)(uintptr_t)m->regions[i - 1].base == address)
      r = &m->regions[i - 1];
  }
  if (!r || (uint64_t)(uintptr_t)r->base != address) return false;
  r->released = true;
  if (r->file)
    m->mapped -= r->bytes;
  else
    m->allocated -= r->bytes;
  sweep(m);
  return true;
}

int64_t pl_memory_available(void *memory, uint64_t address) {
  const region *r = find(memory, address);
  return r ? r->bytes - (int64_t)(address - (uint64_t)(uintptr_t)r->base) : 0;
}

void pl_memory_hold(pl_memory *m, uint64_t address) {
  region *r = find(m, address);
  if (r) r->holders++;
}

void pl_memory_drop(pl_memory *m, uint64_t address) {
  /* The region may be released by now: look without `holds`. */
  size_t i = above(m, address);
  if (i == 0) return;
  region *r = &m->regions[i - 1];
  if (address - (uint64_t)(uintptr_t)r->base >= (uint64_t)r->bytes || r->holders == 0) return;
  r->holders--;
  if (r->released && r->holders == 0) sweep(m);
}

void pl_memory_begin(pl_memory *m) { m->running++; }
void pl_memory_end(pl_memory *m) {
  if (--m->running == 0) sweep(m);
}

int64_t pl_memory_allocated(const pl_memory *m) { return m->allocated; }
int64_t pl_memory_mapped(const pl_memory *m) { return m->mapped; }
