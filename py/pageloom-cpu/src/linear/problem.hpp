// Plain descriptions of the layers' work, shared by all levels, as core/problem.hpp is for attention.
#pragma once

#include "linear/formats.hpp"

namespace pageloom {

enum class Activation : uint8_t { silu, gelu_tanh };

// A matrix [rows, columns] as panels of `lanes` rows, the last one filled up with zeros.
struct Panels {
  const char* data = nullptr;
  Format format = Format::f32;
  int64_t rows = 0, columns = 0, panel_bytes = 0;
};

// Where sums go: sums are [tokens][panels][lanes], of the rows of a matrix from `first_row` on, which `rows` ends.
struct SumsShape {
  int64_t tokens, first_row, rows;
  int panels;
};

// output[t][row] = softcap(sum + bias[row]) + residual[t][row]; strides in floats; bias and residual may be nullptr.
struct LinearOutput {
  float* data = nullptr;
  int64_t stride = 0;
  const float* bias = nullptr;
  const float* residual = nullptr;
  int64_t residual_stride = 0;
  float softcap = 0;  // 0 is off
};

struct RmsNormProblem {
  const float* weight = nullptr;
  int64_t width = 0;
  float epsilon = 0;
};

// The kernels of one level. A product adds the columns in the same order whichever kernel computes it: a row of the result
// does not depend on how many others there are.
struct LinearKernels {
  int lanes;
  int few_tokens, few_panels;  // the most that `few` takes
  int tile_tokens;             // `multiply` works on multiples of this
  // sums of x[t] . row for `tokens` rows of x, `stride` floats apart, with `panels` panels decoded in registers.
  void (*few)(const Panels& matrix, int64_t first_panel, int panels, const float* x, int64_t stride, int tokens, float* sums);
  // Columns [begin, end) of a panel as floats: out[(column - begin) * stride + lane]. `begin` is a multiple of 256.
  void (*unpack)(const Panels& matrix, int64_t panel, int64_t begin, int64_t end, float* out, int64_t stride);
  // sums (+)= x . weights for 1 or 2 unpacked panels: weights[column][panels][lanes].
  void (*multiply)(int panels, int64_t tokens, int64_t columns, const float* x, int64_t stride, const float* weights,
                   float* sums, bool accumulate);
  void (*store)(const float* sums, const SumsShape& shape, const LinearOutput& output);
  // output[t][row] = activation(gate) * up.
  void (*store_gated)(const float* gate, const float* up, const SumsShape& shape, Activation activation, float* output,
                      int64_t stride);
  // out = x / sqrt(mean(x^2) + epsilon) * weight (+ residual).
  void (*rms_norm)(const RmsNormProblem& problem, const float* x, const float* residual, float* out);
  // log(sum(e^x)), NaN where any x is NaN or infinite; `largest` is set.
  float (*log_sum_exp)(const float* x, int64_t count, float* largest);
  // The first index from `begin` on whose x is greater than `threshold`; `count` where there is none.
  int64_t (*next_above)(const float* x, int64_t begin, int64_t count, float threshold);
};

}  // namespace pageloom
