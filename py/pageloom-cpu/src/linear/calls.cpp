#include "linear/calls.hpp"

#include <algorithm>
#include <cstring>

#include "core/scratch.hpp"
#include "linear/parallel.hpp"

namespace pageloom {

namespace {

// Floats that a thread works through in less time than another needs to join in.
constexpr int64_t kSmallWork = 16384;

int64_t rows_worth_sharing(int64_t width) { return std::max<int64_t>(1, kSmallWork / std::max<int64_t>(1, width)); }

}  // namespace

void EmbedCall::run() const {
  const Panels& panels = matrix->panels();
  const int64_t lanes = matrix->kernels().lanes, columns = panels.columns;
  // A whole panel is decoded for one row of it.
  parallel_ranges(count.get(), rows_worth_sharing(columns * lanes), [&](int64_t begin, int64_t end) {
    float* unpacked = task_scratch().floats(static_cast<size_t>(columns * lanes));
    for (int64_t t = begin; t < end; t++) {
      float* out = output.data + t * output.stride;
      if (ids[t] < 0 || ids[t] >= panels.rows) {
        std::fill(out, out + columns, 0.0f);
        continue;
      }
      matrix->kernels().unpack(panels, ids[t] / lanes, 0, columns, unpacked, lanes);
      for (int64_t c = 0; c < columns; c++) out[c] = unpacked[c * lanes + ids[t] % lanes] * scale;
    }
  });
}

void RmsNormCall::run() const {
  parallel_ranges(count.get(), rows_worth_sharing(problem.width), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      kernels->rms_norm(problem, input.data + t * input.stride, residual.data ? residual.data + t * residual.stride : nullptr,
                        output.data + t * output.stride);
    }
  });
}

void SelectRowsCall::run() const {
  for (int64_t row = 0; row < count.get(); row++) {
    float* out = output.data + row * output.stride;
    if (indices[row] < 0 || indices[row] >= input.rows) {
      std::fill(out, out + output.width, 0.0f);
    } else {
      std::copy_n(input.data + indices[row] * input.stride, output.width, out);
    }
  }
}

}  // namespace pageloom
