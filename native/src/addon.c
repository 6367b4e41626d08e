/*
 * The N-API face of the backend: plain functions over handles, for src/engine/backends/cpu/ and nobody else.
 *
 * Invariants: Node-API only, so one binary serves every Node; nothing is global, so each worker has its own backends;
 * a thrown error carries a code of src/errors.ts as its `code`; when an environment ends, its backends end first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "probe.h"

enum { MOST_ARGUMENTS = 5, MOST_THREADS = 1024 };

/* ---- helpers ---- */

static napi_value fail(napi_env env, const char *code, const char *message) {
  napi_throw_error(env, code, message);
  return NULL;
}

/* Runs a call that cannot fail with arguments that this file has checked. */
#define MUST(env, call) \
  do { \
    if ((call) != napi_ok) return fail((env), "internal_error", "native addon: " #call); \
  } while (0)

static napi_value number(napi_env env, double x) {
  napi_value value;
  return napi_create_double(env, x, &value) == napi_ok ? value : NULL;
}

static bool set_number(napi_env env, napi_value object, const char *name, double x) {
  napi_value value;
  return napi_create_double(env, x, &value) == napi_ok && napi_set_named_property(env, object, name, value) == napi_ok;
}

/* The arguments of a call; missing ones are undefined. */
static bool arguments(napi_env env, napi_callback_info info, napi_value *argv) {
  size_t count = MOST_ARGUMENTS;
  return napi_get_cb_info(env, info, &count, argv, NULL, NULL) == napi_ok;
}

static bool get_integer(napi_env env, napi_value value, double most, int64_t *out) {
  double x;
  if (napi_get_value_double(env, value, &x) != napi_ok || !(x >= 0 && x <= most) || x != (double)(int64_t)x) return false;
  *out = (int64_t)x;
  return true;
}
#define SAFE_INTEGER 9007199254740991.0

static pl_backend *get_backend(napi_env env, napi_value value) {
  void *data = NULL;
  if (napi_get_value_external(env, value, &data) != napi_ok || !data) {
    fail(env, "internal_error", "native addon: the first argument is no backend");
    return NULL;
  }
  pl_backend *backend = data;
  if (!backend->open) {
    fail(env, "backend_failed", "the cpu backend is closed");
    return NULL;
  }
  return backend;
}

/* ---- completion of jobs, on the JavaScript thread ---- */

static void settle(napi_env env, pl_job *job) {
  napi_value value;
  if (job->outcome == PL_NO_MEMORY) {
    napi_value code, message;
    if (napi_create_string_utf8(env, "out_of_memory", NAPI_AUTO_LENGTH, &code) == napi_ok &&
        napi_create_string_utf8(env, "no memory for the scratch of a plan", NAPI_AUTO_LENGTH, &message) == napi_ok &&
        napi_create_error(env, code, message, &value) == napi_ok) {
      napi_reject_deferred(env, job->deferred, value);
    }
  } else if (napi_create_string_utf8(env, job->outcome == PL_DONE ? "done" : "cancelled", NAPI_AUTO_LENGTH, &value) == napi_ok) {
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

/* ---- backends ---- */

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
static napi_value open_backend(napi_env env, napi_callback_info info) {
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

static napi_value close_backend(napi_env env, napi_callback_info info) {
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

static napi_value describe_backend(napi_env env, napi_callback_info info) {
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

/* ---- memory ---- */

/* (backend, bytes) -> { address, buffer } or null without memory */
static napi_value allocate(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS], object, buffer;
  int64_t bytes;
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  pl_backend *backend = get_backend(env, argv[0]);
  if (!backend) return NULL;
  if (!get_integer(env, argv[1], SAFE_INTEGER, &bytes)) return fail(env, "internal_error", "native addon: no size");
  uint8_t *data = pl_memory_allocate(backend->memory, bytes);
  if (!data) {
    MUST(env, napi_get_null(env, &object));
    return object;
  }
  /* No finalizer: the memory lives until it is freed or the backend closes, whatever JavaScript forgets. */
  napi_status status = napi_create_external_arraybuffer(env, data, (size_t)bytes, NULL, NULL, &buffer);
  if (status != napi_ok) {
    pl_memory_release(backend->memory, (uint64_t)(uintptr_t)data);
    return fail(env, "backend_failed", "this JavaScript engine allows no external array buffers");
  }
  MUST(env, napi_create_object(env, &object));
  set_number(env, object, "address", (double)(uintptr_t)data);
  MUST(env, napi_set_named_property(env, object, "buffer", buffer));
  return object;
}

/* (backend, address, buffer): detaches the buffer, then gives the memory back when nothing uses it */
static napi_value release(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS];
  int64_t address;
  bool is_buffer = false;
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  pl_backend *backend = get_backend(env, argv[0]);
  if (!backend) return NULL;
  if (!get_integer(env, argv[1], SAFE_INTEGER, &address)) return fail(env, "internal_error", "native addon: no address");
  if (napi_is_arraybuffer(env, argv[2], &is_buffer) == napi_ok && is_buffer) MUST(env, napi_detach_arraybuffer(env, argv[2]));
  if (!pl_memory_release(backend->memory, (uint64_t)address)) {
    return fail(env, "internal_error", "native addon: no block or mapping starts at this address");
  }
  return NULL;
}

/* (backend, path) -> { address, byteLength } or a string with the system's reason */
static napi_value map_file(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS], object;
  size_t length;
  int64_t bytes = 0;
  const char *reason = "unknown";
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  pl_backend *backend = get_backend(env, argv[0]);
  if (!backend) return NULL;
  MUST(env, napi_get_value_string_utf8(env, argv[1], NULL, 0, &length));
  char *path = malloc(length + 1);
  if (!path) return fail(env, "out_of_memory", "no memory for a path");
  const uint8_t *data = NULL;
  if (napi_get_value_string_utf8(env, argv[1], path, length + 1, &length) == napi_ok) {
    data = pl_memory_map(backend->memory, path, &bytes, &reason);
  }
  free(path);
  if (!data) {
    MUST(env, napi_create_string_utf8(env, reason, NAPI_AUTO_LENGTH, &object));
    return object;
  }
  MUST(env, napi_create_object(env, &object));
  set_number(env, object, "address", (double)(uintptr_t)data);
  set_number(env, object, "byteLength", (double)bytes);
  return object;
}

/* ---- plans ---- */

static void finalize_plan(napi_env env, void *data, void *hint) {
  (void)env, (void)hint;
  pl_plan_entry **handle = data;
  if (*handle) pl_backend_free_plan(*handle);
  free(handle);
}

static bool get_array(napi_env env, napi_value value, napi_typedarray_type wanted, void **data, size_t *length) {
  bool is = false;
  napi_typedarray_type type;
  return napi_is_typedarray(env, value, &is) == napi_ok && is &&
         napi_get_typedarray_info(env, value, &type, length, data, NULL, NULL) == napi_ok && type == wanted;
}

/* (backend, code: Int32Array, addresses: Float64Array, dtypes: Int32Array) -> plan */
static napi_value load(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS], value;
  void *code, *addresses, *dtypes;
  size_t words, count, dtype_count;
  char error[PL_ERROR_BYTES] = "out of memory for a plan";
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  pl_backend *backend = get_backend(env, argv[0]);
  if (!backend) return NULL;
  if (!get_array(env, argv[1], napi_int32_array, &code, &words) || !get_array(env, argv[2], napi_float64_array, &addresses, &count) ||
      !get_array(env, argv[3], napi_int32_array, &dtypes, &dtype_count)) {
    return fail(env, "plan_invalid", "a program is an Int32Array, a Float64Array and an Int32Array");
  }
  if (count != dtype_count) return fail(env, "plan_invalid", "the weight table has not one dtype for each address");
  const pl_program program = {code, (int64_t)words, addresses, dtypes, (int64_t)count};
  pl_plan_entry **handle = calloc(1, sizeof *handle);
  if (!handle) return fail(env, "out_of_memory", error);
  *handle = pl_backend_load(backend, &program, error);
  if (!*handle) {
    free(handle);
    return fail(env, "plan_invalid", error);
  }
  MUST(env, napi_create_external(env, handle, finalize_plan, NULL, &value));
  return value;
}

static pl_plan_entry **get_plan(napi_env env, napi_value value) {
  void *data = NULL;
  if (napi_get_value_external(env, value, &data) != napi_ok || !data || !*(pl_plan_entry **)data) {
    fail(env, "backend_failed", "the plan has been freed");
    return NULL;
  }
  return data;
}

static napi_value free_plan(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS];
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  pl_plan_entry **handle = get_plan(env, argv[0]);
  if (!handle) return NULL;
  pl_backend_free_plan(*handle);
  *handle = NULL;
  return NULL;
}

/* (backend, plan, workspace address, call address) -> Promise<'done' | 'cancelled'> */
static napi_value execute(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS], promise;
  int64_t workspace, block;
  char error[PL_ERROR_BYTES] = "";
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  pl_backend *backend = get_backend(env, argv[0]);
  if (!backend) return NULL;
  pl_plan_entry **handle = get_plan(env, argv[1]);
  if (!handle) return NULL;
  pl_plan_entry *entry = *handle;
  if (entry->backend != backend) return fail(env, "backend_failed", "the plan was loaded by another backend");
  if (!get_integer(env, argv[2], SAFE_INTEGER, &workspace) || workspace % 4 != 0 ||
      pl_memory_available(backend->memory, (uint64_t)workspace) < entry->plan->workspace_words * 4) {
    return fail(env, "backend_failed", "the workspace is no block of this backend, or too small for the plan");
  }
  if (!get_integer(env, argv[3], SAFE_INTEGER, &block) || block % 8 != 0) {
    return fail(env, "backend_failed", "the call block has no address");
  }
  pl_job *job = calloc(1, sizeof *job);
  if (!job) return fail(env, "out_of_memory", "no memory for an execution");
  const int64_t block_bytes = pl_memory_available(backend->memory, (uint64_t)block);
  if (!pl_call_read(&job->call, entry->plan, (void *)(uintptr_t)block, block_bytes, pl_memory_available, backend->memory, error)) {
    free(job);
    return fail(env, "backend_failed", error);
  }
  job->entry = entry;
  job->workspace = (float *)(uintptr_t)workspace;
  if (napi_create_promise(env, &job->deferred, &promise) != napi_ok) {
    pl_call_free(&job->call);
    free(job);
    return fail(env, "internal_error", "native addon: no promise");
  }
  if (backend->in_flight++ == 0) napi_ref_threadsafe_function(env, backend->notify);
  entry->pending++;
  pl_memory_begin(backend->memory);
  pl_backend_submit(backend, job);
  return promise;
}

