// The operands of AMX products: codes of K and V as they are, and Q and the weights of the softmax as whole numbers of
// `Limbs` bytes, in units of their own row, one byte (limb) at a time. Products and their sums are exact.
//
// Of three limbs, a channel of Q is off by at most 2^-23 of the largest of its row, an ulp of that channel, and a
// weight by 2^-24 of the largest of its row and block, half an ulp of it: no more than float32 loses to roundings of
// the sum that this largest one is part of.
#pragma once

constexpr int kAmxVectors = 2;

PAGELOOM_INLINE int64_t round_up(int64_t a, int64_t unit) { return (a + unit - 1) / unit * unit; }

// Bytes of the tiles [limb][vector] that hold 64 channels or keys of a panel; the highest limb comes first.
template <int Limbs>
constexpr int64_t kLimbBytes = Limbs * kAmxVectors * kTileBytes;

// Row `row` of the tiles [limb] of a vector: the bytes of four vectors of whole numbers, side by side in each lane.
template <int Limbs>
PAGELOOM_INLINE void store_limbs(const __m512i (&x)[4], int64_t row, char* tiles) {
  const __m512i first = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0x00000000);
#pragma GCC unroll 3
  for (int byte = 0; byte < Limbs; byte++) {
    const __m512i place = _mm512_add_epi8(first, _mm512_set1_epi8(static_cast<char>(byte)));
    __m512i limb = _mm512_shuffle_epi8(x[0], place);
#pragma GCC unroll 3
    for (int i = 1; i < 4; i++) {
      limb = _mm512_mask_shuffle_epi8(limb, 0x1111111111111111u << i, x[i], place);
    }
    _mm512_storeu_si512(tiles + (Limbs - 1 - byte) * kAmxVectors * kTileBytes + row * kTileRowBytes, limb);
  }
}

// Q of a panel, [channels][lanes], as tiles [channels / 64][limb][vector], zeros behind the last channel; `units` takes
// each lane's unit. Returns whether it could: not where Q is not finite, or so large that sums might not be.
template <int Limbs>
static bool limbs_of_queries(const float* queries, int64_t channels, char* tiles, float* units) {
  constexpr int kBits = 8 * Limbs - 2;  // below the sign and the leading bit
  const __m512i size_bits = _mm512_set1_epi32(0x7fffffff), too_large = _mm512_castps_si512(_mm512_set1_ps(0x1p100f));
  bool fit = true;
  for (int n = 0; n < kAmxVectors; n++) {
    const float* lanes = queries + n * kLanes;
    auto bits = [&](int64_t c) { return _mm512_loadu_si512(lanes + c * kAmxVectors * kLanes); };
    __m512i top = _mm512_setzero_si512();
    for (int64_t c = 0; c < channels; c++) top = _mm512_max_epi32(top, _mm512_and_si512(bits(c), size_bits));
    fit &= _mm512_cmpge_epi32_mask(top, too_large) == 0;
    // Powers of two, with exponents that keep the unit and its inverse normal.
    const __m512i exponent = _mm512_max_epi32(_mm512_srli_epi32(top, 23), _mm512_set1_epi32(kBits + 1));
    const __m512i unit = _mm512_sub_epi32(exponent, _mm512_set1_epi32(kBits));
    const __m512 inverse = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(254), unit), 23));
    _mm512_storeu_si512(units + n * kLanes, _mm512_slli_epi32(unit, 23));
    for (int64_t c = 0; c < round_up(channels, kTileRowBytes); c += 4) {
      __m512i x[4];
      for (int i = 0; i < 4; i++) {
        const __m512 q = c < channels ? _mm512_castsi512_ps(bits(c + i)) : _mm512_setzero_ps();
        // The largest may round up to one more than fits.
        x[i] = _mm512_min_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(q, inverse)), _mm512_set1_epi32((2 << kBits) - 1));
      }
      store_limbs<Limbs>(x, c / 4 % 16, tiles + c / 64 * kLimbBytes<Limbs> + n * kTileBytes);
    }
  }
  return fit;
}

// Sums of products with limbs, joined: `sums` is the vector of the highest limb, `units` those of the limbs.
template <int Limbs>
PAGELOOM_INLINE Vec join_limbs(const int32_t* sums, const Vec (&units)[Limbs][kAmxVectors], int n) {
  constexpr int64_t kNext = kAmxVectors * kTileBytes / sizeof(int32_t);
  auto limb = [&](int i) { return Vec{_mm512_cvtepi32_ps(_mm512_loadu_si512(sums + i * kNext))}; };
  Vec joined = mul(limb(Limbs - 1), units[Limbs - 1][n]);
#pragma GCC unroll 2
  for (int i = Limbs - 2; i >= 0; i--) joined = fma(limb(i), units[i][n], joined);
  return joined;
}

