// Prefill on AMX over int8 and int4 caches, in products of codes with limbs of Q and of the weights: three limbs for
// what float32 would give, or two where `two_limbs` is asked for.
#pragma once

constexpr int64_t kMostKeys = 256;  // of a block

struct AmxScratch {
  TileScratch tile;
  char *keys, *values, *queries, *weights;  // tiles, see amx_operands.hpp
  float* units;                             // of Q's limbs: [panels][lanes]
  int32_t* products[2];                     // tiles [limb][vector] of the product under way and of the one before it
  int64_t block, query_steps;
  char* end;
};

PAGELOOM_INLINE bool multiplies_on_amx(const AttentionProblem& problem) {
  auto coded = [](const Cache& cache) { return cache.element == Element::i8 || cache.element == Element::i4; };
  return coded(problem.key) && coded(problem.value);
}

static AmxScratch amx_scratch(const AttentionProblem& problem, int64_t rows, int64_t kv_block, float* scratch) {
  const int64_t limb_bytes = problem.two_limbs ? kLimbBytes<2> : kLimbBytes<3>;
  AmxScratch s;
  s.block = round_up(kv_block, 64);
  s.tile = tile_scratch<kAmxVectors>(problem, rows, s.block, scratch);
  s.query_steps = round_up(s.tile.query_width, 64) / 64;
  auto aligned = [](void* p) { return reinterpret_cast<char*>(round_up(reinterpret_cast<int64_t>(p), 64)); };
  s.keys = aligned(s.tile.end);
  s.values = s.keys + s.block / 16 * s.query_steps * kTileBytes;
  s.queries = s.values + s.block / 64 * round_up(s.tile.value_width, 64) / 16 * kTileBytes;
  s.weights = s.queries + s.tile.panels * s.query_steps * limb_bytes;
  char* next = s.weights + s.block / 64 * limb_bytes;
  for (int32_t*& products : s.products) {
    products = reinterpret_cast<int32_t*>(next);
    next += limb_bytes;
  }
  s.units = reinterpret_cast<float*>(next);
  s.end = next + s.tile.panels * s.tile.lanes * sizeof(float);
  return s;
}

static size_t amx_scratch_size(const AttentionProblem& problem, int64_t rows, int64_t kv_block) {
  if (!multiplies_on_amx(problem)) return tile_scratch_size(problem, rows, kv_block);
  const AmxScratch s = amx_scratch(problem, rows, kv_block, nullptr);
  return static_cast<size_t>(s.end - reinterpret_cast<char*>(s.tile.rows)) / sizeof(float) + 16;
}

// Keys [begin, end) of a block. Returns whether all are mapped.
static bool load_block(const AttentionProblem& problem, const Sequence& sequence, int head, int64_t begin, int64_t end,
                       const AmxScratch& s) {
  auto list = [&](const Cache& cache) {
    for (int64_t t = end - begin; t < s.block; t++) s.tile.rows[t] = nullptr;
    return list_rows(cache, problem.addressing, sequence.index, head, begin, end, s.tile.rows);
  };
  const int64_t count = round_up(end - begin, 64);
  auto is_i4 = [](const Cache& cache) { return cache.element == Element::i4; };
  const bool mapped = list(problem.key);
  (is_i4(problem.key) ? load_keys<StoreI4> : load_keys<StoreI8>)(s.tile.rows, count, problem.head_size, s.keys);
  list(problem.value);
  (is_i4(problem.value) ? load_values<StoreI4> : load_values<StoreI8>)(s.tile.rows, count, problem.v_head_size,
                                                                       s.block / 64 * kTileBytes, s.values);
  return mapped;
}

// Sums of products with limbs become rows of floats: scores from those of Q, whose highest limb is signed; with those
// of weights they are added to the rows, times `rescale`.
enum class Limbed { queries, weights };
template <int Limbs>
struct Joined {
  float* out;  // [rows][lanes]
  Vec units[Limbs][kAmxVectors], rescale[kAmxVectors];
};

