/* Blocks as array buffers, mapped files, and checksums of memory. */
#include <stdlib.h>

#include "addon.h"
#include "checksum.h"

/* (backend, bytes) -> { address, buffer } or null without memory */
napi_value pl_js_allocate(napi_env env, napi_callback_info info) {
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
napi_value pl_js_release(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS];
  int64_t address;
  bool is_buffer = false;
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  pl_backend *backend = get_backend(env, argv[0]);
  if (!backend) return NULL;
  if (!get_integer(env, argv[1], SAFE_INTEGER, &address))
    return fail(env, "internal_error", "native addon: no address");
  if (napi_is_arraybuffer(env, argv[2], &is_buffer) == napi_ok && is_buffer)
    MUST(env, napi_detach_arraybuffer(env, argv[2]));
  if (!pl_memory_release(backend->memory, (uint64_t)address)) {
    return fail(env, "internal_error", "native addon: no block or mapping starts at this address");
  }
  return NULL;
}

/* (backend, path) -> { address, byteLength } or a string with the system's reason */
napi_value pl_js_map_file(napi_env env, napi_callback_info info) {
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

/* (bytes: Uint8Array, before) -> CRC-32 of them behind what `before` is the checksum of, or null: not on this machine */
napi_value pl_js_crc32(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS], none;
  int64_t before;
  size_t length;
  void *data;
  bool is = false;
  napi_typedarray_type type;
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  if (!pl_crc32_runs()) {
    MUST(env, napi_get_null(env, &none));
    return none;
  }
  if (napi_is_typedarray(env, argv[0], &is) != napi_ok || !is ||
      napi_get_typedarray_info(env, argv[0], &type, &length, &data, NULL, NULL) != napi_ok ||
      type != napi_uint8_array || !get_integer(env, argv[1], 4294967295.0, &before)) {
    return fail(env, "internal_error", "native addon: a checksum takes bytes and a checksum");
  }
  return number(env, pl_crc32((uint32_t)before, data, (int64_t)length));
}
