/* See pool.h. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { SPIN_NANOSECONDS = 40000, YIELD_SPINS = 8, LINE = 64 };

struct pl_pool {
  /*
   * The region's pieces: how many in the upper half, the next one in the lower. One fetch-and-add takes a piece and
   * proves in the same word that it belongs to the current region: a region with pieces left to finish cannot be
   * replaced.
   */
  _Alignas(LINE) _Atomic uint64_t word;
  _Alignas(LINE) _Atomic uint32_t done;
  _Atomic bool leader_sleeps;
  _Alignas(LINE) _Atomic int sleepers;
  _Atomic bool stop;
  _Alignas(LINE) pl_region region;
  void *context;
  const int64_t *bounds;
  int threads;
  int64_t spin;
  pthread_mutex_t mutex;
  pthread_cond_t work, finished;
  struct helper *helpers;
  int started;
};

struct helper {
  pl_pool *pool;
  int index;
  pthread_t thread;
};

int64_t pl_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void pl_relax(void) {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void pl_set_float_mode(void) {
#if defined(__x86_64__)
  _mm_setcsr(0x1f80);
#elif defined(__aarch64__)
  uint64_t plain = 0;
  __asm__ volatile("msr fpcr, %0" : : "r"(plain));
#endif
}

int pl_available_cores(void) {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : (int)n;
}

/*
 * Sleeping and waking is Dekker's game: one side writes that it sleeps and then looks for work (or for the end), the
 * other writes work (or the end) and then looks for sleepers. Each needs this fence between its write and its look.
 * Sequentially consistent accesses alone would do by the language, but emulators are known to reorder them.
 */
static inline void between_write_and_look(void) { atomic_thread_fence(memory_order_seq_cst); }

static inline bool has_work(uint64_t word) { return (uint32_t)word < (uint32_t)(word >> 32); }

/* Takes pieces until none is left; says how many it did. */
static uint32_t take_pieces(pl_pool *pool, int index) {
  uint32_t did = 0;
  while (has_work(atomic_load_explicit(&pool->word, memory_order_relaxed))) {
    uint64_t word = atomic_fetch_add_explicit(&pool->word, 1, memory_order_acquire);
    if (!has_work(word)) break;
    const int64_t *piece = pool->bounds + (uint32_t)word;
    pool->region(pool->context, piece[0], piece[1], index);
    did++;
  }
  return did;
}

static void *help(void *argument) {
  struct helper *self = argument;
  pl_pool *pool = self->pool;
  pl_set_float_mode();
  int64_t idle_since = 0;
  for (uint32_t spins = 1;; spins++) {
    if (has_work(atomic_load_explicit(&pool->word, memory_order_relaxed))) {
      idle_since = 0;
      uint32_t did = take_pieces(pool, self->index);
      if (did == 0) continue;
      /* The total is read before: once `done` is complete the leader may publish another region. */
      uint32_t total = (uint32_t)(atomic_load_explicit(&pool->word, memory_order_relaxed) >> 32);
      if (atomic_fetch_add(&pool->done, did) + did != total) continue;
      between_write_and_look();
      if (atomic_load(&pool->leader_sleeps)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&pool->finished);
        pthread_mutex_unlock(&pool->mutex);
      }
      continue;
    }
    if (atomic_load_explicit(&pool->stop, memory_order_relaxed)) return NULL;
    int64_t now = pl_now();
    if (idle_since == 0) idle_since = now;
    if (now - idle_since < pool->spin) {
      /* The leader may be waiting for this very core: a thread that wakes another may get it as a neighbour. */
      if (spins % YIELD_SPINS == 0) sched_yield();
      for (int i = 0; i < 16 && !has_work(atomic_load_explicit(&pool->word, memory_order_relaxed)); i++) pl_relax();
      continue;
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    between_write_and_look();
    while (!has_work(atomic_load(&pool->word)) && !atomic_load(&pool->stop))
      pthread_cond_wait(&pool->work, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
    idle_since = 0;
  }
}

pl_pool *pl_pool_new(int threads) {
  pl_pool *pool = aligned_alloc(LINE, (sizeof *pool + LINE - 1) / LINE * LINE);
  if (!pool) return NULL;
  memset(pool, 0, sizeof *pool);
  pool->threads = threads;
  pool->spin = threads > pl_available_cores() ? 0 : SPIN_NANOSECONDS;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->finished, NULL);
  pool->helpers = calloc((size_t)threads, sizeof *pool->helpers);
  for (int i = 1; pool->helpers && i < threads; i++) {
    struct helper *helper = &pool->helpers[i - 1];
    *helper = (struct helper){.pool = pool, .index = i};
    if (pthread_create(&helper->thread, NULL, help, helper) != 0) break;
    pool->started++;
  }
  if (pool->started == threads - 1) return pool;
  pl_pool_free(pool);
  return NULL;
}

void pl_pool_free(pl_pool *pool) {
  pthread_mutex_lock(&pool->mutex);
  atomic_store(&pool->stop, true);
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->mutex);
  for (int i = 0; i < pool->started; i++) pthread_join(pool->helpers[i].thread, NULL);
  pthread_mutex_destroy(&pool->mutex);
  pthread_cond_destroy(&pool->work);
  pthread_cond_destroy(&pool->finished);
  free(pool->helpers);
  free(pool);
}

int pl_pool_threads(const pl_pool *pool) { return pool->threads; }

/* The leader has done its share; helpers may still be inside theirs. */
static void wait_until_done(pl_pool *pool, uint32_t total) {
  const int64_t since = pool->spin > 0 ? pl_now() : 0;
  while (atomic_load_explicit(&pool->done, memory_order_acquire) != total) {
    for (int i = 0; i < 64 && atomic_load_explicit(&pool->done, memory_order_acquire) != total; i++) pl_relax();
    if (pool->spin > 0 && pl_now() - since < pool->spin) continue;
    pthread_mutex_lock(&pool->mutex);
    atomic_store_explicit(&pool->leader_sleeps, true, memory_order_relaxed);
    between_write_and_look();
    while (atomic_load(&pool->done) != total) pthread_cond_wait(&pool->finished, &pool->mutex);
    atomic_store(&pool->leader_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
    return;
  }
}

void pl_pool_run(pl_pool *pool, pl_region region, void *context, const int64_t *bounds, uint32_t pieces) {
  if (pool->threads == 1 || pieces < 2) {
    for (uint32_t i = 0; i < pieces; i++) region(context, bounds[i], bounds[i + 1], 0);
    return;
  }
  pool->region = region;
  pool->context = context;
  pool->bounds = bounds;
  atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
  atomic_store_explicit(&pool->word, (uint64_t)pieces << 32, memory_order_release);
  between_write_and_look();
  if (atomic_load(&pool->sleepers) > 0) {
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
  }
  uint32_t did = take_pieces(pool, 0);
  if (atomic_fetch_add(&pool->done, did) + did != pieces) wait_until_done(pool, pieces);
}
