// The products of a level that multiplies codes as floats.
#pragma once

#include "kernels/channels.hpp"
#include "kernels/math.hpp"
#include "kernels/products.hpp"

struct Products {
  static constexpr int kLeastRounded = 0;
  static int64_t query_floats(const AttentionProblem&) { return 0; }
  static void prepare_query(const AttentionProblem&, float*) {}
  static RowsProduct dots(const AttentionProblem& problem, int group) {
    return dot_rows_for(problem.key.element, group);
  }
  static RowsProduct sums(const AttentionProblem& problem, int group) {
    return accumulate_rows_for(problem.value.element, group);
  }
};
