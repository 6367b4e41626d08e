/* See backend.h. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "backend.h"

#include <sched.h>
#include <stdlib.h>

enum { SPIN_NANOSECONDS = 300000, YIELD_SPINS = 16 };

/*
 * Waits a moment for the next job, which in a running generation comes as soon as the token is chosen: waking a thread
 * can take as long as a tenth of a small model's forward. A core that others wait for is given to them. Not where there
 * are more threads than cores, nor on a single core, which JavaScript needs to come to its next job.
 */
static void spin_for_job(pl_backend *b) {
  if (b->threads > b->cores || b->cores < 2) return;
  const int64_t until = pl_now() + SPIN_NANOSECONDS;
  for (uint32_t spins = 1; atomic_load_explicit(&b->waiting, memory_order_acquire) == 0; spins++) {
    if (spins % YIELD_SPINS == 0) {
      if (pl_now() > until) return;
      sched_yield(); /* JavaScript may be waiting for this very core */
    }
    pl_relax();
  }
}

static void append(pl_job_list *list, pl_job *job) {
  job->next = NULL;
  if (list->last)
    list->last->next = job;
  else
    list->first = job;
  list->last = job;
}

static pl_job *take_first(pl_job_list *list) {
  pl_job *job = list->first;
  if (!job) return NULL;
  list->first = job->next;
  if (!list->first) list->last = NULL;
  return job;
}

static void *drive(void *argument) {
  pl_backend *b = argument;
  pl_set_float_mode();
  bool spun = true; /* nothing has run yet: nothing is soon to come */
  pthread_mutex_lock(&b->mutex);
  for (;;) {
    pl_job *job = take_first(&b->queue);
    if (!job) {
      if (b->stop) break;
      if (!spun) {
        pthread_mutex_unlock(&b->mutex);
        spin_for_job(b);
        pthread_mutex_lock(&b->mutex);
        spun = true;
        continue;
      }
      b->sleeps = true;
      pthread_cond_wait(&b->wake, &b->mutex);
      b->sleeps = false;
      continue;
    }
    atomic_fetch_sub_explicit(&b->waiting, 1, memory_order_relaxed);
    spun = false;
    pthread_mutex_unlock(&b->mutex);
    job->outcome = pl_execute(b->executor, job->entry->plan, &job->call, job->workspace);
    pthread_mutex_lock(&b->mutex);
    append(&b->finished, job);
    if (!b->stop && !(job->followed && b->queue.first)) napi_call_threadsafe_function(b->notify, NULL, napi_tsfn_nonblocking);
  }
  pthread_mutex_unlock(&b->mutex);
  return NULL;
}

pl_backend *pl_backend_new(const pl_kernels *kernels, int threads, double shared_work,
                           napi_threadsafe_function notify) {
  pl_backend *b = calloc(1, sizeof *b);
  if (!b) return NULL;
  b->kernels = kernels;
  b->threads = threads;
  b->cores = pl_available_cores();
  b->notify = notify;
  b->memory = pl_memory_new();
  b->executor = b->memory ? pl_executor_new(kernels, threads, shared_work) : NULL;
  pthread_mutex_init(&b->mutex, NULL);
  pthread_cond_init(&b->wake, NULL);
  if (b->executor && pthread_create(&b->driver, NULL, drive, b) == 0) {
#if defined(__linux__)
    pthread_setname_np(b->driver, "plumbline");
#endif
    b->open = true;
    return b;
  }
  if (b->executor) pl_executor_free(b->executor);
  if (b->memory) pl_memory_free(b->memory);
  pthread_mutex_destroy(&b->mutex);
  pthread_cond_destroy(&b->wake);
  free(b);
  return NULL;
}

void pl_backend_submit(pl_backend *b, pl_job *job) {
  pthread_mutex_lock(&b->mutex);
  append(&b->queue, job);
  atomic_fetch_add_explicit(&b->waiting, 1, memory_order_release);
  if (b->sleeps) pthread_cond_signal(&b->wake);
  pthread_mutex_unlock(&b->mutex);
}

