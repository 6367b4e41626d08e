/* Backends as JavaScript sees them: opening, closing, and the promises of finished jobs. */
#include <stdio.h>
#include <stdlib.h>

#include "addon.h"

/* ---- completion of jobs ---- */

static void settle(napi_env env, pl_job *job) {
  napi_value value;
  if (job->outcome == PL_NO_MEMORY) {
    napi_value code, message;
    if (napi_create_string_utf8(env, "out_of_memory", NAPI_AUTO_LENGTH, &code) == napi_ok &&
        napi_create_string_utf8(env, "no memory for the scratch of a plan", NAPI_AUTO_LENGTH, &message) == napi_ok &&
        napi_create_error(env, code, message, &value) == napi_ok) {
      napi_reject_deferred(env, job->deferred, value);
    }
  } else if (napi_create_string_utf8(env, job->outcome == PL_DONE ? "done" : "cancelled", NAPI_AUTO_LENGTH, &value) ==
             napi_ok) {
    napi_resolve_deferred(env, job->deferred, value);
  }
}

static void collect(napi_env env, pl_backend *backend) {
  pl_job *job = pl_backend_collect(backend);
  while (job) {
    pl_job *next = job->next;
    settle(env, job);
    pl_backend_end_job(backend, job);
    job = next;
  }
}

static void on_notify(napi_env env, napi_value callback, void *context, void *data) {
  (void)callback, (void)data;
  pl_backend *backend = *(pl_backend **)context;
  if (!env || !backend) return; /* the environment or the backend has ended */
  collect(env, backend);
  if (backend->open && backend->in_flight == 0) napi_unref_threadsafe_function(env, backend->notify);
}

static void free_context(napi_env env, void *data, void *hint) {
  (void)env, (void)hint;
  free(data);
}

/* ---- opening and closing ---- */

/* The environment ends: threads first, before Node takes the thread-safe function away. */
static void on_environment_end(void *data) {
  pl_backend *backend = data;
  pl_backend_stop(backend);
  pl_backend_free_memory(backend);
}

/* The JavaScript object went away, closed or not. */
static void finalize_backend(napi_env env, void *data, void *hint) {
  (void)hint;
  pl_backend *backend = data;
  if (backend->open) {
    napi_remove_env_cleanup_hook(env, on_environment_end, backend);
    *backend->slot = NULL;
    pl_backend_stop(backend);
    napi_release_threadsafe_function(backend->notify, napi_tsfn_abort);
  }
  pl_backend_free_memory(backend);
  free(backend);
}

/* (threads, instruction set, nanoseconds of work worth sharing) -> backend */
napi_value pl_js_open(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS], name, handle;
  char isa[32] = "";
  size_t length;
  int64_t threads;
  double shared_work;
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  if (!get_integer(env, argv[0], MOST_THREADS, &threads) || threads < 1) {
    return fail(env, "invalid_option", "threads must be an integer from 1 to 1024");
  }
  MUST(env, napi_get_value_string_utf8(env, argv[1], isa, sizeof isa, &length));
  MUST(env, napi_get_value_double(env, argv[2], &shared_work));
  const pl_kernels *kernels = pl_choose_kernels(isa);
  if (!kernels) {
    char message[128];
    snprintf(message, sizeof message, "this machine or this build has no instruction set '%s'", isa);
    return fail(env, "backend_unavailable", message);
  }
  pl_backend **slot = calloc(1, sizeof *slot);
  if (!slot) return fail(env, "out_of_memory", "no memory for a backend");
  napi_threadsafe_function notify;
  MUST(env, napi_create_string_utf8(env, "plumbline", NAPI_AUTO_LENGTH, &name));
  MUST(env, napi_create_threadsafe_function(env, NULL, NULL, name, 0, 1, slot, free_context, slot, on_notify, &notify));
  MUST(env, napi_unref_threadsafe_function(env, notify)); /* an idle backend does not keep the process alive */
  pl_backend *backend = pl_backend_new(kernels, (int)threads, shared_work, notify);
  if (!backend) {
    napi_release_threadsafe_function(notify, napi_tsfn_abort);
    return fail(env, "out_of_memory", "the threads of the cpu backend could not be started");
  }
  *slot = backend;
  backend->slot = slot;
  napi_add_env_cleanup_hook(env, on_environment_end, backend);
  MUST(env, napi_create_external(env, backend, finalize_backend, NULL, &handle));
  return handle;
}

napi_value pl_js_close(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS];
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  pl_backend *backend = get_backend(env, argv[0]);
  if (!backend) return NULL;
  napi_remove_env_cleanup_hook(env, on_environment_end, backend);
  *backend->slot = NULL;
  pl_backend_stop(backend);
  collect(env, backend);
  pl_backend_free_memory(backend);
  napi_release_threadsafe_function(backend->notify, napi_tsfn_abort);
  return NULL;
}

napi_value pl_js_describe(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS], object, isa;
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  pl_backend *backend = get_backend(env, argv[0]);
  if (!backend) return NULL;
  MUST(env, napi_create_object(env, &object));
  MUST(env, napi_create_string_utf8(env, backend->kernels->isa, NAPI_AUTO_LENGTH, &isa));
  MUST(env, napi_set_named_property(env, object, "isa", isa));
  set_number(env, object, "threads", backend->threads);
  set_number(env, object, "allocated", (double)pl_memory_allocated(backend->memory));
  set_number(env, object, "mapped", (double)pl_memory_mapped(backend->memory));
  return object;
}
