// Products of a few tokens with panels that are decoded in registers: what a decode step does, bound by how fast the
// weights come from memory.
#pragma once

constexpr int kFewPanels = 2;  // independent sums hide the latency of a multiplication
constexpr int kFewTokens = kTileRows >= 12 ? 8 : 4;  // as many sums as there are registers for

// sums[p][t] += columns [8 * octet, 8 * octet + count) of block . x[t][column...].
template <class F, int Count, int N, int Tokens>
PAGELOOM_INLINE void add_columns(const char* block, int64_t panel_bytes, int octet, int count, const Scales (&scales)[N],
                                 const float* const (&x)[Tokens], int64_t column, Vec (&sums)[N][Tokens]) {
#pragma GCC unroll 8
  for (int i = 0; i < (Count ? Count : count); i++) {
#pragma GCC unroll 2
    for (int p = 0; p < N; p++) {
      const Vec weight = F::column(block + p * panel_bytes, scales[p], octet, i);
#pragma GCC unroll 8
      for (int t = 0; t < Tokens; t++) sums[p][t] = fma(weight, set(x[t][column + i]), sums[p][t]);
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

// `tokens` of the `Tokens` that there is code for; the others repeat the last one and are not stored.
template <class F, int N, int Tokens>
static void few_products(const Panels& matrix, const char* panel, const float* x, int64_t stride, int tokens, float* out) {
  constexpr int kOctets = F::kGroup / 8;
  const float* rows[Tokens];
  for (int t = 0; t < Tokens; t++) rows[t] = x + (t < tokens ? t : tokens - 1) * stride;
  Vec sums[N][Tokens], totals[N][Tokens];
  for (int p = 0; p < N; p++) {
    for (int t = 0; t < Tokens; t++) sums[p][t] = totals[p][t] = zero();
  }
  int64_t column = 0;
  while (matrix.columns - column >= F::kColumns) {
    for (int group = 0; group < F::kColumns / F::kGroup; group++) {
      Scales scales[N];
      for (int p = 0; p < N; p++) scales[p] = F::scales(panel + p * matrix.panel_bytes, group);
      for (int octet = group * kOctets; octet < (group + 1) * kOctets; octet++, column += 8) {
        add_columns<F, 8>(panel, matrix.panel_bytes, octet, 8, scales, rows, column, sums);
      }
      if (column % kSumLength == 0) add_part(sums, totals);
    }
    panel += F::kBytes * kLanes;
  }
  if (F::kColumns == 8 && column < matrix.columns) {  // floats alone have rows of any length
    const Scales none[N] = {};
    const int rest = static_cast<int>(matrix.columns - column);
    add_columns<F, 0>(panel, matrix.panel_bytes, 0, rest, none, rows, column, sums);
  }
  add_part(sums, totals);
  for (int p = 0; p < N; p++) {
    for (int t = 0; t < tokens; t++) store(out + (t * N + p) * kLanes, totals[p][t]);
  }
}

template <class F, int N>
static void few_of_format(const Panels& matrix, const char* panel, const float* x, int64_t stride, int tokens, float* out) {
  if (tokens == 1) return few_products<F, N, 1>(matrix, panel, x, stride, tokens, out);
  if (tokens == 2) return few_products<F, N, 2>(matrix, panel, x, stride, tokens, out);
  if (tokens <= 4) return few_products<F, N, 4>(matrix, panel, x, stride, tokens, out);
  few_products<F, N, kFewTokens>(matrix, panel, x, stride, tokens, out);
}

static void few(const Panels& matrix, int64_t first_panel, int panels, const float* x, int64_t stride, int tokens,
                float* sums) {
  const char* panel = matrix.data + first_panel * matrix.panel_bytes;
  with_format(matrix.format, [&](auto format) {
    if (panels == 1) return few_of_format<decltype(format), 1>(matrix, panel, x, stride, tokens, sums);
    few_of_format<decltype(format), kFewPanels>(matrix, panel, x, stride, tokens, sums);
  });
}