pl_job *pl_backend_collect(pl_backend *b) {
  pthread_mutex_lock(&b->mutex);
  pl_job *jobs = b->finished.first;
  b->finished = (pl_job_list){0};
  pthread_mutex_unlock(&b->mutex);
  return jobs;
}

void pl_backend_stop(pl_backend *b) {
  if (!b->open) return;
  b->open = false;
  pl_executor_stop(b->executor); /* every job left ends as cancelled, and so is taken off the queue at once */
  pthread_mutex_lock(&b->mutex);
  b->stop = true;
  atomic_fetch_add_explicit(&b->waiting, 1, memory_order_release); /* ends a spin */
  pthread_cond_signal(&b->wake);
  pthread_mutex_unlock(&b->mutex);
  pthread_join(b->driver, NULL);
  pl_executor_free(b->executor);
  b->executor = NULL;
}

void pl_backend_free_memory(pl_backend *b) {
  while (b->plans) {
    pl_plan_entry *entry = b->plans;
    b->plans = entry->next;
    pl_plan_free(entry->plan);
    entry->plan = NULL;
    free(entry->held);
    entry->held = NULL;
    entry->backend = NULL; /* the entry itself belongs to its JavaScript object */
    if (entry->freed) free(entry);
  }
  if (b->memory) pl_memory_free(b->memory);
  b->memory = NULL;
}

/* Answers as the memory does, and notes what the plan will hold. */
static int64_t note_available(void *context, uint64_t address) {
  pl_plan_entry *entry = context;
  int64_t bytes = pl_memory_available(entry->backend->memory, address);
  if (bytes == 0) return 0;
  if (entry->held_count == entry->held_capacity) {
    int64_t capacity = entry->held_capacity ? entry->held_capacity * 2 : 256;
    uint64_t *held = realloc(entry->held, (size_t)capacity * sizeof *held);
    if (!held) return 0;
    entry->held = held;
    entry->held_capacity = capacity;
  }
  entry->held[entry->held_count++] = address;
  return bytes;
}

pl_plan_entry *pl_backend_load(pl_backend *b, const pl_program *program, char *error) {
  pl_plan_entry *entry = calloc(1, sizeof *entry);
  if (!entry) return NULL;
  entry->backend = b;
  entry->plan = pl_plan_load(program, b->kernels->fits_pairs, note_available, entry, error);
  if (!entry->plan) {
    free(entry->held);
    free(entry);
    return NULL;
  }
  for (int64_t i = 0; i < entry->held_count; i++) pl_memory_hold(b->memory, entry->held[i]);
  entry->next = b->plans;
  if (b->plans) b->plans->previous = entry;
  b->plans = entry;
  return entry;
}

static void drop_plan(pl_plan_entry *entry) {
  pl_backend *b = entry->backend;
  if (entry->previous)
    entry->previous->next = entry->next;
  else
    b->plans = entry->next;
  if (entry->next) entry->next->previous = entry->previous;
  for (int64_t i = 0; i < entry->held_count; i++) pl_memory_drop(b->memory, entry->held[i]);
  pl_plan_free(entry->plan);
  free(entry->held);
}

void pl_backend_free_plan(pl_plan_entry *entry) {
  entry->freed = true;
  if (!entry->backend) { /* the backend went first and took the contents with it */
    free(entry);
    return;
  }
  if (entry->pending > 0) return;
  drop_plan(entry);
  free(entry);
}

void pl_backend_end_job(pl_backend *b, pl_job *job) {
  pl_plan_entry *entry = job->entry;
  pl_call_free(&job->call);
  entry->pending--;
  if (entry->freed && entry->pending == 0) {
    drop_plan(entry);
    free(entry);
  }
  b->in_flight--;
  pl_memory_end(b->memory);
  free(job);
}
