// Register-tiled products of a few rows with a panel whose lanes are query rows.
#pragma once

// c[i] (+)= sum over k of a(i, k) * b[k], where b[k] and c[i] are N vectors that follow each other, and a(i, k) is
// a[i * stride + k], or a[k * stride + i] if `Transposed`. M rows of c at once.
template <int M, int N, bool Transposed, bool Accumulate>
static void multiply_tile(int64_t depth, const float* a, int64_t stride, const float* b, float* c) {
  Vec sums[M][N];
#pragma GCC unroll 12
  for (int i = 0; i < M; i++) {
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) sums[i][n] = zero();
  }
  const int64_t row = Transposed ? 1 : stride, step = Transposed ? stride : 1;
  for (int64_t k = 0; k < depth; k++) {
    Vec column[N];
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) column[n] = load(b + (k * N + n) * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < M; i++) {
      const Vec x = set(a[i * row]);
#pragma GCC unroll 2
      for (int n = 0; n < N; n++) sums[i][n] = fma(x, column[n], sums[i][n]);
    }
    a += step;
  }
#pragma GCC unroll 12
  for (int i = 0; i < M; i++) {
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) {
      float* place = c + (i * N + n) * kLanes;
      store(place, Accumulate ? add(load(place), sums[i][n]) : sums[i][n]);
    }
  }
}

// A sum of n terms one after the other is off by about n roundings: long sums are made of parts this long.
constexpr int64_t kSumLength = 64;

struct Nothing {
  void operator()() const {}
};

// `rows` rows of c in tiles of M, the rest in smaller ones; `meanwhile` is called after each tile.
template <int M, int N, bool Transposed, bool Accumulate, class Meanwhile = Nothing>
static void multiply(int64_t rows, int64_t depth, const float* a, int64_t stride, const float* b, float* c,
                     Meanwhile meanwhile = {}) {
  const int64_t row = Transposed ? 1 : stride, step = Transposed ? stride : 1;
  int64_t i = 0;
  for (; i + M <= rows; i += M) {
    const float* tile = a + i * row;
    float* out = c + i * N * kLanes;
    int64_t part = depth < kSumLength ? depth : kSumLength;
    multiply_tile<M, N, Transposed, Accumulate>(part, tile, stride, b, out);
    for (int64_t k = part; k < depth; k += part) {
      part = depth - k < kSumLength ? depth - k : kSumLength;
      multiply_tile<M, N, Transposed, true>(part, tile + k * step, stride, b + k * N * kLanes, out);
    }
    meanwhile();
  }
  if constexpr (M > 1) {
    if (i < rows) {
      multiply<(M > 8   ? 8
                : M > 4 ? 4
                        : M / 2),
               N, Transposed, Accumulate>(rows - i, depth, a + i * row, stride, b, c + i * N * kLanes, meanwhile);
    }
  }
}
