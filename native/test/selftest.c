/*
 * Runs every kernel on seeded random data with each instruction set of this machine, one thread and three, and prints a
 * hash for every law, shape and op. Exits with 1 when two runs differ here; the lines of two machines can be compared.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scenario.h"

enum { PAGE_TOKENS = 16 };

/* FNV-1a over 32-bit words. */
static uint64_t hash_words(uint64_t hash, const void *data, int64_t bytes) {
  for (int64_t i = 0; i + 4 <= bytes; i += 4) {
    uint32_t word;
    memcpy(&word, (const uint8_t *)data + i, 4);
    hash = (hash ^ word) * 0x100000001b3ull;
  }
  return hash;
}

static int64_t available(void *context, uint64_t address) {
  (void)context, (void)address;
  return 1ll << 22; /* everything here is larger than what ops ask for */
}

typedef struct {
  float *workspace;
  uint8_t *pages, *slabs_in, *slabs_out;
} memory;

/* A call block for the scenario: header, rows, one selected row, sequences, slabs, pages. */
static int64_t write_call(const scenario *s, const memory *m, double *block) {
  int32_t *ints = (int32_t *)block;
  const int32_t rows = s->rows, tokens = CALL_HEADER_WORDS, positions = tokens + rows, owners = positions + rows;
  const int32_t selected = owners + rows, sequences = selected + 1;
  const int32_t slabs = (sequences + SEQUENCE_RECORD_WORDS * s->sequences + 1) / 2;
  int32_t page = slabs + 2 * s->sequences, row = 0;
  memset(ints, 0, CALL_HEADER_WORDS * 4);
  ints[CALL_ROWS] = rows;
  ints[CALL_OUT_ROWS] = 1;
  ints[CALL_SEQUENCES] = s->sequences;
  ints[CALL_TOKENS_AT] = tokens;
  ints[CALL_POSITIONS_AT] = positions;
  ints[CALL_SEQUENCE_OF_ROW_AT] = owners;
  ints[CALL_OUT_ROWS_AT] = selected;
  ints[CALL_SEQUENCES_AT] = sequences;
  ints[CALL_SLABS_AT] = slabs;
  ints[selected] = rows - 1;
  for (int32_t q = 0; q < s->sequences; q++) {
    int32_t *record = ints + sequences + q * SEQUENCE_RECORD_WORDS;
    record[0] = row;
    record[1] = s->counts[q];
    record[2] = s->starts[q];
    record[3] = page;
    for (int32_t i = 0; i < s->counts[q]; i++, row++) {
      ints[tokens + row] = row * 7 % 50;
      ints[positions + row] = s->starts[q] + i;
      ints[owners + row] = q;
    }
    block[slabs + 2 * q] = (double)(uintptr_t)(m->slabs_in + q * s->fixed_bytes);
    block[slabs + 2 * q + 1] = (double)(uintptr_t)(m->slabs_out + q * s->fixed_bytes);
    const int32_t pages = (s->starts[q] + s->counts[q] + PAGE_TOKENS - 1) / PAGE_TOKENS;
    for (int32_t p = 0; p < pages; p++) {
      block[page++] = (double)(uintptr_t)(m->pages + (q * MOST_PAGES + p) * s->page_bytes);
    }
  }
  return page;
}

static uint8_t *copy_of(const void *data, int64_t bytes) {
  uint8_t *copy = malloc((size_t)bytes);
  if (copy) memcpy(copy, data, (size_t)bytes);
  return copy;
}

