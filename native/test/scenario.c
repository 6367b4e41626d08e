/* See scenario.h. */
#include "scenario.h"

#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BYTES = 32 << 20, PAGE_TOKENS = 16, PAGE_BYTES = 1 << 18, FIXED_BYTES = 1 << 20, POSITIONS = 256 };

/* ---- seeded numbers, the same on every machine: exact fractions, no library functions ---- */

static uint32_t random_state = 1;

static uint32_t random_bits(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}
/* In [-scale, scale). */
static float random_float(float scale) { return (float)((int32_t)random_bits() >> 8) * (scale / 8388608.0f); }

/* Activations of the scenario's law: cut down to bfloat16 where it says so, in memory (of a little-endian machine). */
static void activations(const scenario *s, float *x, int64_t count, float scale) {
  for (int64_t i = 0; i < count; i++) x[i] = random_float(scale);
  if (!s->law.act) return;
  for (int64_t i = 0; i < count; i++) memset(x + i, 0, 2);
}

/* ---- buffers and weights ---- */

static int32_t take(scenario *s, int64_t words) {
  int32_t at = s->next_word;
  s->next_word += (int32_t)((words + 15) / 16 * 16);
  return at;
}
static int32_t input(scenario *s, int64_t width, float scale) {
  int32_t at = take(s, s->rows * width);
  activations(s, s->workspace + at, s->rows * width, scale);
  return at;
}
static int32_t produced(scenario *s, const char *op, int64_t words) {
  int32_t at = take(s, words);
  s->outputs[s->output_count++] = (output){op, at, words};
  return at;
}
/* A buffer that an op changes in place. */
static int32_t changed(scenario *s, const char *op, int64_t width, float scale) {
  int32_t at = input(s, width, scale);
  s->outputs[s->output_count++] = (output){op, at, s->rows * width};
  return at;
}

static int32_t weight(scenario *s, int64_t elements, int32_t dtype, float scale, float centre) {
  uint8_t *data = s->weight_memory + s->weight_bytes;
  for (int64_t i = 0; i < elements; i++) {
    float x = centre + random_float(scale);
    if (dtype == DTYPE_F32) {
      memcpy(data + 4 * i, &x, 4);
    } else {
      uint32_t bits;
      memcpy(&bits, &x, 4);
      uint16_t half = dtype == DTYPE_BF16 ? (uint16_t)(bits >> 16) : (uint16_t)((random_bits() & 0x8fff) | 0x2000);
      memcpy(data + 2 * i, &half, 2);
    }
  }
  s->weight_bytes += (elements * 4 + 63) / 64 * 64;
  s->addresses[s->weight_count] = (double)(uintptr_t)data;
  s->dtypes[s->weight_count] = dtype;
  return s->weight_count++;
}
static int32_t vector(scenario *s, int64_t elements, float scale, float centre) {
  return weight(s, elements, DTYPE_F32, scale, centre);
}
/* Results of a sigmoid table: anything between 0 and 1 will do. */
static int32_t table(scenario *s) {
  int32_t index = weight(s, 65536, DTYPE_BF16, 0.5f, 0.5f);
  return index;
}

