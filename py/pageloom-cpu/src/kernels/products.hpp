// Products of stored rows with a few query heads: q.k for a list of rows, and the sum of weighted rows. A row is
// converted once for all heads of a group; sums stay in registers.
#pragma once

constexpr int kMaxGroup = kDots / 2;

constexpr size_t kStreams = 8;

// Memory that is needed soon. `bytes` of one of its places are asked for with each row that is worked on, in turn: a
// core reads several pages at once faster than one after the other. From a place on, 2 ** `columns_log2` bytes of each
// row are needed; of whole rows, that is more than there are.
struct Ahead {
  const char* places[kStreams];
  int64_t bytes, row_stride;
  int columns_log2;
  bool apart;  // the rows that are worked on are short and lie apart: no prefetcher of the core foresees them

  // How far from a place the byte is that `done` of the needed ones lie before.
  int64_t after(int64_t done) const {
    const int64_t row = done >> columns_log2;
    return row * row_stride + (done - (row << columns_log2));
  }
};

constexpr Ahead kNothingAhead = {};

PAGELOOM_INLINE void ask(const Ahead& ahead, size_t row) {
  const char* data = ahead.places[row % kStreams] + ahead.after(row / kStreams * ahead.bytes);
  for (int64_t offset = 0; offset < ahead.bytes; offset += 64) __builtin_prefetch(data + offset, 0, 3);
}

// scores[g * score_stride + r] = q[g] . row r, in unit order, for `count` rows, each `offset` bytes after rows[r].
template <class Store, int G>
static void dot_rows(const float* q, int64_t q_stride, const char* const* rows, int64_t offset, int64_t count,
                     int channels, float* scores, int64_t score_stride, const Ahead& ahead) {
  constexpr int kRows = kDots / G;
  const int whole = channels / kUnit, rest = channels % kUnit, unit_bytes = Store::bytes(kUnit);
  for (int64_t first = 0; first < count; first += kRows) {
    const char* row[kRows];
    for (int r = 0; r < kRows; r++) row[r] = rows[smaller(first + r, count - 1)] + offset;
    for (int r = 0; r < kRows; r++) ask(ahead, first + r);
    Vec sums[kDots];
    for (int i = 0; i < kDots; i++) sums[i] = zero();
    for (int unit = 0; unit < whole; unit++) {
      const float* queries = q + unit * kUnit;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; r++) {
        Vec a, b;
        Store::load_unit(row[r] + unit * unit_bytes, a, b);
#pragma GCC unroll 8
        for (int g = 0; g < G; g++) {
          Vec& sum = sums[g * kRows + r];
          sum = fma(load(queries + g * q_stride), a, sum);
          sum = fma(load(queries + g * q_stride + kLanes), b, sum);
        }
      }
    }
    if (rest) {
      const float* queries = q + whole * kUnit;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; r++) {
        Vec a, b;
        load_unit_first<Store>(row[r] + whole * unit_bytes, rest, a, b);
#pragma GCC unroll 8
        for (int g = 0; g < G; g++) {
          Vec& sum = sums[g * kRows + r];
          sum = fma(load(queries + g * q_stride), a, sum);
          sum = fma(load(queries + g * q_stride + kLanes), b, sum);
        }
      }
    }
    alignas(64) float results[kDots];
    reduce_dots(sums, results);
    const int64_t valid = smaller(kRows, count - first);
    for (int g = 0; g < G; g++) {
      float* out = scores + g * score_stride + first;
      if (valid == kRows) {
        memcpy(out, results + g * kRows, kRows * sizeof(float));
      } else {
        for (int64_t r = 0; r < valid; r++) out[r] = results[g * kRows + r];
      }
    }
  }
}

