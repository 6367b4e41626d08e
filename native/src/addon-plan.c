/* Plans as JavaScript sees them: loading, freeing, executing. */
#include <stdlib.h>

#include "addon.h"

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
napi_value pl_js_load(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS], value;
  void *code, *addresses, *dtypes;
  size_t words, count, dtype_count;
  char error[PL_ERROR_BYTES] = "out of memory for a plan";
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  pl_backend *backend = get_backend(env, argv[0]);
  if (!backend) return NULL;
  if (!get_array(env, argv[1], napi_int32_array, &code, &words) ||
      !get_array(env, argv[2], napi_float64_array, &addresses, &count) ||
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

napi_value pl_js_free_plan(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS];
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  pl_plan_entry **handle = get_plan(env, argv[0]);
  if (!handle) return NULL;
  pl_backend_free_plan(*handle);
  *handle = NULL;
  return NULL;
}

/* (backend, plan, workspace address, call address, followed) -> Promise<'done' | 'cancelled'> */
napi_value pl_js_execute(napi_env env, napi_callback_info info) {
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
  if (!pl_call_read(&job->call, entry->plan, (void *)(uintptr_t)block, block_bytes, pl_memory_available,
                    backend->memory, error)) {
    free(job);
    return fail(env, "backend_failed", error);
  }
  if (napi_get_value_bool(env, argv[4], &job->followed) != napi_ok) job->followed = false;
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
