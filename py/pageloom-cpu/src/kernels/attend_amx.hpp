// Prefill on AMX over int8 and int4 caches, in three products of bfloat16 for each of float32, or one where
// `bf16_products` is asked for. While the tiles multiply Q and K of a panel, the vectors turn the scores of the panel
// before it into weights.
#pragma once

constexpr int64_t kTileKeys = 32;  // keys that are worked on at once

struct AmxScratch {
  TileScratch tile;
  float* scores[2];             // of the panel that is multiplied and of the one before it
  uint16_t *keys, *values;      // [block][query_width], [value_width][block]
  uint32_t *queries, *weights;  // tiles of pairs: [panel][channels / 32][part][2], [block / 32][part][2]
  int64_t block;
  float* end;
};

PAGELOOM_INLINE bool multiplies_on_amx(const AttentionProblem& problem) {
  auto coded = [](const Cache& cache) { return cache.element == Element::i8 || cache.element == Element::i4; };
  return coded(problem.key) && coded(problem.value);
}

static AmxScratch amx_scratch(const AttentionProblem& problem, int64_t rows, int64_t kv_block, float* scratch) {
  AmxScratch s;
  s.block = (kv_block + kTileKeys - 1) / kTileKeys * kTileKeys;
  const int64_t parts = problem.bf16_products ? 1 : 3;
  s.tile = tile_scratch<kAmxVectors>(problem, rows, s.block, scratch);
  s.keys = reinterpret_cast<uint16_t*>(s.tile.keys);
  s.values = reinterpret_cast<uint16_t*>(s.tile.values);
  float* next = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(s.tile.end) + 63) / 64 * 64);
  s.queries = reinterpret_cast<uint32_t*>(next);
  next += s.tile.panels * s.tile.query_width / 32 * parts * kAmxVectors * kTileFloats;
  s.weights = reinterpret_cast<uint32_t*>(next);
  next += s.block / kTileKeys * parts * kAmxVectors * kTileFloats;
  s.scores[0] = s.tile.scores;
  s.scores[1] = next;
  next += s.block * s.tile.lanes;
  s.end = next;
  return s;
}

static size_t amx_scratch_size(const AttentionProblem& problem, int64_t rows, int64_t kv_block) {
  if (!multiplies_on_amx(problem)) return tile_scratch_size(problem, rows, kv_block);
  const AmxScratch s = amx_scratch(problem, rows, kv_block, nullptr);
  return static_cast<size_t>(s.end - reinterpret_cast<float*>(s.tile.rows)) + 16;
}

// Keys [begin, end) of a block; zeros behind the last. Returns whether all are mapped.
static bool load_block(const AttentionProblem& problem, const Sequence& sequence, int head, int64_t begin, int64_t end,
                       const AmxScratch& s) {
  auto list = [&](const Cache& cache) {
    for (int64_t t = end - begin; t < s.block; t++) s.tile.rows[t] = nullptr;
    return list_rows(cache, problem.addressing, sequence.index, head, begin, end, s.tile.rows);
  };
  const bool mapped = list(problem.key);
  with_store(problem.key.element, [&](auto store) {
    load_keys<decltype(store)>(s.tile.rows, s.block, problem.head_size, s.tile.query_width, s.keys);
  });
  list(problem.value);
  with_store(problem.value.element, [&](auto store) {
    load_values<decltype(store)>(s.tile.rows, s.block, problem.v_head_size, s.tile.value_width, s.values);
  });
  return mapped;
}

#define PAGELOOM_TILE_PAIR(a, b0, b1, tiles)         \
  PAGELOOM_TILE_LOAD(b0, tiles, 64);                 \
  PAGELOOM_TILE_LOAD(b1, (tiles) + kTileFloats, 64); \
  PAGELOOM_TILE_MULTIPLY(0, a, b0);                  \
  PAGELOOM_TILE_MULTIPLY(1, a, b1)

