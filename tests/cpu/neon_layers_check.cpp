// Holds the layer kernels of NEON to the scalar ones, for every format and for few and many tokens.
#include <cmath>
#include <cstdio>
#include <iterator>
#include <random>
#include <vector>

#include "linear/packing.hpp"
#include "linear/problem.hpp"

namespace pageloom {
namespace scalar {
extern const LinearKernels linear_kernels;
}
namespace neon {
extern const LinearKernels linear_kernels;
}
}  // namespace pageloom

using namespace pageloom;

namespace {

constexpr int kRows = 8, kTokens = 29;

std::mt19937 generator(7);

float normal() { return std::normal_distribution<float>()(generator); }

// Rows of any codes, with small scales: an f16 of 0x1400 to 0x17ff is about 0.001 to 0.002.
std::vector<char> random_row(Format format, int64_t columns) {
  const BlockSize& size = block_size(format);
  std::vector<char> row(static_cast<size_t>(columns / size.columns * size.source_bytes));
  for (char& byte : row) byte = static_cast<char>(generator());
  for (size_t block = 0; block < row.size(); block += static_cast<size_t>(size.source_bytes)) {
    if (format == Format::f32) row[block + 3] = 0x3c;
    if (format == Format::q6_k) row[block + 209] = 0x14;
    if (format != Format::f32 && format != Format::q6_k) row[block + 1] = format == Format::bf16 ? 0x3c : 0x14;
    const bool minimum = format == Format::q4_1 || format == Format::q5_1 || format == Format::q4_k || format == Format::q5_k;
    if (minimum) row[block + 3] = 0x14;
  }
  return row;
}

struct Packed {
  const LinearKernels& kernels;
  std::vector<char> data;
  Panels panels;

  Packed(const LinearKernels& level, Format format, int64_t columns, const std::vector<std::vector<char>>& rows)
      : kernels(level) {
    const BlockSize& size = block_size(format);
    panels.format = format;
    panels.rows = kRows;
    panels.columns = columns;
    panels.panel_bytes = columns / size.columns * size.packed_bytes * kernels.lanes;
    data.resize(static_cast<size_t>(panels.panel_bytes * kRows / kernels.lanes));
    panels.data = data.data();
    for (int row = 0; row < kRows; row++) {
      pack_row(format, rows[static_cast<size_t>(row)].data(), columns, kernels.lanes, row % kernels.lanes,
               data.data() + row / kernels.lanes * panels.panel_bytes);
    }
  }

  // [tokens][kRows] sums, then what is stored of them with a gate of themselves.
  std::vector<float> product(const std::vector<float>& x, int tokens) const {
    const int64_t columns = panels.columns;
    std::vector<float> output(static_cast<size_t>(2 * tokens * kRows));
    for (int panel = 0; panel < kRows / kernels.lanes; panel++) {
      std::vector<float> sums(static_cast<size_t>(tokens * kernels.lanes));
      std::vector<float> weights(static_cast<size_t>(columns * kernels.lanes));
      if (tokens <= kernels.few_tokens) {
        kernels.few(panels, panel, 1, x.data(), columns, tokens, sums.data());
      } else {
        kernels.unpack(panels, panel, 0, columns, weights.data(), kernels.lanes);
        kernels.multiply(1, tokens, columns, x.data(), columns, weights.data(), sums.data(), false);
      }
      const SumsShape shape = {tokens, panel * kernels.lanes, kRows, 1};
      LinearOutput linear;
      linear.data = output.data();
      linear.stride = kRows;
      kernels.store(sums.data(), shape, linear);
      kernels.store_gated(sums.data(), sums.data(), shape, Activation::silu, output.data() + tokens * kRows, kRows);
    }
    return output;
  }
};

bool agree(const char* what, const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); i++) {
    if (std::fabs(a[i] - b[i]) <= 1e-4f * (1 + std::fabs(b[i]))) continue;
    std::printf("%s: element %zu is %g, and %g on the scalar level\n", what, i, a[i], b[i]);
    return false;
  }
  return true;
}

bool check_format(Format format) {
  const int64_t columns = block_size(format).columns == 1 ? 77 : 256;
  std::vector<std::vector<char>> rows;
  for (int row = 0; row < kRows; row++) rows.push_back(random_row(format, columns));
  const Packed neon(neon::linear_kernels, format, columns, rows), scalar(scalar::linear_kernels, format, columns, rows);
  std::vector<float> x(static_cast<size_t>(kTokens * columns));
  for (float& value : x) value = normal();
  bool good = true;
  for (int tokens : {1, 3, 8, kTokens}) {
    good &= agree(block_size(format).name, neon.product(x, tokens), scalar.product(x, tokens));
  }
  return good;
}

bool check_rows() {
  std::vector<float> x(1003), gain(1003), neon_out(1003), scalar_out(1003);
  for (float& value : x) value = normal();
  for (float& value : gain) value = normal();
  const RmsNormProblem norm = {gain.data(), 1003, 1e-5f};
  neon::linear_kernels.rms_norm(norm, x.data(), x.data(), neon_out.data());
  scalar::linear_kernels.rms_norm(norm, x.data(), x.data(), scalar_out.data());
  bool good = agree("rms_norm", neon_out, scalar_out);
  float neon_largest, scalar_largest;
  const float a = neon::linear_kernels.log_sum_exp(x.data(), 1003, &neon_largest);
  const float b = scalar::linear_kernels.log_sum_exp(x.data(), 1003, &scalar_largest);
  good &= agree("log_sum_exp", {a, neon_largest}, {b, scalar_largest});
  for (int64_t begin = 0; begin < 1003; begin += 7) {
    const int64_t found = neon::linear_kernels.next_above(x.data(), begin, 1003, 2);
    good &= found == scalar::linear_kernels.next_above(x.data(), begin, 1003, 2);
  }
  return good;
}

}  // namespace

int main() {
  bool good = check_rows();
  for (size_t i = 0; i < std::size(kBlockSizes); i++) good &= check_format(static_cast<Format>(i));
  return good ? 0 : 1;
}
