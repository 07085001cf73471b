// Q.K of rows of codes: four channels at once, and no code is converted.
#pragma once

// Sixteen bytes of each row side by side: the i-th sixteen of all four in rows[i].
PAGELOOM_INLINE void transpose_sixteens(__m512i (&rows)[4]) {
  const __m512i a = _mm512_shuffle_i32x4(rows[0], rows[1], 0x44), b = _mm512_shuffle_i32x4(rows[2], rows[3], 0x44),
                c = _mm512_shuffle_i32x4(rows[0], rows[1], 0xEE), d = _mm512_shuffle_i32x4(rows[2], rows[3], 0xEE);
  rows[0] = _mm512_shuffle_i32x4(a, b, 0x88);
  rows[1] = _mm512_shuffle_i32x4(a, b, 0xDD);
  rows[2] = _mm512_shuffle_i32x4(c, d, 0x88);
  rows[3] = _mm512_shuffle_i32x4(c, d, 0xDD);
}

// Lane 4 * l + i of the result is the sum of lanes 4 * l .. 4 * l + 3 of quads[i].
PAGELOOM_INLINE Vec sum_quads(const Vec (&quads)[4]) {
  __m512d pairs[2];
  for (int i = 0; i < 2; i++) {
    const __m512 a = quads[2 * i].v, b = quads[2 * i + 1].v;
    pairs[i] = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
  }
  return {_mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(pairs[0], pairs[1])),
                        _mm512_castpd_ps(_mm512_unpackhi_pd(pairs[0], pairs[1])))};
}

// sums[i][g][limb] += limb of q[g] x line `line` of rows i, 4 + i, 8 + i and 12 + i for two of these i. Sixteen bytes
// of each row lie side by side in a vector, so that the four lanes of a row are summed at the end.
template <class Codes, int Limbs, int G, bool Whole>
PAGELOOM_INLINE void dot_line(const QueryLimbs (&queries)[G], const char* const* rows, int64_t offset, int64_t line,
                              int64_t bytes, const LinesAhead::Turn& turn, const char* const* later,
                              Sums (&sums)[2][G][Limbs]) {
  // The addresses are loaded again, instead of being kept in registers of which there are too few.
  asm volatile("" ::: "memory");
  __m512i lines[2][4];
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) lines[i][r] = load_line<Whole>(rows[4 * r + i] + offset, line, bytes);
    transpose_sixteens(lines[i]);
  }
#pragma GCC unroll 4
  for (int sixteen = 0; sixteen < 4; sixteen++) {
    turn.ask(sixteen);
    if (later) {
      __builtin_prefetch(later[4 * sixteen] + offset + line * kLine, 0, 3);
      __builtin_prefetch(later[4 * sixteen + 1] + offset + line * kLine, 0, 3);
    }
#pragma GCC unroll 2
    for (int part = 0; part < Codes::kParts; part++) {
      const __m512i codes[2] = {Codes::unsigned_part(lines[0][sixteen], part),
                                Codes::unsigned_part(lines[1][sixteen], part)};
#pragma GCC unroll 2
      for (int g = 0; g < G; g++) {
#pragma GCC unroll 4
        for (int limb = 0; limb < Limbs; limb++) {
          const __m512i query =
              queries[g].sixteen((line * 4 + sixteen) * Codes::kParts + part, kQueryLimbs - Limbs + limb);
#pragma GCC unroll 2
          for (int i = 0; i < 2; i++) sums[i][g][limb] = dot_bytes(sums[i][g][limb], codes[i], query);
        }
      }
    }
  }
}

// quads[g][i] and quads[g][i + 1]: the lanes of rows i, i + 4, ..., each four of which are to be summed.
template <class Codes, int Limbs, int G>
PAGELOOM_INLINE void dot_eight(const QueryLimbs (&queries)[G], const char* const* rows, int64_t offset, int64_t bytes,
                               const LinesAhead& ahead, int64_t first, int i, Vec (&quads)[G][4]) {
  Sums sums[2][G][Limbs];
#pragma GCC unroll 2
  for (int g = 0; g < G; g++) {
#pragma GCC unroll 4
    for (int limb = 0; limb < Limbs; limb++)
      sums[0][g][limb] = sums[1][g][limb] = queries[g].start(kQueryLimbs - Limbs + limb);
  }
  const int64_t whole = bytes / kLine, asked = (first / kStreams + i / 2) * lines_of(bytes);
  const char* const* later = ahead.apart(first + kLanes + i, kLanes - i);
  for (int64_t line = 0; line < whole; line++) {
    dot_line<Codes, Limbs, G, true>(queries, rows + i, offset, line, bytes, ahead.turn(asked + line), later, sums);
  }
  if (bytes % kLine)
    dot_line<Codes, Limbs, G, false>(queries, rows + i, offset, whole, bytes, ahead.turn(asked + whole), later, sums);
#pragma GCC unroll 2
  for (int g = 0; g < G; g++) {
    quads[g][i] = join_limbs(sums[0][g]);
    quads[g][i + 1] = join_limbs(sums[1][g]);
  }
}

// scores[g * score_stride + r] = q[g] . row r for `count` rows of `bytes` bytes, by the highest limbs of what
// store_query_limbs stored.
template <class Codes, int Limbs, int G>
static void dot_codes(const float* q, int64_t q_stride, const char* const* rows, int64_t offset, int64_t count,
                      int64_t bytes, float* scores, int64_t score_stride, const Ahead& ahead) {
  QueryLimbs queries[G];
  for (int g = 0; g < G; g++) queries[g] = {q + g * q_stride};
  constexpr auto kScale = static_cast<float>(1 << 8 * (kQueryLimbs - Limbs));
  const LinesAhead lines(ahead, rows, count);
  auto sixteen = [&](const char* const* some, int64_t first, int valid) {
    Vec quads[G][4];
    dot_eight<Codes, Limbs, G>(queries, some, offset, bytes, lines, first, 0, quads);
    dot_eight<Codes, Limbs, G>(queries, some, offset, bytes, lines, first, 2, quads);
    for (int g = 0; g < G; g++) {
      const Vec scaled = mul(sum_quads(quads[g]), set(queries[g].step() * kScale));
      store_first(scores + g * score_stride + first, scaled, valid);
    }
  };
  int64_t first = 0;
  for (; first + kLanes <= count; first += kLanes) sixteen(rows + first, first, kLanes);
  if (first < count) sixteen(LastRows<kLanes>(rows, first, count).rows, first, static_cast<int>(count - first));
}
