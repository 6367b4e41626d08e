/* Reading a file into memory with checksums, on a thread of Node's pool. */
#define _DEFAULT_SOURCE /* pread */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "addon.h"
#include "checksum.h"

enum {
  /* Large enough that the calls cost nothing, small enough that most of it is still in a cache when it is summed. */
  PIECE_BYTES = 1024 * 1024,
  MOST_VIEWS = 4096,
};

typedef struct {
  uint8_t *data;
  int64_t bytes;
  uint32_t checksum;
} view;

typedef struct {
  int fd;
  int64_t position;
  uint32_t count;
  int error; /* errno, or -1: the file ended */
  napi_ref views_alive;
  napi_deferred deferred;
  napi_async_work work;
  view views[];
} read_work;

static void read_execute(napi_env env, void *data) {
  (void)env;
  read_work *w = data;
  int64_t position = w->position;
  for (uint32_t i = 0; i < w->count; i++) {
    view *v = &w->views[i];
    for (int64_t done = 0; done < v->bytes;) {
      int64_t left = v->bytes - done;
      ssize_t got = pread(w->fd, v->data + done, (size_t)(left < PIECE_BYTES ? left : PIECE_BYTES), position);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        w->error = got < 0 ? errno : -1;
        return;
      }
      v->checksum = pl_crc32(v->checksum, v->data + done, got);
      done += got;
      position += got;
    }
  }
}

static void reject_read(napi_env env, const read_work *w) {
  napi_value code, message, error;
  const char *name = w->error == -1 ? "session_file_invalid" : w->error == EIO ? "EIO" : "EUNKNOWN";
  const char *what = w->error == -1 ? "the file ended before its last byte" : strerror(w->error);
  if (napi_create_string_utf8(env, name, NAPI_AUTO_LENGTH, &code) == napi_ok &&
      napi_create_string_utf8(env, what, NAPI_AUTO_LENGTH, &message) == napi_ok &&
      napi_create_error(env, code, message, &error) == napi_ok) {
    napi_reject_deferred(env, w->deferred, error);
  }
}

static void read_complete(napi_env env, napi_status status, void *data) {
  (void)status;
  read_work *w = data;
  napi_value sums, sum;
  if (w->error != 0) {
    reject_read(env, w);
  } else if (napi_create_array_with_length(env, w->count, &sums) == napi_ok) {
    for (uint32_t i = 0; i < w->count; i++) {
      if (napi_create_uint32(env, w->views[i].checksum, &sum) == napi_ok) napi_set_element(env, sums, i, sum);
    }
    napi_resolve_deferred(env, w->deferred, sums);
  }
  napi_delete_reference(env, w->views_alive);
  napi_delete_async_work(env, w->work);
  free(w);
}

/* (descriptor, views: Uint8Array[], position, before) -> Promise of one CRC-32 a view, the first one's behind `before` */
napi_value pl_js_read_summed(napi_env env, napi_callback_info info) {
  napi_value argv[MOST_ARGUMENTS], element, promise, name;
  int64_t fd, position, before;
  uint32_t count;
  MUST(env, arguments(env, info, argv) ? napi_ok : napi_generic_failure);
  if (!get_integer(env, argv[0], 2147483647.0, &fd) || napi_get_array_length(env, argv[1], &count) != napi_ok ||
      count < 1 || count > MOST_VIEWS || !get_integer(env, argv[2], SAFE_INTEGER, &position) ||
      !get_integer(env, argv[3], 4294967295.0, &before) || !pl_crc32_runs()) {
    return fail(env, "internal_error", "native addon: a checked read takes a descriptor, views, a position, a checksum");
  }
  read_work *w = calloc(1, sizeof *w + count * sizeof *w->views);
  if (!w) return fail(env, "out_of_memory", "no memory for a read");
  w->fd = (int)fd, w->position = position, w->count = count;
  for (uint32_t i = 0; i < count; i++) {
    napi_typedarray_type type;
    size_t bytes;
    void *bytes_at;
    bool is = false;
    if (napi_get_element(env, argv[1], i, &element) != napi_ok || napi_is_typedarray(env, element, &is) != napi_ok ||
        !is || napi_get_typedarray_info(env, element, &type, &bytes, &bytes_at, NULL, NULL) != napi_ok ||
        type != napi_uint8_array) {
      free(w);
      return fail(env, "internal_error", "native addon: a view to read into is no Uint8Array");
    }
    w->views[i] = (view){bytes_at, (int64_t)bytes, 0};
  }
  w->views[0].checksum = (uint32_t)before;
  MUST(env, napi_create_reference(env, argv[1], 1, &w->views_alive));
  MUST(env, napi_create_promise(env, &w->deferred, &promise));
  MUST(env, napi_create_string_utf8(env, "plumbline read", NAPI_AUTO_LENGTH, &name));
  MUST(env, napi_create_async_work(env, NULL, name, read_execute, read_complete, w, &w->work));
  MUST(env, napi_queue_async_work(env, w->work));
  return promise;
}