// Rows [Begin, End) of 16 from the tiles [limb][vector].
template <int Limbs, Limbed B, int Begin, int End>
PAGELOOM_INLINE void join_rows(const Joined<Limbs>& joined, const int32_t* products, float* out) {
#pragma GCC unroll 16
  for (int row = Begin; row < End; row++) {
#pragma GCC unroll 2
    for (int n = 0; n < kAmxVectors; n++) {
      float* place = out + (row * kAmxVectors + n) * kLanes;
      const Vec sum = join_limbs<Limbs>(products + (16 * n + row) * kLanes, joined.units, n);
      store(place, B == Limbed::queries ? sum : fma(load(place), joined.rescale[n], sum));
    }
  }
}

#define PAGELOOM_TILE_LIMB(low, high, multiply)   \
  PAGELOOM_TILE_LOAD(7, b + (low) * kTileBytes);  \
  multiply(low, 6, 7);                            \
  PAGELOOM_TILE_LOAD(7, b + (high) * kTileBytes); \
  multiply(high, 6, 7)

// Adds to tiles [limb][vector] the products of tile `a` with `b`, [limb][vector]. The vectors have nothing to do with
// that: meanwhile they join rows of the products before.
template <int Limbs, Limbed B, int Begin, int End>
PAGELOOM_INLINE void multiply_limbs(const char* a, const char* b, const Joined<Limbs>& joined, const int32_t* before,
                                    float* out) {
  constexpr int kSecond = Begin + (End - Begin + Limbs - 1) / Limbs,
                kThird = Begin + (2 * (End - Begin) + Limbs - 1) / Limbs;
  PAGELOOM_TILE_LOAD(6, a);
  if (B == Limbed::queries) {
    PAGELOOM_TILE_LIMB(0, 1, PAGELOOM_TILE_MULTIPLY_SIGNED);
  } else {
    PAGELOOM_TILE_LIMB(0, 1, PAGELOOM_TILE_MULTIPLY_UNSIGNED);
  }
  join_rows<Limbs, B, Begin, kSecond>(joined, before, out);
  PAGELOOM_TILE_LIMB(2, 3, PAGELOOM_TILE_MULTIPLY_UNSIGNED);
  join_rows<Limbs, B, kSecond, kThird>(joined, before, out);
  if (Limbs == 3) {
    PAGELOOM_TILE_LIMB(4, 5, PAGELOOM_TILE_MULTIPLY_UNSIGNED);
  }
  join_rows<Limbs, B, kThird, End>(joined, before, out);
}

// products[limb][vector] = a[steps] x b[steps][limb][vector], while `Rows` rows of those before are joined.
template <int Limbs, Limbed B, int Rows>
PAGELOOM_INLINE void multiply_steps(const char* a, const char* b, int64_t steps, int32_t* products,
                                    const Joined<Limbs>& joined, const int32_t* before, float* out) {
  PAGELOOM_TILE_ZERO(0);
  PAGELOOM_TILE_ZERO(1);
  PAGELOOM_TILE_ZERO(2);
  PAGELOOM_TILE_ZERO(3);
  PAGELOOM_TILE_ZERO(4);
  PAGELOOM_TILE_ZERO(5);
  if (steps == 1) {
    multiply_limbs<Limbs, B, 0, Rows>(a, b, joined, before, out);
  } else {
    multiply_limbs<Limbs, B, 0, Rows / 2>(a, b, joined, before, out);
    multiply_limbs<Limbs, B, Rows / 2, Rows>(a + kTileBytes, b + kLimbBytes<Limbs>, joined, before, out);
    for (int64_t step = 2; step < steps; step++) {
      multiply_limbs<Limbs, B, 0, 0>(a + step * kTileBytes, b + step * kLimbBytes<Limbs>, joined, before, out);
    }
  }
  constexpr int64_t kTile = kTileBytes / sizeof(int32_t);
  PAGELOOM_TILE_STORE(0, products);
  PAGELOOM_TILE_STORE(1, products + kTile);
  PAGELOOM_TILE_STORE(2, products + 2 * kTile);
  PAGELOOM_TILE_STORE(3, products + 3 * kTile);
  if (Limbs == 3) {
    PAGELOOM_TILE_STORE(4, products + 4 * kTile);
    PAGELOOM_TILE_STORE(5, products + 5 * kTile);
  }
}

