// Prefill on AMX over int8 and int4 caches. Codes are exact in bfloat16. A float is split by truncation into three
// bfloat16 parts that sum to it exactly, so that three products give what one of float32 would, up to the order of the
// sums; `bf16_products` keeps one part, rounded to nearest, with an error of 2^-9 relative to each operand.
#pragma once

constexpr int64_t kTileKeys = 32;         // keys that are worked on at once
constexpr int64_t kTileFloats = 16 * 16;  // a tile of 1 KiB
constexpr int kAmxVectors = 2;

struct AmxScratch {
  TileScratch tile;
  uint16_t *keys, *values;      // [kv_block][query_width], [value_width][kv_block]
  uint32_t *queries, *weights;  // tiles of pairs: [panel][channels / 32][part][2], [kv_block / 32][part][2]
  int64_t block, parts;
  float* end;
};

PAGELOOM_INLINE bool multiplies_on_amx(const AttentionProblem& problem) {
  auto coded = [](const Cache& cache) { return cache.element == Element::i8 || cache.element == Element::i4; };
  return coded(problem.key) && coded(problem.value);
}

static AmxScratch amx_scratch(const AttentionProblem& problem, int64_t rows, int64_t kv_block, float* scratch) {
  AmxScratch s;
  s.block = (kv_block + kTileKeys - 1) / kTileKeys * kTileKeys;
  s.parts = problem.bf16_products ? 1 : 3;
  s.tile = tile_scratch<kAmxVectors>(problem, rows, s.block, scratch);
  float* next = s.tile.staging + kLanes * larger(s.tile.query_width, s.tile.value_width);
  next = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(next) + 63) / 64 * 64);
  s.keys = reinterpret_cast<uint16_t*>(next);
  next += s.block * s.tile.query_width / 2;
  s.values = reinterpret_cast<uint16_t*>(next);
  next += s.block * s.tile.value_width / 2;
  s.queries = reinterpret_cast<uint32_t*>(next);
  next += s.tile.panels * s.tile.query_width / 32 * s.parts * kAmxVectors * kTileFloats;
  s.weights = reinterpret_cast<uint32_t*>(next);
  s.end = next + s.block / kTileKeys * s.parts * kAmxVectors * kTileFloats;
  return s;
}

static size_t amx_scratch_size(const AttentionProblem& problem, int64_t rows, int64_t kv_block) {
  if (!multiplies_on_amx(problem)) return tile_scratch_size(problem, rows, kv_block);
  const AmxScratch s = amx_scratch(problem, rows, kv_block, nullptr);
  return static_cast<size_t>(s.end - s.tile.queries) + 16;
}

// The leading bfloat16 of each of a and b, side by side in 32 bits; a and b keep what is left.
PAGELOOM_INLINE __m512i split_pair(__m512& a, __m512& b) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const __m512i x = _mm512_and_si512(_mm512_castps_si512(a), high), y = _mm512_and_si512(_mm512_castps_si512(b), high);
  a = _mm512_sub_ps(a, _mm512_castsi512_ps(x));
  b = _mm512_sub_ps(b, _mm512_castsi512_ps(y));
  return _mm512_or_si512(_mm512_srli_epi32(x, 16), y);
}

PAGELOOM_INLINE __m512 nearest_bf16(__m512 a) {
  const __m512i bits = _mm512_castps_si512(a),
                odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))));
}

// 32 rows of [rows][2 * kLanes] floats as tiles of pairs of rows: [part][vector].
static void pair_rows(const float* rows, int64_t parts, uint32_t* tiles) {
  for (int n = 0; n < kAmxVectors; n++) {
    for (int pair = 0; pair < 16; pair++) {
      __m512 a = load(rows + (2 * pair * kAmxVectors + n) * kLanes).v;
      __m512 b = load(rows + ((2 * pair + 1) * kAmxVectors + n) * kLanes).v;
      if (parts == 1) {
        a = nearest_bf16(a);
        b = nearest_bf16(b);
      }
      for (int64_t part = 0; part < parts; part++) {
        _mm512_storeu_si512(tiles + (part * kAmxVectors + n) * kTileFloats + pair * 16, split_pair(a, b));
      }
    }
  }
}