/* ---- the probes ---- */

typedef struct {
  const pl_kernels *kernels;
  int64_t bytes; /* 0: the arithmetic probe */
  int threads;
  double seconds;
  pl_rate result;
  napi_deferred deferred;
  napi_async_work work;
} probe_work;

static void probe_execute(napi_env env, void *data) {
  (void)env;
  probe_work *w = data;
  w->result = w->bytes > 0 ? pl_read_bandwidth(w->kernels, w->bytes, w->threads, w->seconds)
                           : pl_multiply_rate(w->kernels, w->threads, w->seconds);
}

static void probe_complete(napi_env env, napi_status status, void *data) {
  (void)status;
  probe_work *w = data;
  napi_value object;
  if (napi_create_object(env, &object) == napi_ok) {
    set_number(env, object, "best", w->result.best);
    set_number(env, object, "median", w->result.median);
    set_number(env, object, "rounds", w->result.rounds);
    napi_resolve_deferred(env, w->deferred, object);
  }
  napi_delete_async_work(env, w->work);
  free(w);
}

static napi_value start_probe(napi_env env, int64_t bytes, napi_value threads_value, napi_value seconds_value, napi_value isa_value) {
  napi_value promise, name;
  char isa[32] = "";
  size_t length;
  int64_t threads;
  double seconds;
  if (!get_integer(env, threads_value, MOST_THREADS, &threads) || threads < 1 ||
      napi_get_value_double(env, seconds_value, &seconds) != napi_ok) {
    return fail(env, "invalid_option", "a probe takes threads and seconds");
  }
  MUST(env, napi_get_value_string_utf8(env, isa_value, isa, sizeof isa, &length));
  const pl_kernels *kernels = pl_choose_kernels(isa);
  if (!kernels) return fail(env, "backend_unavailable", "this machine or this build has no such instruction set");
  probe_work *w = calloc(1, sizeof *w);
  if (!w) return fail(env, "out_of_memory", "no memory for a probe");
  *w = (probe_work){.kernels = kernels, .bytes = bytes, .threads = (int)threads, .seconds = seconds};
  MUST(env, napi_create_promise(env, &w->deferred, &promise));
  MUST(env, napi_create_string_utf8(env, "plumbline probe", NAPI_AUTO_LENGTH, &name));
  MUST(env, napi_create_async_work(env, NULL, name, probe_execute, probe_complete, w, &w->work));
  MUST(env, napi_queue_async_work(env, w->work));
  return promise;
}

