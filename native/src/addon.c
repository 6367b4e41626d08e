/*
 * The N-API face of the backend: plain functions over handles, for src/engine/backends/cpu/ and nobody else.
 *
 * Invariants: Node-API only, so one binary serves every Node; nothing is global, so each worker has its own backends;
 * a thrown error carries a code of src/errors.ts as its `code`; when an environment ends, its backends end first.
 */
#include "addon.h"

/* (name) -> whether kernels of this instruction set can run here ('' : the best) and which */
static napi_value resolve_isa(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS], value;
  char isa[32] = "";
  size_t length;
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  MUST(env, napi_get_value_string_utf8(env, argv[0], isa, sizeof isa, &length));
  const pl_kernels *kernels = pl_choose_kernels(isa);
  MUST(env,
       kernels ? napi_create_string_utf8(env, kernels->isa, NAPI_AUTO_LENGTH, &value) : napi_get_null(env, &value));
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
      {"open", pl_js_open},
      {"close", pl_js_close},
      {"describe", pl_js_describe},
      {"allocate", pl_js_allocate},
      {"release", pl_js_release},
      {"mapFile", pl_js_map_file},
      {"crc32", pl_js_crc32},
      {"readSummed", pl_js_read_summed},
      {"load", pl_js_load},
      {"freePlan", pl_js_free_plan},
      {"execute", pl_js_execute},
      {"resolveIsa", resolve_isa},
      {"availableCores", available_cores},
      {"readBandwidth", pl_js_read_bandwidth},
      {"multiplyRate", pl_js_multiply_rate},
  };
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    napi_value function;
    MUST(env, napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].function, NULL, &function));
    MUST(env, napi_set_named_property(env, exports, functions[i].name, function));
  }
  return exports;
}
