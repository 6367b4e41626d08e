/*
 * What the addon's files share: how they read arguments, make numbers and throw. The functions that JavaScript sees are
 * declared here and listed in addon.c.
 */
#ifndef PL_ADDON_H
#define PL_ADDON_H

#include "backend.h"

enum { MOST_ARGUMENTS = 5, MOST_THREADS = 1024 };

/* addon-backend.c */
napi_value pl_js_open(napi_env env, napi_callback_info info);
napi_value pl_js_close(napi_env env, napi_callback_info info);
napi_value pl_js_describe(napi_env env, napi_callback_info info);
/* addon-memory.c */
napi_value pl_js_allocate(napi_env env, napi_callback_info info);
napi_value pl_js_release(napi_env env, napi_callback_info info);
napi_value pl_js_map_file(napi_env env, napi_callback_info info);
napi_value pl_js_crc32(napi_env env, napi_callback_info info);
/* addon-files.c */
napi_value pl_js_read_summed(napi_env env, napi_callback_info info);
/* addon-plan.c */
napi_value pl_js_load(napi_env env, napi_callback_info info);
napi_value pl_js_free_plan(napi_env env, napi_callback_info info);
napi_value pl_js_execute(napi_env env, napi_callback_info info);
/* addon-probe.c */
napi_value pl_js_read_bandwidth(napi_env env, napi_callback_info info);
napi_value pl_js_multiply_rate(napi_env env, napi_callback_info info);

static inline napi_value fail(napi_env env, const char *code, const char *message) {
  napi_throw_error(env, code, message);
  return NULL;
}

/* Runs a call that cannot fail with arguments that this file has checked. */
#define MUST(env, call) \
  do { \
    if ((call) != napi_ok) return fail((env), "internal_error", "native addon: " #call); \
  } while (0)

static inline napi_value number(napi_env env, double x) {
  napi_value value;
  return napi_create_double(env, x, &value) == napi_ok ? value : NULL;
}

static inline bool set_number(napi_env env, napi_value object, const char *name, double x) {
  napi_value value;
  return napi_create_double(env, x, &value) == napi_ok && napi_set_named_property(env, object, name, value) == napi_ok;
}

/* The arguments of a call; missing ones are undefined. */
static inline bool arguments(napi_env env, napi_callback_info info, napi_value *argv) {
  size_t count = MOST_ARGUMENTS;
  return napi_get_cb_info(env, info, &count, argv, NULL, NULL) == napi_ok;
}

static inline bool get_integer(napi_env env, napi_value value, double most, int64_t *out) {
  double x;
  if (napi_get_value_double(env, value, &x) != napi_ok || !(x >= 0 && x <= most) || x != (double)(int64_t)x)
    return false;
  *out = (int64_t)x;
  return true;
}
#define SAFE_INTEGER 9007199254740991.0

static inline pl_backend *get_backend(napi_env env, napi_value value) {
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

#endif