// Joins the products of `count` tiles of `a`, `stride` bytes apart, with b[steps][limb][vector].
template <int Limbs, Limbed B>
PAGELOOM_INLINE void multiply_all(const char* a, int64_t count, int64_t stride, const char* b, int64_t steps,
                                  const AmxScratch& s, const Joined<Limbs>& joined) {
  tiles_written();
  int32_t *products = s.products[0], *before = s.products[1];
  float* out = joined.out;
  multiply_steps<Limbs, B, 0>(a, b, steps, products, joined, before, out);
  for (int64_t i = 1; i < count; i++) {
    int32_t* free = before;
    before = products;
    products = free;
    multiply_steps<Limbs, B, 16>(a + i * stride, b, steps, products, joined, before, out);
    out += 16 * kAmxVectors * kLanes;
  }
  join_rows<Limbs, B, 0, 16>(joined, products, out);
}

// Scores of a panel with `tiles` times 16 keys from key `first` of the block on.
template <int Limbs>
static void score_panel(int64_t panel, int64_t first, int64_t tiles, const AmxScratch& s) {
  Joined<Limbs> scores;
  scores.out = s.tile.scores;
  Vec lowest[kAmxVectors];
  for (int n = 0; n < kAmxVectors; n++) lowest[n] = load(s.units + panel * s.tile.lanes + n * kLanes);
  units_of_limbs<Limbs>(lowest, scores.units);
  const int64_t stride = s.query_steps * kTileBytes;
  multiply_all<Limbs, Limbed::queries>(s.keys + first / 16 * stride, tiles, stride,
                                       s.queries + panel * s.query_steps * kLimbBytes<Limbs>, s.query_steps, s, scores);
}

// Scores of `tiles` times 16 keys as whole weights relative to the largest, and zeros up to a multiple of 64 keys;
// `total` takes the sums of the weights before they are rounded.
template <int Limbs>
static void weigh_panel(int64_t tiles, const Vec (&top)[kAmxVectors], const AmxScratch& s, Vec (&total)[kAmxVectors]) {
  const Vec hidden = set(kNegativeInfinity);
  Vec largest[kAmxVectors];
  for (int n = 0; n < kAmxVectors; n++) {
    largest[n] = if_less(hidden, top[n], top[n], zero());
    total[n] = zero();
  }
  for (int64_t quad = 0; quad < round_up(tiles, 4) * 4; quad++) {
    const float* scores = s.tile.scores + 4 * quad * kAmxVectors * kLanes;
    char* weights = s.weights + quad / 16 * kLimbBytes<Limbs>;
    for (int n = 0; n < kAmxVectors; n++) {
      __m512i x[4];
      for (int i = 0; i < 4; i++) {
        x[i] = _mm512_setzero_si512();
        if (quad < tiles * 4) {
          const Vec score = load(scores + (i * kAmxVectors + n) * kLanes);
          const Vec weight = weight_in_units<Limbs>(sub(score, largest[n]));
          total[n] = add(total[n], weight);
          x[i] = _mm512_cvtps_epi32(weight.v);
        }
      }
      store_limbs<Limbs>(x, quad % 16, weights + n * kTileBytes);
    }
  }
}

// Adds weights x V of `steps` times 64 keys from key `first` of the block on, whose weights are in units of 1 over
// kWholeOne of their largest.
template <int Limbs>
static void add_weighted(int64_t panel, int64_t first, int64_t steps, const PanelShift<kAmxVectors>& shift,
                         const Vec (&total)[kAmxVectors], const AmxScratch& s) {
  const TileScratch& tile = s.tile;
  Joined<Limbs> sums;
  sums.out = tile.sums + panel * tile.value_width * tile.lanes;
  Vec lowest[kAmxVectors];
  for (int n = 0; n < kAmxVectors; n++) {
    sums.rescale[n] = shift.rescale[n];
    lowest[n] = mul(exponential(sub(shift.top[n], shift.shift[n])), set(1.0f / kWholeOne<Limbs>));
    float* denominator = tile.denominators + panel * tile.lanes + n * kLanes;
    store(denominator, fma(load(denominator), shift.rescale[n], mul(total[n], lowest[n])));
  }
  units_of_limbs<Limbs>(lowest, sums.units);
  multiply_all<Limbs, Limbed::weights>(s.values + first / 64 * kTileBytes, tile.value_width / 16,
                                       s.block / 64 * kTileBytes, s.weights, steps, s, sums);
}

