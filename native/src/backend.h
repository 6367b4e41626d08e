/*
 * One backend behind the addon: memory, plans, and a driver thread that runs submitted executions in their order.
 *
 * Invariants: all functions but the driver's own are called on the JavaScript thread of one environment; the driver
 * touches no JavaScript value: a finished job goes onto a list, and a thread-safe function lets JavaScript collect it;
 * a driver that has run a job spins for a moment before it sleeps; a plan that is freed while jobs of it are pending
 * stays until the last of them is collected.
 */
#ifndef PL_BACKEND_H
#define PL_BACKEND_H

#include <pthread.h>
#include <stdatomic.h>

#define NAPI_VERSION 8
#include <node_api.h>

#include "executor.h"
#include "memory.h"

typedef struct pl_backend pl_backend;

/* A plan that JavaScript holds. */
typedef struct pl_plan_entry {
  pl_backend *backend;
  pl_plan *plan;
  uint64_t *held; /* addresses of the weights whose memory it holds */
  int64_t held_count, held_capacity;
  int64_t pending;
  bool freed;
  struct pl_plan_entry *next, *previous;
} pl_plan_entry;

typedef struct pl_job {
  pl_plan_entry *entry;
  pl_call call;
  float *workspace;
  napi_deferred deferred;
  pl_outcome outcome;
  bool followed; /* another job comes at once: its end tells of both */
  struct pl_job *next;
} pl_job;

typedef struct {
  pl_job *first, *last;
} pl_job_list;

struct pl_backend {
  const pl_kernels *kernels;
  int threads, cores;
  pl_memory *memory;
  pl_executor *executor;
  pl_plan_entry *plans;
  bool open;
  int64_t in_flight;
  napi_threadsafe_function notify;
  pthread_t driver;
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t wake;
  pl_job_list queue, finished;
  bool stop, sleeps;
  _Atomic int32_t waiting; /* jobs in the queue, for a driver that spins */
  struct pl_backend **slot; /* where the thread-safe function finds the backend; empty once it has ended */
};

/* Starts the driver and helpers; NULL when they cannot be had. `notify` is called whenever a job has finished,
 * unless the job is `followed` by one that waits already: then with that one. */
pl_backend *pl_backend_new(const pl_kernels *kernels, int threads, double shared_work, napi_threadsafe_function notify);
/* Hands a job to the driver. */
void pl_backend_submit(pl_backend *backend, pl_job *job);
/* The jobs that have finished since the last call. */
pl_job *pl_backend_collect(pl_backend *backend);
/* Cancels what is queued or running and ends the threads. Afterwards all jobs are finished; memory and plans remain. */
void pl_backend_stop(pl_backend *backend);
/* Gives memory and plans back. The threads must have ended. */
void pl_backend_free_memory(pl_backend *backend);

/* A plan of this program; NULL with a text. */
pl_plan_entry *pl_backend_load(pl_backend *backend, const pl_program *program, char *error);
void pl_backend_free_plan(pl_plan_entry *entry);
/* A job has been collected: its call and its hold on the plan end. */
void pl_backend_end_job(pl_backend *backend, pl_job *job);

#endif