PAGELOOM_INLINE void store_bf16(uint16_t* out, Vec a) {
  const __m512i high = _mm512_srli_epi32(_mm512_castps_si512(a.v), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(high));
}

// K rows as bfloat16 [block][width], and V's transposed [width][block]; zeros behind the last key.
static void load_codes(const FloatRows& keys, const FloatRows& values, int64_t count, const AmxScratch& s) {
  for (int64_t t = 0; t < s.block; t++) {
    for (int64_t c = 0; c < s.tile.query_width; c += kLanes) {
      store_bf16(s.keys + t * s.tile.query_width + c, t < count ? load(keys.data + t * keys.stride + c) : zero());
    }
  }
  for (int64_t t = 0; t < s.block; t += kLanes) {
    for (int64_t c = 0; c < s.tile.value_width; c += kLanes) {
      Vec rows[kLanes];
      for (int i = 0; i < kLanes; i++)
        rows[i] = t + i < count ? load(values.data + (t + i) * values.stride + c) : zero();
      transpose(rows);
      for (int i = 0; i < kLanes; i++) store_bf16(s.values + (c + i) * s.block + t, rows[i]);
    }
  }
}

// sums[32][lanes] (+)= a[32][depth] x the paired tiles b, with a's rows `stride` elements apart and `steps` of 32
// terms.
template <bool Accumulate>
static void multiply_amx(const uint16_t* a, int64_t stride, const uint32_t* b, int64_t steps, int64_t parts,
                         float* sums) {
  constexpr int64_t kRow = kAmxVectors * kLanes;
  constexpr int kRowBytes = kRow * sizeof(float);
  if (Accumulate) {
    PAGELOOM_TILE_LOAD(0, sums, kRowBytes);
    PAGELOOM_TILE_LOAD(1, sums + kLanes, kRowBytes);
    PAGELOOM_TILE_LOAD(2, sums + 16 * kRow, kRowBytes);
    PAGELOOM_TILE_LOAD(3, sums + 16 * kRow + kLanes, kRowBytes);
  } else {
    PAGELOOM_TILE_ZERO(0);
    PAGELOOM_TILE_ZERO(1);
    PAGELOOM_TILE_ZERO(2);
    PAGELOOM_TILE_ZERO(3);
  }
  for (int64_t step = 0; step < steps; step++) {
    PAGELOOM_TILE_LOAD(4, a + step * 32, stride * 2);
    PAGELOOM_TILE_LOAD(5, a + 16 * stride + step * 32, stride * 2);
    // The small parts first, while the sum of this step is small.
    for (int64_t part = parts - 1; part >= 0; part--) {
      const uint32_t* tiles = b + (step * parts + part) * kAmxVectors * kTileFloats;
      PAGELOOM_TILE_LOAD(6, tiles, 64);
      PAGELOOM_TILE_LOAD(7, tiles + kTileFloats, 64);
      PAGELOOM_TILE_MULTIPLY(0, 4, 6);
      PAGELOOM_TILE_MULTIPLY(1, 4, 7);
      PAGELOOM_TILE_MULTIPLY(2, 5, 6);
      PAGELOOM_TILE_MULTIPLY(3, 5, 7);
    }
  }
  PAGELOOM_TILE_STORE(0, sums, kRowBytes);
  PAGELOOM_TILE_STORE(1, sums + kLanes, kRowBytes);
  PAGELOOM_TILE_STORE(2, sums + 16 * kRow, kRowBytes);
  PAGELOOM_TILE_STORE(3, sums + 16 * kRow + kLanes, kRowBytes);
}