// Keys [begin, end), all in the block that starts at `block`, for one panel.
template <int Limbs>
static void attend_block(const AttentionProblem& problem, const AttentionTask& task, int kv_head, int64_t panel,
                         int64_t block, int64_t begin, int64_t end, bool mapped, const AmxScratch& s) {
  const TileScratch& tile = s.tile;
  const int64_t first = (begin - block) / 64 * 64, count = end - block - first, tiles = (count + 15) / 16;
  score_panel<Limbs>(panel, first, tiles, s);
  if (transforms_logits(problem)) transform_panel(problem, task, kv_head, panel, block + first, count, tile);
  if (!mapped) hide_unmapped(problem, task.sequence.index, block + first, count, tile.lanes, tile.scores);
  for (int64_t i = count * tile.lanes; i < tiles * 16 * tile.lanes; i += kLanes) {
    store(tile.scores + i, set(kNegativeInfinity));
  }
  const float *begins = tile.begins + panel * tile.lanes, *ends = tile.ends + panel * tile.lanes;
  const bool masked = static_cast<float>(block + first) < latest(begins, tile.lanes) ||
                      static_cast<float>(end) > earliest(ends, tile.lanes);
  const PanelShift<kAmxVectors> shift = panel_maxima<kAmxVectors>(panel, block + first, count, masked, tile);
  Vec total[kAmxVectors];
  weigh_panel<Limbs>(tiles, shift.top, s, total);
  add_weighted<Limbs>(panel, first, (tiles + 3) / 4, shift, total, s);
}

template <int Limbs>
static void attend_amx_head(const AttentionProblem& problem, const AttentionTask& task, int kv_head, int64_t kv_block,
                            float* scratch, const AmxScratch& s) {
  const TileScratch& tile = s.tile;
  load_panels<kAmxVectors>(problem, task, kv_head, tile);
  bool fit = true;
  for (int64_t panel = 0; panel < tile.panels; panel++) {
    fit &= limbs_of_queries<Limbs>(tile.queries + panel * tile.query_width * tile.lanes, tile.query_width,
                                   s.queries + panel * s.query_steps * kLimbBytes<Limbs>, s.units + panel * tile.lanes);
  }
  if (!fit) return attend_tile_head<kAmxVectors>(problem, task, kv_head, kv_block, scratch);
  const int64_t lanes = tile.panels * tile.lanes;
  const int64_t first = static_cast<int64_t>(earliest(tile.begins, lanes)),
                last = static_cast<int64_t>(latest(tile.ends, lanes));
  for (int64_t block = first; block < last; block += s.block) {
    const int64_t block_end = smaller(block + s.block, last);
    const bool mapped = load_block(problem, task.sequence, kv_head, block, block_end, s);
    for (int64_t panel = 0; panel < tile.panels; panel++) {
      const float *begins = tile.begins + panel * tile.lanes, *ends = tile.ends + panel * tile.lanes;
      const int64_t begin = larger(block, static_cast<int64_t>(earliest(begins, tile.lanes)));
      const int64_t end = smaller(block_end, static_cast<int64_t>(latest(ends, tile.lanes)));
      if (begin >= end) continue;
      attend_block<Limbs>(problem, task, kv_head, panel, block, begin, end, mapped, s);
    }
  }
  finish_panels<kAmxVectors>(problem, task, kv_head, tile);
}

static void attend_amx(const AttentionProblem& problem, const AttentionTask& task, int64_t kv_block, float* scratch) {
  if (!multiplies_on_amx(problem)) return attend_tile(problem, task, kv_block, scratch);
  const AmxScratch s = amx_scratch(problem, (task.row_end - task.row_begin) * problem.group, kv_block, scratch);
  tiles_begin();
  for (int kv_head = task.head_begin; kv_head < task.head_end; kv_head++) {
    (problem.two_limbs ? attend_amx_head<2> : attend_amx_head<3>)(problem, task, kv_head, kv_block, scratch, s);
  }
  tiles_end();
}