// `Units` units of the output of G heads, over all rows.
template <class Store, int G, int Units, bool Whole>
PAGELOOM_INLINE void accumulate_units(const float* weights, int64_t weight_stride, const char* const* rows,
                                      int64_t offset, int64_t count, int channels, float* out, int64_t out_stride,
                                      const Ahead& ahead) {
  Vec sums[G][2 * Units];
  for (int g = 0; g < G; g++) {
    for (int c = 0; c < 2 * Units; c++) sums[g][c] = load(out + g * out_stride + c * kLanes);
  }
  for (int64_t r = 0; r < count; r++) {
    const char* data = rows[r] + offset;
    ask(ahead, r);
#pragma GCC unroll 8
    for (int u = 0; u < Units; u++) {
      Vec a, b;
      if (Whole) {
        Store::load_unit(data + u * Store::bytes(kUnit), a, b);
      } else {
        load_unit_first<Store>(data, channels, a, b);
      }
#pragma GCC unroll 8
      for (int g = 0; g < G; g++) {
        Vec weight = set(weights[g * weight_stride + r]);
        sums[g][2 * u] = fma(weight, a, sums[g][2 * u]);
        sums[g][2 * u + 1] = fma(weight, b, sums[g][2 * u + 1]);
      }
    }
  }
  for (int g = 0; g < G; g++) {
    for (int c = 0; c < 2 * Units; c++) store(out + g * out_stride + c * kLanes, sums[g][c]);
  }
}

// out[g * out_stride ...] += sum over rows r of weights[g * weight_stride + r] * row r, in unit order.
template <class Store, int G>
static void accumulate_rows(const float* weights, int64_t weight_stride, const char* const* rows, int64_t offset,
                            int64_t count, int channels, float* out, int64_t out_stride, const Ahead& ahead) {
  constexpr int kWide = kDots / (2 * G) >= 4 ? 4 : kDots / (2 * G);
  const int whole = channels / kUnit, rest = channels % kUnit;
  int unit = 0;
  for (; unit + kWide <= whole; unit += kWide) {
    accumulate_units<Store, G, kWide, true>(weights, weight_stride, rows, offset + unit * Store::bytes(kUnit), count,
                                            kUnit, out + unit * kUnit, out_stride, unit ? kNothingAhead : ahead);
  }
  for (; unit < whole; unit++) {
    accumulate_units<Store, G, 1, true>(weights, weight_stride, rows, offset + unit * Store::bytes(kUnit), count, kUnit,
                                        out + unit * kUnit, out_stride, unit ? kNothingAhead : ahead);
  }
  if (rest) {
    accumulate_units<Store, G, 1, false>(weights, weight_stride, rows, offset + whole * Store::bytes(kUnit), count,
                                         rest, out + whole * kUnit, out_stride, unit ? kNothingAhead : ahead);
  }
}

using RowsProduct = void (*)(const float*, int64_t, const char* const*, int64_t, int64_t, int, float*, int64_t,
                             const Ahead&);

template <class Store>
static RowsProduct dot_rows_for(int group) {
  if constexpr (kMaxGroup >= 8) {
    if (group == 8) return dot_rows<Store, 8>;
  }
  if constexpr (kMaxGroup >= 4) {
    if (group == 4) return dot_rows<Store, 4>;
  }
  return group == 2 ? dot_rows<Store, 2> : dot_rows<Store, 1>;
}

template <class Store>
static RowsProduct accumulate_rows_for(int group) {
  if constexpr (kMaxGroup >= 8) {
    if (group == 8) return accumulate_rows<Store, 8>;
  }
  if constexpr (kMaxGroup >= 4) {
    if (group == 4) return accumulate_rows<Store, 4>;
  }
  return group == 2 ? accumulate_rows<Store, 2> : accumulate_rows<Store, 1>;
}

PAGELOOM_INLINE RowsProduct dot_rows_for(Element element, int group) {
  return with_store(element, [group](auto store) { return dot_rows_for<decltype(store)>(group); });
}

PAGELOOM_INLINE RowsProduct accumulate_rows_for(Element element, int group) {
  return with_store(element, [group](auto store) { return accumulate_rows_for<decltype(store)>(group); });
}

// The largest number of heads worked on together, of `heads` that are left.
PAGELOOM_INLINE int heads_together(int heads) {
  int group = kMaxGroup;
  while (group > heads) group /= 2;
  return group;
}
