// The products of a level that multiplies int8 and int4 codes in limbs. The other elements are multiplied as floats.
#pragma once

#include "kernels/channels.hpp"
#include "kernels/math.hpp"
#include "kernels/products.hpp"
#include "kernels/limbs.hpp"
#include "kernels/code_lines.hpp"
#include "kernels/code_dots.hpp"
#include "kernels/code_sums.hpp"

template <class Store>
struct CodesOf {};
template <>
struct CodesOf<StoreI8> {
  using Codes = CodesI8;
};
template <>
struct CodesOf<StoreI4> {
  using Codes = CodesI4;
};

// dot_codes and accumulate_codes as products of rows. Heads go in pairs: more would not fit into the registers.
template <class Store, bool Rounded, int G>
static void dot_limbs(const float* q, int64_t q_stride, const char* const* rows, int64_t offset, int64_t count,
                      int channels, float* scores, int64_t score_stride, const Ahead& ahead) {
  using Codes = typename CodesOf<Store>::Codes;
  constexpr int kPair = G == 1 ? 1 : 2;
  for (int g = 0; g < G; g += kPair) {
    const float* pair = q + padded(channels) + g * q_stride;
    const bool stands_out = QueryLimbs{pair}.stands_out() || QueryLimbs{pair + (kPair - 1) * q_stride}.stands_out();
    const auto dots = Rounded      ? dot_codes<Codes, 1, kPair>
                      : stands_out ? dot_codes<Codes, 4, kPair>
                                   : dot_codes<Codes, 3, kPair>;
    dots(pair, q_stride, rows, offset, count, Store::bytes(channels), scores + g * score_stride, score_stride,
         g ? kNothingAhead : ahead);
  }
}

template <class Store, int G>
static void accumulate_limbs(const float* weights, int64_t weight_stride, const char* const* rows, int64_t offset,
                             int64_t count, int channels, float* out, int64_t out_stride, const Ahead& ahead) {
  constexpr int kPair = G == 1 ? 1 : 2;
  for (int g = 0; g < G; g += kPair) {
    for (int64_t first = 0; first < count; first += WeightLimbs::kMostRows) {
      accumulate_codes<typename CodesOf<Store>::Codes, kPair>(
          weights + g * weight_stride + first, weight_stride, rows + first, offset,
          smaller(WeightLimbs::kMostRows, count - first), channels, Store::bytes(channels), out + g * out_stride,
          out_stride, g || first ? kNothingAhead : ahead);
    }
  }
}

template <class Store, bool Rounded>
static RowsProduct dot_limbs_for(int group) {
  if (group == 8) return dot_limbs<Store, Rounded, 8>;
  if (group == 4) return dot_limbs<Store, Rounded, 4>;
  return group == 2 ? dot_limbs<Store, Rounded, 2> : dot_limbs<Store, Rounded, 1>;
}

template <class Store>
static RowsProduct accumulate_limbs_for(int group) {
  if (group == 8) return accumulate_limbs<Store, 8>;
  if (group == 4) return accumulate_limbs<Store, 4>;
  return group == 2 ? accumulate_limbs<Store, 2> : accumulate_limbs<Store, 1>;
}

struct Products {
  static constexpr int kLeastRounded = kLine;

  // Rows of less than a line are multiplied as floats: a line of them would be zeros for the most part.
  static bool in_limbs(const Cache& cache, int channels) {
    return (cache.element == Element::i8 && StoreI8::bytes(channels) >= kLine) ||
           (cache.element == Element::i4 && StoreI4::bytes(channels) >= kLine);
  }

  // What a prepared query takes behind its floats.
  static int64_t query_floats(const AttentionProblem& problem) {
    const int channels = problem.head_size;
    if (!in_limbs(problem.key, channels)) return 0;
    return problem.key.element == Element::i8 ? QueryLimbs::floats<CodesI8>(StoreI8::bytes(channels))
                                              : QueryLimbs::floats<CodesI4>(StoreI4::bytes(channels));
  }

  static void prepare_query(const AttentionProblem& problem, float* q) {
    const int channels = problem.head_size, width = padded(channels);
    if (!in_limbs(problem.key, channels)) return;
    if (problem.key.element == Element::i8) {
      store_query_limbs<CodesI8>(q, width, StoreI8::bytes(channels), q + width);
    } else {
      store_query_limbs<CodesI4>(q, width, StoreI4::bytes(channels), q + width);
    }
  }

  static RowsProduct dots(const AttentionProblem& problem, int group) {
    if (!in_limbs(problem.key, problem.head_size)) return dot_rows_for(problem.key.element, group);
    if (problem.key.element == Element::i4) return dot_limbs_for<StoreI4, false>(group);
    return problem.int8_query ? dot_limbs_for<StoreI8, true>(group) : dot_limbs_for<StoreI8, false>(group);
  }

  static RowsProduct sums(const AttentionProblem& problem, int group) {
    if (!in_limbs(problem.value, problem.v_head_size)) return accumulate_rows_for(problem.value.element, group);
    return problem.value.element == Element::i4 ? accumulate_limbs_for<StoreI4>(group)
                                                : accumulate_limbs_for<StoreI8>(group);
  }
};