// Keys [begin, end) of the block that starts at `block`, for one panel.
static void attend_amx_panel(const AttentionProblem& problem, const AttentionTask& task, int kv_head, int64_t panel,
                             int64_t block, int64_t begin, int64_t end, bool mapped, const AmxScratch& s) {
  const TileScratch& tile = s.tile;
  const int64_t first = (begin - block) / kTileKeys * kTileKeys, count = end - block - first;
  const int64_t tiles = (count + kTileKeys - 1) / kTileKeys, panel_tiles = s.parts * kAmxVectors * kTileFloats;
  const uint32_t* queries = s.queries + panel * tile.query_width / 32 * panel_tiles;
  for (int64_t t = 0; t < tiles; t++) {
    multiply_amx<false>(s.keys + (first + t * kTileKeys) * tile.query_width, tile.query_width, queries,
                        tile.query_width / 32, s.parts, tile.scores + t * kTileKeys * tile.lanes);
  }
  if (transforms_logits(problem)) transform_panel(problem, task, kv_head, panel, block + first, count, tile);
  if (!mapped) hide_unmapped(problem, task, kv_head, block + first, count, tile);
  const float *begins = tile.begins + panel * tile.lanes, *ends = tile.ends + panel * tile.lanes;
  const bool masked = static_cast<float>(block + first) < latest(begins, tile.lanes) ||
                      static_cast<float>(end) > earliest(ends, tile.lanes);
  panel_softmax<kAmxVectors>(panel, block + first, count, masked, tile);
  for (int64_t i = count * tile.lanes; i < tiles * kTileKeys * tile.lanes; i += kLanes) store(tile.scores + i, zero());
  for (int64_t t = 0; t < tiles; t++) {
    pair_rows(tile.scores + t * kTileKeys * tile.lanes, s.parts, s.weights + t * panel_tiles);
  }
  for (int64_t c = 0; c < tile.value_width; c += 32) {
    multiply_amx<true>(s.values + c * s.block + first, s.block, s.weights, tiles, s.parts,
                       tile.sums + (panel * tile.value_width + c) * tile.lanes);
  }
}

static void attend_amx_head(const AttentionProblem& problem, const AttentionTask& task, int kv_head,
                            const AmxScratch& s) {
  const TileScratch& tile = s.tile;
  load_panels<kAmxVectors>(problem, task, kv_head, tile);
  for (int64_t step = 0; step < tile.panels * tile.query_width / 32; step++) {
    pair_rows(tile.queries + step * 32 * tile.lanes, s.parts, s.queries + step * s.parts * kAmxVectors * kTileFloats);
  }
  const int64_t lanes = tile.panels * tile.lanes;
  const int64_t first = static_cast<int64_t>(earliest(tile.begins, lanes)),
                last = static_cast<int64_t>(latest(tile.ends, lanes));
  for (int64_t block = first; block < last; block += s.block) {
    const int64_t block_end = smaller(block + s.block, last);
    const FloatRows keys = float_rows(problem.key, problem.addressing, task.sequence.index, kv_head, block, block_end,
                                      problem.head_size, tile.keys);
    const FloatRows values = float_rows(problem.value, problem.addressing, task.sequence.index, kv_head, block,
                                        block_end, problem.v_head_size, tile.values);
    load_codes(keys, values, block_end - block, s);
    for (int64_t panel = 0; panel < tile.panels; panel++) {
      const int64_t begin = larger(block, static_cast<int64_t>(earliest(tile.begins + panel * tile.lanes, tile.lanes)));
      const int64_t end = smaller(block_end, static_cast<int64_t>(latest(tile.ends + panel * tile.lanes, tile.lanes)));
      if (begin < end) attend_amx_panel(problem, task, kv_head, panel, block, begin, end, keys.mapped, s);
    }
  }
  finish_panels<kAmxVectors>(problem, task, kv_head, tile);
}

static void attend_amx(const AttentionProblem& problem, const AttentionTask& task, int64_t kv_block, float* scratch) {
  if (!multiplies_on_amx(problem)) return attend_tile(problem, task, kv_block, scratch);
  const AmxScratch s = amx_scratch(problem, (task.row_end - task.row_begin) * problem.group, kv_block, scratch);
  tiles_begin();
  for (int kv_head = task.head_begin; kv_head < task.head_end; kv_head++) attend_amx_head(problem, task, kv_head, s);
  tiles_end();
}
