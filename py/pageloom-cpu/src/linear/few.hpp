// Products of a few tokens with panels that are decoded in registers: what a decode step does, bound by how fast the
// weights come from memory.
#pragma once

constexpr int kFewTokens = 4;
constexpr int kFewPanels = 2;  // independent sums hide the latency of a multiplication

// sums[p][t] += columns [8 * octet, 8 * octet + count) of block . x[t].
template <class F, int Count, int N, int Tokens>
PAGELOOM_INLINE void add_columns(const char* block, int64_t panel_bytes, int octet, int count, const Scales (&scales)[N],
                                 const float* x, int64_t stride, Vec (&sums)[N][Tokens]) {
#pragma GCC unroll 8
  for (int i = 0; i < (Count ? Count : count); i++) {
#pragma GCC unroll 2
    for (int p = 0; p < N; p++) {
      const Vec weight = F::column(block + p * panel_bytes, scales[p], octet, i);
#pragma GCC unroll 4
      for (int t = 0; t < Tokens; t++) sums[p][t] = fma(weight, set(x[t * stride + 8 * octet + i]), sums[p][t]);
    }
  }
}

// As long sums are made of parts in `multiply`, so that both give the same.
template <int N, int Tokens>
PAGELOOM_INLINE void add_part(Vec (&sums)[N][Tokens], Vec (&totals)[N][Tokens]) {
  for (int p = 0; p < N; p++) {
    for (int t = 0; t < Tokens; t++) {
      totals[p][t] = add(totals[p][t], sums[p][t]);
      sums[p][t] = zero();
    }
  }
}

template <class F, int N, int Tokens>
static void few_products(const char* panel, int64_t panel_bytes, int64_t columns, const float* x, int64_t stride,
                         float* out) {
  constexpr int kOctets = F::kGroup / 8;
  Vec sums[N][Tokens], totals[N][Tokens];
  for (int p = 0; p < N; p++) {
    for (int t = 0; t < Tokens; t++) sums[p][t] = totals[p][t] = zero();
  }
  int64_t done = 0;
  while (columns - done >= F::kColumns) {
    for (int group = 0; group < F::kColumns / F::kGroup; group++) {
      Scales scales[N];
      for (int p = 0; p < N; p++) scales[p] = F::scales(panel + p * panel_bytes, group);
      for (int octet = group * kOctets; octet < (group + 1) * kOctets; octet++) {
        add_columns<F, 8>(panel, panel_bytes, octet, 8, scales, x, stride, sums);
      }
      done += F::kGroup;
      if (done % kSumLength == 0) add_part(sums, totals);
    }
    x += F::kColumns;
    panel += F::kBytes * kLanes;
  }
  if (F::kColumns == 8 && done < columns) {  // floats alone have rows of any length
    const Scales none[N] = {};
    add_columns<F, 0>(panel, panel_bytes, 0, static_cast<int>(columns - done), none, x, stride, sums);
  }
  add_part(sums, totals);
  for (int p = 0; p < N; p++) {
    for (int t = 0; t < Tokens; t++) store(out + (t * N + p) * kLanes, totals[p][t]);
  }
}

template <class F, int N>
static void few_of_format(const Panels& matrix, const char* panel, const float* x, int64_t stride, int tokens, float* out) {
  switch (tokens) {
    case 1:
      return few_products<F, N, 1>(panel, matrix.panel_bytes, matrix.columns, x, stride, out);
    case 2:
      return few_products<F, N, 2>(panel, matrix.panel_bytes, matrix.columns, x, stride, out);
    case 3:
      return few_products<F, N, 3>(panel, matrix.panel_bytes, matrix.columns, x, stride, out);
    default:
      return few_products<F, N, 4>(panel, matrix.panel_bytes, matrix.columns, x, stride, out);
  }
}

static void few(const Panels& matrix, int64_t first_panel, int panels, const float* x, int64_t stride, int tokens,
                float* sums) {
  const char* panel = matrix.data + first_panel * matrix.panel_bytes;
  with_format(matrix.format, [&](auto format) {
    if (panels == 1) return few_of_format<decltype(format), 1>(matrix, panel, x, stride, tokens, sums);
    few_of_format<decltype(format), kFewPanels>(matrix, panel, x, stride, tokens, sums);
  });
}
