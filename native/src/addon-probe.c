/* The probes of probe.h as promises, run on a thread of Node's pool. */
#include <stdlib.h>

#include "addon.h"
#include "probe.h"

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

static napi_value start_probe(napi_env env, int64_t bytes, napi_value threads_value, napi_value seconds_value,
                              napi_value isa_value) {
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
napi_value pl_js_read_bandwidth(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS];
  int64_t bytes;
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  if (!get_integer(env, argv[0], SAFE_INTEGER, &bytes) || bytes < 1) {
    return fail(env, "invalid_option", "readBandwidth takes at least one byte");
  }
  return start_probe(env, bytes, argv[1], argv[2], argv[3]);
}

/* (threads, seconds, isa) -> Promise<{ best, median, rounds }>, multiply-adds per second */
napi_value pl_js_multiply_rate(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS];
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  return start_probe(env, 0, argv[0], argv[1], argv[2]);
}