static void op(scenario *s, int32_t code, const int32_t *fields, int32_t count) {
  s->words[s->word_count++] = code;
  s->words[s->word_count++] = count + 2;
  for (int32_t i = 0; i < count; i++) s->words[s->word_count++] = fields[i];
  s->op_count++;
}
#define OP(s, code, ...) \
  op((s), (code), (const int32_t[]){__VA_ARGS__}, (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

static int32_t bits(float x) {
  int32_t i;
  memcpy(&i, &x, 4);
  return i;
}
#define EPS bits(1e-6f)
#define NO_LIMIT 0

/* ---- the ops, in groups that feed each other ---- */

static void add_rows(scenario *s) {
  const int R = s->rows;
  for (int32_t dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
    OP(s, OP_EMBED, produced(s, "embed", R * 39), 13, 3, weight(s, 50 * 13, dtype, 1, 0));
    static const int32_t widths[3] = {1100, 37, 256}, outs[3] = {37, 131, 50};
    const int32_t k = widths[dtype], o = outs[dtype];
    OP(s, OP_LINEAR, 0, input(s, k, 1), k, 2, weight(s, (int64_t)o * k, dtype, 0.2f, 0), vector(s, o, 1, 0),
       produced(s, "linear", R * (o + 3)), o + 3, 2, o, weight(s, 9 * k, (dtype + 1) % 3, 0.2f, 0), -1,
       produced(s, "linear", R * 9), 9, 0, 9);
  }
  OP(s, OP_NORM, 0, input(s, 111, 2), produced(s, "norm", R * 111), 111, 37, vector(s, 111, 0.3f, 1), EPS);
  OP(s, OP_SWIGLU, input(s, 600, 4), input(s, 600, 1), produced(s, "swiglu", R * 600), 600, NO_LIMIT);
  OP(s, OP_ADD, 0, input(s, 43, 1), input(s, 43, 3), produced(s, "add", R * 43), 43);
  OP(s, OP_GATED_NORM, input(s, 66, 0.01f), input(s, 66, 3), produced(s, "gatedNorm", R * 66), 3, 22,
     vector(s, 22, 0.3f, 1), EPS, 0);
  OP(s, OP_GATED_NORM, input(s, 66, 2), input(s, 66, 3), produced(s, "gatedNorm", R * 66), 3, 22,
     vector(s, 22, 0.3f, 1), EPS, 1);
  OP(s, OP_EMBED_GREEDY, input(s, 50, 1), 50, produced(s, "embedGreedy", R), produced(s, "embedGreedy", R * 26), 13, 2,
     weight(s, 50 * 13, DTYPE_BF16, 1, 0));
  OP(s, OP_TAP, input(s, 29, 1), produced(s, "tap", R * 29), 29);
  OP(s, OP_GATHER, input(s, 29, 1), produced(s, "gather", 29), 29);
}

static void add_streams(scenario *s) {
  const int R = s->rows;
  for (int32_t lowering = 0; lowering < 2; lowering++) {
    OP(s, OP_HC_ACT, 0, changed(s, "hcAct", 21, 30), 21, changed(s, "hcAct", 4, 80), 4, lowering);
    OP(s, OP_PLE_GATE, input(s, 111, 3), input(s, 111, 1), input(s, 37, 1), produced(s, "pleGate", R * 111), 37, 3,
       bits(6.0828f), lowering);
  }
  OP(s, OP_HC_MIX, 0, input(s, 1200, 3), input(s, 1200, 1), produced(s, "hcMix", R * 600), 600, 2);
  OP(s, OP_HC_WRITE, changed(s, "hcWrite", 57, 2), input(s, 3, 1), input(s, 19, 1), 19, 3);
  OP(s, OP_PLE_ADD, changed(s, "pleAdd", 57, 2), input(s, 57, 1), input(s, 57, 1), 57);
}

static void add_recurrent(scenario *s) {
  const int R = s->rows;
  int32_t state = 64;
  static const int32_t convs[2][3] = {{91, 4, 1}, {40, 3, 3}};
  for (int i = 0; i < 2; i++) {
    const int32_t channels = convs[i][0], kernel = convs[i][1], dilation = convs[i][2];
    OP(s, OP_CONV, input(s, channels, 2), produced(s, "conv", R * channels), channels, kernel, dilation,
       vector(s, channels * kernel, 0.5f, 0), state);
    state += (kernel - 1) * dilation * channels * 4;
  }
  static const int32_t deltas[2][4] = {{2, 4, 20, 89}, {1, 3, 32, 64}};
  for (int i = 0; i < 2; i++) {
    const int32_t kh = deltas[i][0], vh = deltas[i][1], kd = deltas[i][2], vd = deltas[i][3];
    OP(s, OP_GATED_DELTA, input(s, 2 * kh * kd + vh * vd, 2), input(s, vh, 5), input(s, vh, 3),
       produced(s, "gatedDelta", R * vh * vd), kh, vh, kd, vd, vector(s, vh, 0.8f, -1), vector(s, vh, 1, 0), state);
    state += vh * kd * vd * 4;
  }
  static const int32_t kdas[2][2] = {{3, 20}, {1, 71}};
  for (int i = 0; i < 2; i++) {
    const int32_t heads = kdas[i][0], dim = kdas[i][1], width = heads * dim;
    OP(s, OP_KDA, input(s, 3 * width, 2), input(s, width, 5), input(s, heads, 3), produced(s, "kda", R * width), heads,
       dim, i ? 0 : bits(5), vector(s, heads, 0.5f, 1), vector(s, width, 1, 0), state);
    state += width * dim * 4;
  }
  s->fixed_bytes = FIXED_BYTES;
}

static void add_manifold(scenario *s) {
  const int R = s->rows;
  static const int32_t shapes[2][3] = {{4, 600, 20}, {3, 37, 2}};
  for (int i = 0; i < 2; i++) {
    const int32_t streams = shapes[i][0], hidden = shapes[i][1], width = (2 + streams) * streams;
    const int32_t residual = changed(s, "mhcWrite", streams * hidden, 2);
    const int32_t weights = produced(s, "mhcWeights", R * width);
    OP(s, OP_NORM, 0, residual, produced(s, "norm", R * streams * hidden), streams * hidden, hidden, -1, EPS);
    OP(s, OP_MHC_WEIGHTS, 0, input(s, width, 2), weights, streams, shapes[i][2], vector(s, 3, 0.3f, 1),
       vector(s, width, 1, 0), EPS);
    OP(s, OP_MHC_SUM, 0, weights, width, residual, produced(s, "mhcSum", R * hidden), hidden, streams);
    OP(s, OP_MHC_SUM, 0, -1, 1, residual, produced(s, "mhcSum", R * hidden), hidden, streams);
    OP(s, OP_MHC_WRITE, residual, weights, width, input(s, hidden, 1), hidden, streams);
    OP(s, OP_MHC_WEIGHTS, 0, input(s, streams, 2), produced(s, "mhcWeights", R * streams), streams, 0,
       vector(s, 1, 0.3f, 1), vector(s, streams, 1, 0), EPS);
  }
}

static void add_latent(scenario *s) {
  const int R = s->rows;
  for (int32_t dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
    OP(s, OP_GROUPED_LINEAR, 0, input(s, 3 * 37, 1), produced(s, "groupedLinear", R * 3 * 59), 3, 37, 59,
       weight(s, 3 * 70 * 37, dtype, 0.2f, 0), 70, 7);
  }
  OP(s, OP_LAYER_NORM, 0, input(s, 39, 2), produced(s, "layerNorm", R * 39), 39, vector(s, 39, 0.3f, 1),
     vector(s, 39, 1, 0), EPS);
  OP(s, OP_SWIGLU, input(s, 45, 4), input(s, 45, 4), produced(s, "swiglu", R * 45), 45, bits(1.5f));
  for (int32_t score = 0; score < 2; score++) {
    const int32_t index = produced(s, "scoreRouter", R * 5);
    OP(s, OP_SCORE_ROUTER, input(s, 24, 2), 24, 5, score ? 1 : 6, score ? 1 : 3, score, score ? 0 : 1, bits(2.5f),
       vector(s, 24, 0.3f, 0), -1, index, produced(s, "scoreRouter", R * 5));
  }
}

static void add_experts(scenario *s) {
  const int R = s->rows;
  const int32_t experts = 6, top_k = 3, hidden = 50, width = 35;
  const int32_t index = produced(s, "router", R * top_k), chosen = produced(s, "router", R * top_k);
  OP(s, OP_ROUTER, input(s, experts, 2), experts, top_k, 1, index, chosen);
  const int32_t offsets = produced(s, "moeGroup", experts + 1), list = produced(s, "moeGroup", R * top_k);
  OP(s, OP_MOE_GROUP, index, experts, top_k, offsets, list);
  int32_t first[3] = {0};
  for (int m = 0; m < 3; m++) {
    first[m] = s->weight_count;
    for (int e = 0; e < experts; e++) weight(s, hidden * width, (e + m) % 3, 0.3f, 0);
  }
  const int32_t up = produced(s, "moeUp", R * top_k * width), down = produced(s, "moeDown", R * top_k * hidden);
  OP(s, OP_MOE_UP, input(s, hidden, 1), hidden, offsets, list, first[0], first[1], experts, top_k, width, up, NO_LIMIT);
  OP(s, OP_MOE_DOWN, up, width, offsets, list, first[2], experts, top_k, hidden, down);
  for (int32_t lowering = 0; lowering < 2; lowering++) {
    OP(s, OP_MOE_COMBINE, down, chosen, input(s, hidden, 1), input(s, 1, 3), hidden, top_k,
       produced(s, "moeCombine", R * hidden), lowering);
  }
}

static void add_attention(scenario *s) {
  const int R = s->rows;
  const int32_t heads = 6, kv_heads = 2, dim = 52, rotary = 20, block = 4, budget = 3;
  const int32_t kv_bytes = s->law.kv_type ? 2 : 4, section = kv_heads * PAGE_TOKENS * dim * kv_bytes;
  const int32_t keys = 16, values = keys + section, raw = values + section, blocks = raw + PAGE_TOKENS * 24 * kv_bytes;
  const int32_t rope = vector(s, POSITIONS * rotary, 1, 0), index_rope = vector(s, POSITIONS * 8, 1, 0);
  const int32_t packed = input(s, heads * 2 * dim, 2), q = produced(s, "attentionPrep", R * heads * dim);
  OP(s, OP_ATTENTION_PREP, packed, input(s, kv_heads * dim, 2), input(s, kv_heads * dim, 1), q, heads, kv_heads, dim,
     rotary, vector(s, dim, 0.3f, 1), vector(s, dim, 0.3f, 1), EPS, rope, keys, values);
  const int32_t index_q = produced(s, "indexPrep", R * 3 * 24), select = produced(s, "indexSelect", R * (1 + budget));
  OP(s, OP_INDEX_PREP, input(s, 4 * 24, 2), index_q, 3, 24, 8, vector(s, 24, 0.3f, 1), EPS, index_rope, raw);
  OP(s, OP_INDEX_BLOCKS, 24, block, 8, vector(s, 24, 0.3f, 1), EPS, index_rope, raw, blocks);
  OP(s, OP_INDEX_SELECT, index_q, select, 3, 24, block, budget, blocks, -1, bits(1), bits(1));
  for (int32_t lowering = 0; lowering < 2; lowering++) {
    OP(s, OP_ATTENTION, q, packed, lowering ? select : -1, produced(s, "attention", R * heads * dim), heads, kv_heads,
       dim, block, budget, lowering, bits(0.1386f), keys, values);
  }
  s->page_bytes = PAGE_BYTES;
}

static void add_shared_rows(scenario *s) {
  const int R = s->rows;
  const int32_t heads = 7, dim = 52, window = 24, block = 4, budget = 3, kv_bytes = s->law.kv_type ? 2 : 4;
  const int32_t rope = vector(s, POSITIONS * 20, 1, 0);
  int32_t page = PAGE_BYTES / 2, state = FIXED_BYTES / 2;
  for (int32_t inverse = 0; inverse < 2; inverse++) {
    OP(s, OP_ROPE_TAIL, 0, input(s, heads * dim, 2), produced(s, "ropeTail", R * heads * dim), heads, dim, 20, rope,
       inverse);
  }
  const int32_t latent = page, index = latent + PAGE_TOKENS * dim * kv_bytes;
  OP(s, OP_LATENT_STORE, input(s, dim, 1), dim, latent);
  const int32_t compressed = index + PAGE_TOKENS * dim * kv_bytes;
  const int32_t pools[2][3] = {{24, 0, index}, {dim, 1, compressed}};
  for (int i = 0; i < 2; i++) {
    const int32_t channels = pools[i][0], overlap = pools[i][1], width = (1 + overlap) * channels;
    OP(s, OP_POOL, input(s, width, 2), input(s, width, 2), channels, block, overlap, vector(s, block * width, 1, 0),
       overlap ? vector(s, channels, 0.3f, 1) : -1, EPS, overlap ? rope : -1, overlap ? 20 : 0, state, pools[i][2]);
    state += (1 + overlap) * block * 2 * width * 4;
  }
  const int32_t select = produced(s, "indexSelect", R * (1 + budget));
  OP(s, OP_INDEX_SELECT, input(s, 3 * 24, 1), select, 3, 24, block, budget, index, input(s, 3, 1), bits(0.5773f),
     bits(0.2041f));
  for (int i = 0; i < 3; i++) {
    OP(s, OP_WINDOW_ATTENTION, input(s, heads * dim, 1), input(s, dim, 1), i == 2 ? select : -1,
       produced(s, "windowAttention", R * heads * dim), heads, dim, window, i ? block : 0, i == 2 ? budget : 0,
       i ? vector(s, heads, 2, 0) : -1, bits(0.1386f), state, compressed);
    state += window * dim * 4;
    OP(s, OP_LATENT_ATTENTION, input(s, heads * dim, 1), i ? select : -1,
       produced(s, "latentAttention", R * heads * dim), heads, dim, i ? block : 0, i ? budget : 0, i == 1,
       bits(0.1386f), latent);
  }
}

/* ---- states ---- */

static void fill_states(scenario *s) {
  for (int64_t i = 0; i < MOST_SEQUENCES * MOST_PAGES * PAGE_BYTES; i += 4) {
    uint32_t word;
    if (s->law.kv_type) {
      float low = random_float(1), high = random_float(1);
      uint32_t a, b;
      memcpy(&a, &low, 4);
      memcpy(&b, &high, 4);
      word = (a >> 16) | (b & 0xffff0000u);
    } else {
      float x;
      activations(s, &x, 1, 1);
      memcpy(&word, &x, 4);
    }
    memcpy(s->pages + i, &word, 4);
  }
  for (int64_t i = 0; i < MOST_SEQUENCES * FIXED_BYTES; i += 4) {
    float x = random_float(0.5f);
    memcpy(s->slabs + i, &x, 4);
  }
}

scenario *scenario_new(law law, int shape, uint32_t seed) {
  static const int32_t counts[3][MOST_SEQUENCES] = {{1, 0, 0, 0}, {1, 3, 2, 7}, {101, 40, 0, 0}};
  static const int32_t starts[3][MOST_SEQUENCES] = {{70, 0, 0, 0}, {9, 0, 15, 90}, {0, 33, 0, 0}};
  scenario *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  random_state = seed;
  s->law = law;
  for (int i = 0; i < MOST_SEQUENCES && counts[shape][i] > 0; i++) {
    s->counts[i] = counts[shape][i];
    s->starts[i] = starts[shape][i];
    s->rows += counts[shape][i];
    s->sequences++;
  }
  s->workspace = calloc(WORKSPACE_WORDS, 4);
  s->weight_memory = malloc(WEIGHT_BYTES);
  s->pages = malloc(MOST_SEQUENCES * MOST_PAGES * PAGE_BYTES);
  s->slabs = malloc(MOST_SEQUENCES * FIXED_BYTES);
  if (!s->workspace || !s->weight_memory || !s->pages || !s->slabs) {
    scenario_free(s);
    return NULL;
  }
  table(s);
  table(s);
  add_rows(s);
  add_streams(s);
  add_recurrent(s);
  add_manifold(s);
  add_latent(s);
  add_experts(s);
  add_attention(s);
  add_shared_rows(s);
  fill_states(s);
  return s;
}

void scenario_free(scenario *s) {
  free(s->workspace);
  free(s->weight_memory);
  free(s->pages);
  free(s->slabs);
  free(s);
}