// The small parts first, while the sum of a step is small.
#define PAGELOOM_TILE_STEP(tile, b0, b1, b2, b3)     \
  PAGELOOM_TILE_LOAD(tile, a, stride * 2);           \
  if (Parts == 3) {                                  \
    PAGELOOM_TILE_PAIR(tile, b0, b1, b + 2 * kPart); \
    PAGELOOM_TILE_PAIR(tile, b2, b3, b + kPart);     \
  }                                                  \
  PAGELOOM_TILE_PAIR(tile, b0, b1, b);               \
  a += 32;                                           \
  b += Parts * kPart;                                \
  meanwhile()

// sums[16][2 * kLanes] (+)= a[16][32 * steps] x the paired tiles b, with a's rows `stride` elements apart; `meanwhile`
// is called after each step. A tile is not loaded into while it is multiplied: six of them take turns as operands.
template <int Parts, bool Accumulate, class Meanwhile>
PAGELOOM_INLINE void multiply_amx(const uint16_t* a, int64_t stride, const uint32_t* b, int64_t steps, float* sums,
                                  Meanwhile meanwhile) {
  constexpr int64_t kPart = kAmxVectors * kTileFloats;
  constexpr int kRowBytes = kAmxVectors * kLanes * sizeof(float);
  // The compiler does not know that the loads of tiles read memory.
  asm volatile("" ::: "memory");
  if (Accumulate) {
    PAGELOOM_TILE_LOAD(0, sums, kRowBytes);
    PAGELOOM_TILE_LOAD(1, sums + kLanes, kRowBytes);
  } else {
    PAGELOOM_TILE_ZERO(0);
    PAGELOOM_TILE_ZERO(1);
  }
  for (int64_t step = 0; step < steps; step += 2) {
    PAGELOOM_TILE_STEP(2, 4, 5, 6, 7);
    if (step + 1 == steps) break;
    PAGELOOM_TILE_STEP(3, 6, 7, 4, 5);
  }
  PAGELOOM_TILE_STORE(0, sums, kRowBytes);
  PAGELOOM_TILE_STORE(1, sums + kLanes, kRowBytes);
}

// One panel's part of a block: its scores, from key `first` of the block on, become weights pair by pair of keys.
template <int Parts>
struct PanelWeights {
  static constexpr int64_t kPanelTiles = Parts * kAmxVectors * kTileFloats;
  int64_t panel = 0, first = 0, tiles = 0, pair = 0;
  const float* scores = nullptr;
  PanelShift<kAmxVectors> shift = {};
  Vec total[kAmxVectors] = {zero(), zero()};
};

// The next `pairs` pairs of keys, or those that are left.
template <int Parts>
PAGELOOM_INLINE void weigh(PanelWeights<Parts>& part, int64_t pairs, uint32_t* weights) {
  for (const int64_t end = smaller(part.pair + pairs, part.tiles * 16); part.pair < end; part.pair++) {
    const float* scores = part.scores + 2 * part.pair * kAmxVectors * kLanes;
    Vec low[kAmxVectors], high[kAmxVectors];
    load_row(scores, low);
    load_row(scores + kAmxVectors * kLanes, high);
#pragma GCC unroll 2
    for (int n = 0; n < kAmxVectors; n++) {
      low[n] = exponential(sub(low[n], part.shift.shift[n]));
      high[n] = exponential(sub(high[n], part.shift.shift[n]));
      part.total[n] = add(part.total[n], add(low[n], high[n]));
    }
    store_pair<Parts>(low, high, part.pair % 16, weights + part.pair / 16 * part.kPanelTiles);
  }
}

// Adds weights x V of a panel's part of a block.
template <int Parts>
static void add_weighted(PanelWeights<Parts>& part, const AmxScratch& s) {
  const TileScratch& tile = s.tile;
  if (part.tiles == 0) return;
  weigh(part, part.tiles * 16, s.weights);
  rescale_panel<kAmxVectors>(part.panel, part.shift, part.total, tile);
  for (int64_t c = 0; c < tile.value_width; c += 16) {
    multiply_amx<Parts, true>(s.values + c * s.block + part.first, s.block, s.weights, part.tiles,
                              tile.sums + (part.panel * tile.value_width + c) * tile.lanes, [] {});
  }
}

