/*
 * A plan that holds every op once or more, with all the memory that it needs, under one rounding law: what selftest.c
 * runs on each instruction set.
 *
 * Invariants: equal seeds give equal scenarios; ops feed each other where integers are passed on (router to moeGroup to
 * the experts; the indexer to attention); no buffer is written twice, so that each op's output can be hashed at the
 * end.
 */
#ifndef PL_TEST_SCENARIO_H
#define PL_TEST_SCENARIO_H

#include "../src/executor.h"

enum { MOST_OPS = 128, MOST_WEIGHTS = 128, MOST_SEQUENCES = 4, MOST_PAGES = 16, WORKSPACE_WORDS = 4 << 20 };

typedef struct {
  int act, mtplx, kv_type;
} law;

typedef struct {
  const char *op;
  int64_t offset, words;
} output;

typedef struct {
  law law;
  int rows, sequences;
  int32_t starts[MOST_SEQUENCES], counts[MOST_SEQUENCES];
  int32_t words[16384];
  int64_t word_count;
  int32_t op_count;
  double addresses[MOST_WEIGHTS];
  int32_t dtypes[MOST_WEIGHTS];
  int weight_count;
  int32_t next_word; /* of the workspace */
  output outputs[MOST_OPS];
  int output_count;
  float *workspace; /* the inputs; executions work on a copy */
  int64_t page_bytes, fixed_bytes;
  uint8_t *pages, *slabs; /* [sequence][page], [sequence]; copied as well */
  uint8_t *weight_memory;
  int64_t weight_bytes;
} scenario;

/* `shape` chooses the sequences: 0 one row, 1 a few rows of several sequences, 2 many rows. NULL without memory. */
scenario *scenario_new(law law, int shape, uint32_t seed);
void scenario_free(scenario *s);

#endif