// What the sums of each limb are to be multiplied by.
template <int Limbs>
PAGELOOM_INLINE void units_of_limbs(const Vec (&lowest)[kAmxVectors], Vec (&units)[Limbs][kAmxVectors]) {
#pragma GCC unroll 2
  for (int n = 0; n < kAmxVectors; n++) {
    units[Limbs - 1][n] = lowest[n];
#pragma GCC unroll 2
    for (int i = Limbs - 2; i >= 0; i--) units[i][n] = mul(units[i + 1][n], set(256));
  }
}

// The whole number of the weight 1.
template <int Limbs>
constexpr int32_t kWholeOne = 1 << (8 * Limbs - 1);

// e^x, x <= 0, in units of 1 / kWholeOne; NaN of NaN. `exponential` without what no whole number shows: subnormals, and
// the second part of ln 2, whose error grows with the power as the weight shrinks.
template <int Limbs>
PAGELOOM_INLINE Vec weight_in_units(Vec x) {
  // What is added to 1.5 * 2^23 is rounded to a whole number.
  const Vec rounding = set(12582912), inside = max(set(-80.0f), x);
  const Vec n = sub(fma(inside, set(1.44269504f), rounding), rounding);
  return scale_by_power(exponential_near_zero(fma(n, set(-0.693147181f), inside)), add(n, set(8 * Limbs - 1)));
}

// Codes [channel, channel + 64) of a row in unit order; codes from `channels` on, and those of no row, mean nothing.
PAGELOOM_INLINE __m512i load_codes(StoreI8, const char* row, int64_t channel, int64_t channels) {
  const int64_t left = channels - channel;
  if (!row) return _mm512_setzero_si512();
  if (left >= 64) return _mm512_loadu_si512(row + channel);
  return _mm512_maskz_loadu_epi8(~uint64_t{0} >> (64 - left), row + channel);
}

PAGELOOM_INLINE __m512i load_codes(StoreI4, const char* row, int64_t channel, int64_t channels) {
  const int64_t left = (channels - channel + 1) / 2;
  if (!row) return _mm512_setzero_si512();
  const char* bytes = row + channel / 2;
  const __m256i pairs = left >= 32 ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes))
                                   : _mm256_maskz_loadu_epi8(~uint32_t{0} >> (32 - left), bytes);
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i even = _mm256_and_si256(pairs, nibble), odd = _mm256_and_si256(_mm256_srli_epi16(pairs, 4), nibble);
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1);
  return _mm512_sub_epi8(_mm512_shuffle_i64x2(both, both, 0xD8), _mm512_set1_epi8(8));
}

// Rows of codes as tiles [count / 16][channels / 64] of 16 keys x 64 channels.
template <class Store>
static void load_keys(const char* const* rows, int64_t count, int64_t channels, char* tiles) {
  const int64_t steps = (channels + 63) / 64;
  for (int64_t t = 0; t < count; t++) {
    char* row = tiles + t / 16 * steps * kTileBytes + t % 16 * kTileRowBytes;
    for (int64_t step = 0; step < steps; step++) {
      _mm512_storeu_si512(row + step * kTileBytes, load_codes(Store{}, rows[t], 64 * step, channels));
    }
  }
}

// Rows of codes, transposed, as tiles of 16 channels x 64 keys: those of the next keys follow, those of the next
// channels are `stride` bytes away.
template <class Store>
static void load_values(const char* const* rows, int64_t count, int64_t channels, int64_t stride, char* tiles) {
  for (int64_t step = 0; step < count / 64; step++) {
    for (int64_t channel = 0; channel < channels; channel += 64) {
      Vec quads[4][16];
      for (int quad = 0; quad < 16; quad++) {
        __m512i row[4];
        for (int i = 0; i < 4; i++) row[i] = load_codes(Store{}, rows[64 * step + 4 * quad + i], channel, channels);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) quads[j][quad].v = _mm512_castsi512_ps(interleave(row, j));
      }
      for (int j = 0; j < 4; j++) {
        transpose(quads[j]);
        for (int i = 0; i < 16; i++) {
          const int64_t group = channel / 16 + i / 4, row = 4 * j + i % 4;
          char* out = tiles + group * stride + step * kTileBytes + row * kTileRowBytes;
          _mm512_storeu_ps(out, quads[j][i].v);
        }
      }
    }
  }
}