/* (bytes, threads, seconds, isa) -> Promise<{ best, median, rounds }>, bytes per second */
static napi_value read_bandwidth(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS];
  int64_t bytes;
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  if (!get_integer(env, argv[0], SAFE_INTEGER, &bytes) || bytes < 1) {
    return fail(env, "invalid_option", "readBandwidth takes at least one byte");
  }
  return start_probe(env, bytes, argv[1], argv[2], argv[3]);
}

/* (threads, seconds, isa) -> Promise<{ best, median, rounds }>, multiply-adds per second */
static napi_value multiply_rate(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS];
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  return start_probe(env, 0, argv[0], argv[1], argv[2]);
}

/* (name) -> whether kernels of this instruction set can run here ('' : the best) and which */
static napi_value resolve_isa(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS], value;
  char isa[32] = "";
  size_t length;
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  MUST(env, napi_get_value_string_utf8(env, argv[0], isa, sizeof isa, &length));
  const pl_kernels *kernels = pl_choose_kernels(isa);
  MUST(env, kernels ? napi_create_string_utf8(env, kernels->isa, NAPI_AUTO_LENGTH, &value) : napi_get_null(env, &value));
  return value;
}

static napi_value available_cores(napi_env env, napi_callback_info info) {
  (void)info;
  return number(env, pl_available_cores());
}

NAPI_MODULE_INIT() {
  static const struct {
    const char *name;
    napi_callback function;
  } functions[] = {
      {"open", open_backend},     {"close", close_backend},   {"describe", describe_backend},
      {"allocate", allocate},     {"release", release},       {"mapFile", map_file},
      {"load", load},             {"freePlan", free_plan},    {"execute", execute},
      {"resolveIsa", resolve_isa}, {"availableCores", available_cores}, {"readBandwidth", read_bandwidth},
      {"multiplyRate", multiply_rate},
  };
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    napi_value function;
    MUST(env, napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].function, NULL, &function));
    MUST(env, napi_set_named_property(env, exports, functions[i].name, function));
  }
  return exports;
}
