// Sums of weighted rows of codes: four rows at once, and no code is converted.
#pragma once

// Bytes of four rows side by side: lane l of quad i holds byte 16 * (l / 4) + 4 * i + l % 4 of each.
PAGELOOM_INLINE __m512i interleave(const __m512i (&rows)[4], int quad) {
  const __m512i a = quad < 2 ? _mm512_unpacklo_epi8(rows[0], rows[1]) : _mm512_unpackhi_epi8(rows[0], rows[1]);
  const __m512i b = quad < 2 ? _mm512_unpacklo_epi8(rows[2], rows[3]) : _mm512_unpackhi_epi8(rows[2], rows[3]);
  return quad % 2 ? _mm512_unpackhi_epi16(a, b) : _mm512_unpacklo_epi16(a, b);
}

// Weights x line `line` of all rows, for the quads [Quad, Quad + Quads): as many as there are registers for their sums.
template <class Codes, int G, int Quad, int Quads, bool Whole>
PAGELOOM_INLINE void weigh_quads(const WeightLimbs (&weights)[G], const char* const* rows, int64_t offset,
                                 int64_t count, int64_t line, int64_t bytes, const LinesAhead& ahead,
                                 Vec (&out)[G][Codes::kParts][4]) {
  Sums sums[Quads][Codes::kParts][G][kWeightLimbs];
#pragma GCC unroll 4
  for (int i = 0; i < Quads; i++) {
#pragma GCC unroll 2
    for (int part = 0; part < Codes::kParts; part++) {
#pragma GCC unroll 2
      for (int g = 0; g < G; g++) {
#pragma GCC unroll 3
        for (int limb = 0; limb < kWeightLimbs; limb++) {
          sums[i][part][g][limb] = Sums{} - Codes::kSignedBias * weights[g].sums[limb];
        }
      }
    }
  }
  auto add_rows = [&](const char* const* four, int64_t first) __attribute__((always_inline)) {
    const LinesAhead::Turn turn = ahead.turn((line * count + first) >> 3);
    const int first_quarter = static_cast<int>(first >> 1 & 2);
    const char* const* later = ahead.apart(first + 8, 4);
    __m512i lines[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
      if (later) __builtin_prefetch(later[r] + offset + line * kLine, 0, 3);
      lines[r] = load_line<Whole>(four[r] + offset, line, bytes);
    }
#pragma GCC unroll 4
    for (int pair = 0; pair < Quads; pair += 2) {
      // The weights are loaded again, instead of being kept in registers that the sums need.
      asm volatile("" ::: "memory");
      if (Quad + pair == 0) {
        turn.ask(first_quarter);
        turn.ask(first_quarter + 1);
      }
      __m512i codes[2][Codes::kParts];
#pragma GCC unroll 2
      for (int i = 0; i < 2; i++) {
        const __m512i quad = interleave(lines, Quad + pair + i);
#pragma GCC unroll 2
        for (int part = 0; part < Codes::kParts; part++) codes[i][part] = Codes::signed_part(quad, part);
      }
#pragma GCC unroll 2
      for (int g = 0; g < G; g++) {
#pragma GCC unroll 3
        for (int limb = 0; limb < kWeightLimbs; limb++) {
          const __m512i weight = weights[g].four(first, limb);
#pragma GCC unroll 2
          for (int i = 0; i < 2; i++) {
#pragma GCC unroll 2
            for (int part = 0; part < Codes::kParts; part++) {
              Sums& sum = sums[pair + i][part][g][limb];
              sum = dot_bytes(sum, weight, codes[i][part]);
            }
          }
        }
      }
    }
  };
  int64_t first = 0;
  for (; first + 8 <= count; first += 8) {
    add_rows(rows + first, first);
    add_rows(rows + first + 4, first + 4);
  }
  for (; first < count; first += 4) add_rows(LastRows<4>(rows, first, count).rows, first);
#pragma GCC unroll 4
  for (int i = 0; i < Quads; i++) {
#pragma GCC unroll 2
    for (int part = 0; part < Codes::kParts; part++) {
#pragma GCC unroll 2
      for (int g = 0; g < G; g++) out[g][part][Quad + i] = join_limbs(sums[i][part][g]);
    }
  }
}

// out[channels of a line] += scale * the quads of one part.
template <class Codes>
PAGELOOM_INLINE void add_quads(const Vec (&quads)[4], float scale, int64_t line, int part, int width, float* out) {
  const __m512 a = _mm512_shuffle_f32x4(quads[0].v, quads[1].v, 0x44),
               b = _mm512_shuffle_f32x4(quads[2].v, quads[3].v, 0x44),
               c = _mm512_shuffle_f32x4(quads[0].v, quads[1].v, 0xEE),
               d = _mm512_shuffle_f32x4(quads[2].v, quads[3].v, 0xEE);
  const Vec channels[4] = {{_mm512_shuffle_f32x4(a, b, 0x88)},
                           {_mm512_shuffle_f32x4(a, b, 0xDD)},
                           {_mm512_shuffle_f32x4(c, d, 0x88)},
                           {_mm512_shuffle_f32x4(c, d, 0xDD)}};
  for (int i = 0; i < 4; i++) {
    const int64_t place = Codes::unit_order(part, line * kLine + i * kLanes);
    if (place < width) store(out + place, fma(channels[i], set(scale), load(out + place)));
  }
}

template <class Codes, int G, bool Whole>
static void accumulate_line(const WeightLimbs (&limbs)[G], const char* const* rows, int64_t offset, int64_t count,
                            int64_t line, int64_t bytes, int width, float* out, int64_t out_stride,
                            const LinesAhead& ahead) {
  Vec sums[G][Codes::kParts][4];
  if constexpr (G * Codes::kParts <= 2) {
    weigh_quads<Codes, G, 0, 4, Whole>(limbs, rows, offset, count, line, bytes, ahead, sums);
  } else {
    weigh_quads<Codes, G, 0, 2, Whole>(limbs, rows, offset, count, line, bytes, ahead, sums);
    weigh_quads<Codes, G, 2, 2, Whole>(limbs, rows, offset, count, line, bytes, ahead, sums);
  }
  for (int g = 0; g < G; g++) {
    for (int part = 0; part < Codes::kParts; part++) {
      add_quads<Codes>(sums[g][part], limbs[g].step, line, part, width, out + g * out_stride);
    }
  }
}

// out[g * out_stride ...] += sum over rows r of weights[g * weight_stride + r] * row r, in unit order, for at most
// WeightLimbs::kMostRows rows.
template <class Codes, int G>
static void accumulate_codes(const float* weights, int64_t weight_stride, const char* const* rows, int64_t offset,
                             int64_t count, int channels, int64_t bytes, float* out, int64_t out_stride,
                             const Ahead& ahead) {
  WeightLimbs limbs[G];
  for (int g = 0; g < G; g++) limbs[g].template set_to<Codes>(weights + g * weight_stride, count);
  const LinesAhead lines(ahead, rows, count);
  const int64_t whole = bytes / kLine;
  const int width = padded(channels);
  for (int64_t line = 0; line < whole; line++) {
    accumulate_line<Codes, G, true>(limbs, rows, offset, count, line, bytes, width, out, out_stride, lines);
  }
  if (bytes % kLine) {
    accumulate_line<Codes, G, false>(limbs, rows, offset, count, whole, bytes, width, out, out_stride, lines);
  }
}
