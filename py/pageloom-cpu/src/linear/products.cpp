// How a product is shared: which rows of the matrix and of the activations a task takes, and through which kernel.
#include <algorithm>

#include "core/levels.hpp"
#include "core/scratch.hpp"
#include "linear/calls.hpp"
#include "linear/parallel.hpp"

namespace pageloom {

namespace {

constexpr int64_t kPanelsUnpacked = 2;
constexpr int64_t kMostTokens = 192;
constexpr int64_t kColumnStep = 256;  // the longest block of a format

int64_t l2_floats() {
  static const int64_t floats = cache_sizes().l2 / static_cast<int64_t>(sizeof(float));
  return floats;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Half of L2 for the activations of a task, a quarter for the weights that it has unpacked.
int64_t tokens_at_once(const LinearKernels& kernels, int64_t columns) {
  const int64_t fitting = l2_floats() / 2 / columns / kernels.tile_tokens * kernels.tile_tokens;
  return std::clamp<int64_t>(fitting, kernels.tile_tokens, kMostTokens / kernels.tile_tokens * kernels.tile_tokens);
}

int64_t columns_at_once(const LinearKernels& kernels, int64_t columns) {
  const int64_t fitting = l2_floats() / 4 / (kPanelsUnpacked * kernels.lanes) / kColumnStep * kColumnStep;
  return std::min(columns, std::max(fitting, kColumnStep));
}

// `panels` panels of a matrix times rows of activations.
struct Product {
  const Matrix& matrix;
  int64_t first_panel;
  int panels;
  const float* input;
  int64_t stride, tokens;

  int64_t sums_size() const { return tokens * panels * matrix.kernels().lanes; }

  bool is_few() const { return tokens <= matrix.kernels().few_tokens; }

  int64_t weights_size() const {
    const LinearKernels& kernels = matrix.kernels();
    return is_few() ? 0 : columns_at_once(kernels, matrix.panels().columns) * panels * kernels.lanes;
  }

  SumsShape shape() const { return {tokens, first_panel * matrix.kernels().lanes, matrix.panels().rows, panels}; }

  void run(float* weights, float* sums) const {
    const LinearKernels& kernels = matrix.kernels();
    const Panels& data = matrix.panels();
    if (is_few()) {
      return kernels.few(data, first_panel, panels, input, stride, static_cast<int>(tokens), sums);
    }
    const int64_t step = columns_at_once(kernels, data.columns);
    for (int64_t begin = 0; begin < data.columns; begin += step) {
      const int64_t end = std::min(data.columns, begin + step);
      for (int p = 0; p < panels; p++) {
        kernels.unpack(data, first_panel + p, begin, end, weights + p * kernels.lanes, panels * kernels.lanes);
      }
      kernels.multiply(panels, tokens, end - begin, input + begin, stride, weights, sums, begin > 0);
    }
  }
};

// Calls body(first panel, panels, first token, tokens) for pieces of [panels] x [tokens], shared between the threads.
// All pieces of some tokens come before those of the next, which find their activations in the cache.
template <class Body>
void for_pieces(const LinearKernels& kernels, int64_t columns, int64_t panels, int64_t tokens, const Body& body) {
  const int at_once = tokens <= kernels.few_tokens ? kernels.few_panels : kPanelsUnpacked;
  const int64_t groups = ceil_div(panels, at_once), step = std::min(tokens, tokens_at_once(kernels, columns));
  for (int64_t first = 0; first < tokens; first += step) {
    parallel_ranges(groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; group++) {
        const int64_t panel = group * at_once;
        body(panel, static_cast<int>(std::min<int64_t>(at_once, panels - panel)), first, std::min(step, tokens - first));
      }
    });
  }
}

}  // namespace

void LinearCall::run() const {
  const int64_t tokens = count.get();
  for (const Part& part : parts) {
    const Matrix& matrix = *part.matrix;
    for_pieces(matrix.kernels(), matrix.panels().columns, matrix.num_panels(), tokens,
               [&](int64_t panel, int panels, int64_t first, int64_t some) {
                 const Product product = {matrix, panel, panels, input.data + first * input.stride, input.stride, some};
                 float* sums = task_scratch().floats(static_cast<size_t>(product.sums_size() + product.weights_size()));
                 product.run(sums + product.sums_size(), sums);
                 LinearOutput output = part.output;
                 output.data += first * output.stride;
                 if (output.residual) output.residual += first * output.residual_stride;
                 matrix.kernels().store(sums, product.shape(), output);
               });
  }
}

void GatedLinearCall::run() const {
  const LinearKernels& kernels = gate->kernels();
  for_pieces(kernels, gate->panels().columns, gate->num_panels(), count.get(),
             [&](int64_t panel, int panels, int64_t first, int64_t some) {
               const float* from = input.data + first * input.stride;
               const Product gating = {*gate, panel, panels, from, input.stride, some};
               const Product raising = {*up, panel, panels, from, input.stride, some};
               const int64_t size = gating.sums_size();
               float* sums = task_scratch().floats(static_cast<size_t>(2 * size + gating.weights_size()));
               gating.run(sums + 2 * size, sums);
               raising.run(sums + 2 * size, sums + size);
               kernels.store_gated(sums, sums + size, gating.shape(), activation, output.data + first * output.stride,
                                   output.stride);
             });
}

}  // namespace pageloom
