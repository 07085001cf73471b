// Products of many tokens: panels are decoded to floats once, and a register tile multiplies them with all tokens.
#pragma once

template <class F>
static void unpack_columns(const char* block, int64_t columns, float* out, int64_t stride) {
  constexpr int kOctets = F::kGroup / 8;
  int64_t left = columns;
  for (; left >= F::kColumns; left -= F::kColumns, block += F::kBytes * kLanes) {
    for (int group = 0; group < F::kColumns / F::kGroup; group++) {
      const Scales scales = F::scales(block, group);
      for (int octet = group * kOctets; octet < (group + 1) * kOctets; octet++) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++, out += stride) store(out, F::column(block, scales, octet, i));
      }
    }
  }
  for (int i = 0; i < left; i++, out += stride) store(out, F::column(block, Scales{}, 0, i));
}

static void unpack(const Panels& matrix, int64_t panel, int64_t begin, int64_t end, float* out, int64_t stride) {
  const char* data = matrix.data + panel * matrix.panel_bytes;
  with_format(matrix.format, [&](auto format) {
    using F = decltype(format);
    unpack_columns<F>(data + begin / F::kColumns * F::kBytes * kLanes, end - begin, out, stride);
  });
}

template <int N>
static void multiply_panels(int64_t tokens, int64_t columns, const float* x, int64_t stride, const float* weights,
                            float* sums, bool accumulate) {
  if (accumulate) return multiply<kTileRows, N, false, true>(tokens, columns, x, stride, weights, sums);
  multiply<kTileRows, N, false, false>(tokens, columns, x, stride, weights, sums);
}

static void multiply_unpacked(int panels, int64_t tokens, int64_t columns, const float* x, int64_t stride,
                              const float* weights, float* sums, bool accumulate) {
  if (panels == 2) return multiply_panels<2>(tokens, columns, x, stride, weights, sums, accumulate);
  multiply_panels<1>(tokens, columns, x, stride, weights, sums, accumulate);
}