/* Runs the scenario; hashes[i] of its i-th output, then of the pages and of the slabs. False when it could not run. */
static bool run(const scenario *s, const pl_kernels *kernels, int threads, uint64_t *hashes) {
  int32_t *code = calloc((size_t)(PLAN_HEADER_WORDS + s->word_count), 4);
  const int32_t header[] = {PLAN_MAGIC_VALUE,
                            PLAN_VERSION_VALUE,
                            s->op_count,
                            s->law.act,
                            s->law.mtplx,
                            s->law.kv_type,
                            PAGE_TOKENS,
                            s->rows,
                            1,
                            s->next_word,
                            0,
                            1,
                            s->weight_count};
  memcpy(code, header, sizeof header);
  memcpy(code + PLAN_HEADER_WORDS, s->words, (size_t)s->word_count * 4);
  const pl_program program = {code, PLAN_HEADER_WORDS + s->word_count, s->addresses, s->dtypes, s->weight_count};
  const int64_t page_bytes = MOST_SEQUENCES * MOST_PAGES * s->page_bytes, slab_bytes = MOST_SEQUENCES * s->fixed_bytes;
  memory m = {(float *)copy_of(s->workspace, s->next_word * 4), copy_of(s->pages, page_bytes),
              copy_of(s->slabs, slab_bytes), calloc(1, (size_t)slab_bytes)};
  double *block = calloc(1 << 16, 8);
  char error[PL_ERROR_BYTES] = "no memory";
  pl_call call = {0};
  pl_plan *plan = pl_plan_load(&program, available, NULL, error);
  pl_executor *executor = pl_executor_new(kernels, threads, 0);
  bool ok = plan && executor && m.workspace && m.pages && m.slabs_in && m.slabs_out && block;
  if (ok) {
    const int64_t doubles = write_call(s, &m, block);
    ok = pl_call_read(&call, plan, block, doubles * 8, available, NULL, error);
  }
  if (ok) ok = pl_execute(executor, plan, &call, m.workspace) == PL_DONE;
  if (!ok) fprintf(stderr, "selftest: %s\n", error);
  for (int i = 0; ok && i < s->output_count; i++) {
    hashes[i] = hash_words(0xcbf29ce484222325ull, m.workspace + s->outputs[i].offset, s->outputs[i].words * 4);
  }
  if (ok) {
    hashes[s->output_count] = hash_words(0xcbf29ce484222325ull, m.pages, page_bytes);
    hashes[s->output_count + 1] = hash_words(0xcbf29ce484222325ull, m.slabs_out, slab_bytes);
  }
  if (executor) pl_executor_free(executor);
  pl_plan_free(plan);
  pl_call_free(&call);
  free(m.workspace);
  free(m.pages);
  free(m.slabs_in);
  free(m.slabs_out);
  free(block);
  free(code);
  return ok;
}

int main(void) {
  static const law laws[] = {{0, 0, 0}, {0, 0, 1}, {1, 0, 1}, {1, 0, 0}, {1, 1, 1}};
  static const char *const names[] = {"generic", "avx2", "avx512", "neon"};
  int failures = 0;
  for (int l = 0; l < (int)(sizeof laws / sizeof laws[0]); l++) {
    for (int shape = 0; shape < 3; shape++) {
      scenario *s = scenario_new(laws[l], shape, 12345u + (uint32_t)(l * 3 + shape));
      if (!s) return 2;
      uint64_t first[MOST_OPS + 2] = {0};
      bool have = false;
      for (int n = 0; n < 4; n++) {
        const pl_kernels *kernels = pl_choose_kernels(names[n]);
        for (int threads = 1; kernels && threads <= 3; threads += 2) {
          uint64_t hashes[MOST_OPS + 2] = {0};
          if (!run(s, kernels, threads, hashes)) return 2;
          if (!have) memcpy(first, hashes, sizeof first);
          have = true;
          for (int i = 0; i < s->output_count + 2; i++) {
            if (hashes[i] == first[i]) continue;
            const char *what = i < s->output_count ? s->outputs[i].op : i == s->output_count ? "pages" : "slabs";
            fprintf(stderr, "DIFFERS: law %d shape %d %s, %s with %d threads\n", l, shape, what, names[n], threads);
            failures++;
          }
        }
      }
      for (int i = 0; i < s->output_count + 2; i++) {
        const char *what = i < s->output_count ? s->outputs[i].op : i == s->output_count ? "pages" : "slabs";
        printf("law %d shape %d %s %016llx\n", l, shape, what, (unsigned long long)first[i]);
      }
      scenario_free(s);
    }
  }
  for (int n = 0; n < 4; n++) {
    if (pl_choose_kernels(names[n])) fprintf(stderr, "ran: %s\n", names[n]);
  }
  return failures > 0;
}