// Scores of keys [begin, end) of the block that starts at `block` for one panel, brought ready to be weighed; meanwhile
// those of the part before it become weights.
template <int Parts>
static PanelWeights<Parts> score_panel(const AttentionProblem& problem, const AttentionTask& task, int kv_head,
                                       int64_t panel, int64_t block, int64_t begin, int64_t end, bool mapped,
                                       float* scores, PanelWeights<Parts>& before, const AmxScratch& s) {
  TileScratch tile = s.tile;
  tile.scores = scores;
  const int64_t first = (begin - block) / kTileKeys * kTileKeys, count = end - block - first;
  PanelWeights<Parts> part;
  part.panel = panel;
  part.first = first;
  part.tiles = (count + kTileKeys - 1) / kTileKeys;
  part.scores = scores;
  const int64_t steps = tile.query_width / 32, keys = part.tiles * kTileKeys;
  const uint32_t* queries = s.queries + panel * steps * part.kPanelTiles;
  const int64_t share = (before.tiles * 16 + keys / 16 * steps - 1) / (keys / 16 * steps);
  for (int64_t t = 0; t < keys; t += 16) {
    multiply_amx<Parts, false>(s.keys + (first + t) * tile.query_width, tile.query_width, queries, steps,
                               scores + t * tile.lanes, [&] { weigh(before, share, s.weights); });
  }
  if (transforms_logits(problem)) transform_panel(problem, task, kv_head, panel, block + first, count, tile);
  if (!mapped) hide_unmapped(problem, task, kv_head, block + first, count, tile);
  const Vec hidden = set(kNegativeInfinity);
  for (int64_t i = count * tile.lanes; i < keys * tile.lanes; i += kLanes) store(scores + i, hidden);
  const float *begins = tile.begins + panel * tile.lanes, *ends = tile.ends + panel * tile.lanes;
  const bool masked = static_cast<float>(block + first) < latest(begins, tile.lanes) ||
                      static_cast<float>(end) > earliest(ends, tile.lanes);
  part.shift = panel_maxima<kAmxVectors>(panel, block + first, count, masked, tile);
  return part;
}

template <int Parts>
static void attend_amx_head(const AttentionProblem& problem, const AttentionTask& task, int kv_head,
                            const AmxScratch& s) {
  const TileScratch& tile = s.tile;
  load_panels<kAmxVectors>(problem, task, kv_head, tile);
  pair_queries<Parts>(tile.queries, tile.panels * tile.query_width / 32, s.queries);
  const int64_t lanes = tile.panels * tile.lanes;
  const int64_t first = static_cast<int64_t>(earliest(tile.begins, lanes)),
                last = static_cast<int64_t>(latest(tile.ends, lanes));
  for (int64_t block = first; block < last; block += s.block) {
    const int64_t block_end = smaller(block + s.block, last);
    const bool mapped = load_block(problem, task.sequence, kv_head, block, block_end, s);
    PanelWeights<Parts> before;
    for (int64_t panel = 0; panel < tile.panels; panel++) {
      const int64_t begin = larger(block, static_cast<int64_t>(earliest(tile.begins + panel * tile.lanes, tile.lanes)));
      const int64_t end = smaller(block_end, static_cast<int64_t>(latest(tile.ends + panel * tile.lanes, tile.lanes)));
      if (begin >= end) continue;
      float* scores = before.scores == s.scores[0] ? s.scores[1] : s.scores[0];
      const PanelWeights<Parts> part =
          score_panel<Parts>(problem, task, kv_head, panel, block, begin, end, mapped, scores, before, s);
      add_weighted<Parts>(before, s);
      before = part;
    }
    add_weighted<Parts>(before, s);
  }
  finish_panels<kAmxVectors>(problem, task, kv_head, tile);
}

static void attend_amx(const AttentionProblem& problem, const AttentionTask& task, int64_t kv_block, float* scratch) {
  if (!multiplies_on_amx(problem)) return attend_tile(problem, task, kv_block, scratch);
  const AmxScratch s = amx_scratch(problem, (task.row_end - task.row_begin) * problem.group, kv_block, scratch);
  tiles_begin();
  for (int kv_head = task.head_begin; kv_head < task.head_end; kv_head++) {
    if (problem.bf16_products) {
      attend_amx_head<1>(problem, task, kv_head, s);
    } else {
      attend_amx_head<3>(problem, task, kv_head, s);
    }
  }
  tiles_end();
}
