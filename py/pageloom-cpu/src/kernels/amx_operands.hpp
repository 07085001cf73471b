// The operands of AMX products. Codes are exact in bfloat16. A float is split by truncation into three bfloat16 parts
// that sum to it exactly, so that three products give what one of float32 would, up to the order of the sums; one part
// is rounded to nearest, with an error of 2^-9 relative to the operand.
#pragma once

constexpr int64_t kTileFloats = 16 * 16;  // a tile of 1 KiB
constexpr int kAmxVectors = 2;

// The leading bfloat16 of each of a and b, side by side in 32 bits; a and b keep what is left.
PAGELOOM_INLINE __m512i split_pair(__m512& a, __m512& b) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const __m512i x = _mm512_and_si512(_mm512_castps_si512(a), high), y = _mm512_and_si512(_mm512_castps_si512(b), high);
  a = _mm512_sub_ps(a, _mm512_castsi512_ps(x));
  b = _mm512_sub_ps(b, _mm512_castsi512_ps(y));
  return _mm512_or_si512(_mm512_srli_epi32(x, 16), y);
}

PAGELOOM_INLINE __m512 nearest_bf16(__m512 a) {
  const __m512i bits = _mm512_castps_si512(a),
                odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))));
}

// The parts of a pair of rows of kAmxVectors vectors, as row `pair` of the tiles [part][vector].
template <int Parts>
PAGELOOM_INLINE void store_pair(const Vec (&low)[kAmxVectors], const Vec (&high)[kAmxVectors], int pair,
                                uint32_t* tiles) {
#pragma GCC unroll 2
  for (int n = 0; n < kAmxVectors; n++) {
    __m512 a = low[n].v, b = high[n].v;
    if (Parts == 1) {
      a = nearest_bf16(a);
      b = nearest_bf16(b);
    }
#pragma GCC unroll 3
    for (int part = 0; part < Parts; part++) {
      _mm512_storeu_si512(tiles + (part * kAmxVectors + n) * kTileFloats + pair * 16, split_pair(a, b));
    }
  }
}

PAGELOOM_INLINE void load_row(const float* row, Vec (&out)[kAmxVectors]) {
#pragma GCC unroll 2
  for (int n = 0; n < kAmxVectors; n++) out[n] = load(row + n * kLanes);
}

// `steps` times 32 channels of Q, [channels][2 * kLanes], as tiles of pairs.
template <int Parts>
static void pair_queries(const float* rows, int64_t steps, uint32_t* tiles) {
  for (int64_t pair = 0; pair < steps * 16; pair++) {
    Vec low[kAmxVectors], high[kAmxVectors];
    load_row(rows + 2 * pair * kAmxVectors * kLanes, low);
    load_row(rows + (2 * pair + 1) * kAmxVectors * kLanes, high);
    store_pair<Parts>(low, high, pair % 16, tiles + pair / 16 * Parts * kAmxVectors * kTileFloats);
  }
}

PAGELOOM_INLINE void store_bf16(uint16_t* out, Vec a) {
  const __m512i high = _mm512_srli_epi32(_mm512_castps_si512(a.v), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(high));
}

// A unit of codes of a row; zeros where there is none.
template <class Store>
PAGELOOM_INLINE void load_codes(const char* row, int64_t unit, int channels, Vec& a, Vec& b) {
  const int left = channels - static_cast<int>(unit) * kUnit;
  if (!row) {
    a = b = zero();
  } else if (left >= kUnit) {
    Store::load_unit(row + unit * Store::bytes(kUnit), a, b);
  } else {
    load_unit_first<Store>(row + unit * Store::bytes(kUnit), left, a, b);
  }
}

// Rows of codes as bfloat16 [rows][width].
template <class Store>
static void load_keys(const char* const* rows, int64_t count, int channels, int64_t width, uint16_t* out) {
  for (int64_t t = 0; t < count; t++, out += width) {
    for (int64_t unit = 0; unit < width / kUnit; unit++) {
      Vec a, b;
      load_codes<Store>(rows[t], unit, channels, a, b);
      store_bf16(out + unit * kUnit, a);
      store_bf16(out + unit * kUnit + kLanes, b);
    }
  }
}

// Rows of codes as bfloat16, transposed: [width][count].
template <class Store>
static void load_values(const char* const* rows, int64_t count, int channels, int64_t width, uint16_t* out) {
  for (int64_t t = 0; t < count; t += kLanes) {
    for (int64_t unit = 0; unit < width / kUnit; unit++) {
      Vec a[kLanes], b[kLanes];
      for (int i = 0; i < kLanes; i++) load_codes<Store>(rows[t + i], unit, channels, a[i], b[i]);
      transpose(a);
      transpose(b);
      for (int i = 0; i < kLanes; i++) {
        store_bf16(out + (unit * kUnit + i) * count + t, a[i]);
        store_bf16(out + (unit * kUnit + kLanes + i) * count + t, b[i]);
      }
    }
  }
}
