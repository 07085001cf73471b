// Floats as whole numbers relative to the largest of their vector, in limbs of 8 bits, the lowest first. Products of
// limbs with codes and the sums of those are exact, so what is lost is the rounding of each float. A sum in float32
// loses as much as whole numbers of 24 bits do, unless the largest stands out: then Q is multiplied in 32 bits.
#pragma once

constexpr int kQueryLimbs = 4, kWeightLimbs = 3;
constexpr int kLine = 64;  // bytes of a vector

// How codes are multiplied: each of the kParts vectors that a vector of bytes is split into holds some of its channels,
// as unsigned bytes kUnsignedBias more than they are, and as signed ones kSignedBias more.
struct CodesI8 {
  static constexpr int kParts = 1, kUnsignedBias = 128, kSignedBias = 0;
  PAGELOOM_INLINE __m512i unsigned_part(__m512i bytes, int) { return _mm512_xor_si512(bytes, _mm512_set1_epi8(-128)); }
  PAGELOOM_INLINE __m512i signed_part(__m512i bytes, int) { return bytes; }
  static int64_t unit_order(int, int64_t byte) { return byte; }
};

struct CodesI4 {
  static constexpr int kParts = 2, kUnsignedBias = 8, kSignedBias = 8;
  PAGELOOM_INLINE __m512i unsigned_part(__m512i bytes, int part) {
    return _mm512_and_si512(part ? _mm512_srli_epi16(bytes, 4) : bytes, _mm512_set1_epi8(15));
  }
  PAGELOOM_INLINE __m512i signed_part(__m512i bytes, int part) { return unsigned_part(bytes, part); }
  static int64_t unit_order(int part, int64_t byte) { return byte / kLanes * kUnit + part * kLanes + byte % kLanes; }
};

PAGELOOM_INLINE int64_t lines_of(int64_t bytes) { return (bytes + kLine - 1) / kLine; }

// The limbs of sixteen whole numbers: of four numbers each, four bytes of a limb side by side.
PAGELOOM_INLINE __m512i limbs_of_fours(__m512i whole) {
  const __m512i bytes = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(whole, bytes);
}

// The float that the exact sums of the limbs' products stand for.
template <int Limbs>
PAGELOOM_INLINE Vec join_limbs(const Sums (&sums)[Limbs]) {
  Vec joined = to_floats(sums[Limbs - 1]);
  for (int limb = Limbs - 2; limb >= 0; limb--) joined = fma(joined, set(256), to_floats(sums[limb]));
  return joined;
}

// The largest magnitude of `count` floats, NaN where one of them is no number: as bits, NaN is the largest.
PAGELOOM_INLINE float magnitude(const float* values, int64_t count) {
  __m512i most = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec size = absolute(load_first(values + i, static_cast<int>(smaller(kLanes, count - i))));
    most = _mm512_max_epu32(most, _mm512_castps_si512(size.v));
  }
  const unsigned bits = _mm512_reduce_max_epu32(most);
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

// The number that a whole one of 1 stands for where `magnitude` stands for `most`, and its inverse: 0 where all numbers
// are as good as 0.
struct Step {
  float size, inverse;
  Step(float magnitude, float most) : size(magnitude / most), inverse(magnitude < 1e-30f ? 0 : most / magnitude) {}
};

// Q of one head: the step of its lowest limb, whether its largest channel stands out, what the sums of four rows start
// from so that the bias of the codes is taken off, and signed limbs [bytes of a row in whole lines /
// 16][part][limb][16]. The highest limbs alone are Q rounded to fewer bits.
struct QueryLimbs {
  const float* data;

  template <class Codes>
  static int64_t floats(int64_t bytes) {
    return kLanes * (1 + kQueryLimbs) + lines_of(bytes) * kLine * Codes::kParts;
  }
  float step() const { return data[0]; }
  bool stands_out() const { return data[1] != 0; }
  Sums start(int limb) const { return reinterpret_cast<Sums>(_mm512_load_si512(data + kLanes * (1 + limb))); }
  // Of sixteen bytes of a row, four times over.
  __m512i sixteen(int64_t part, int limb) const {
    const float* limbs = data + kLanes * (1 + kQueryLimbs) + part * kLanes + limb * 4;
    return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(limbs)));
  }
};

// Whether the largest of `count` floats is more than six times the root of their mean square.
PAGELOOM_INLINE bool largest_stands_out(const float* values, int64_t count, float largest) {
  Vec squares = zero();
  for (int64_t i = 0; i < count; i += kLanes) squares = fma(load(values + i), load(values + i), squares);
  return largest * largest * static_cast<float>(count) > 36 * sum(squares);
}

// From channels in unit order, `width` of them.
template <class Codes>
static void store_query_limbs(const float* q, int width, int64_t bytes, float* out) {
  const __m512i halves = _mm512_set1_epi32(static_cast<int>(0x80808080u));
  const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const float largest = magnitude(q, width);
  const Step step(largest, 127 * 16777216.0f);
  out[0] = step.size;
  out[1] = largest_stands_out(q, width, largest);
  float* limbs = out + kLanes * (1 + kQueryLimbs);
  Sums biases = {};
  for (int64_t byte = 0; byte < lines_of(bytes) * kLine; byte += 16) {
    for (int part = 0; part < Codes::kParts; part++, limbs += kLanes) {
      const int64_t c = Codes::unit_order(part, byte);
      const Vec values = c < width ? mul(load(q + c), set(step.inverse)) : zero();
      const __m512i whole = _mm512_xor_si512(_mm512_add_epi32(_mm512_cvtps_epi32(values.v), halves), halves);
      const __m512i all = _mm512_permutexvar_epi32(lanes, limbs_of_fours(whole));
      _mm512_store_si512(limbs, all);
      biases = dot_bytes(biases, _mm512_set1_epi8(static_cast<char>(Codes::kUnsignedBias)), all);
    }
  }
  for (int limb = 0; limb < kQueryLimbs; limb++) {
    const __m512i four = _mm512_setr4_epi32(4 * limb, 4 * limb + 1, 4 * limb + 2, 4 * limb + 3);
    const __m512i start = _mm512_permutexvar_epi32(four, reinterpret_cast<__m512i>(-biases));
    _mm512_store_si512(out + kLanes * (1 + limb), start);
  }
}

// Weights of one head for some rows, none below 0: 24 bits, limbs [row / 4][limb][4], zeros up to four rows.
struct WeightLimbs {
  static constexpr int64_t kMostRows = 256;
  alignas(kLine) int fours[kMostRows / 4][4];
  int sums[kWeightLimbs];  // of the limbs
  float step;

  __m512i four(int64_t row, int limb) const { return _mm512_set1_epi32(fours[row / 4][limb]); }

  template <class Codes>
  void set_to(const float* weights, int64_t count) {
    constexpr float kMost = 16777215;
    const Step scale(magnitude(weights, count), kMost);
    step = scale.size;
    Sums totals = {};
    for (int64_t i = 0; i < count; i += kLanes) {
      const Vec some = load_first(weights + i, static_cast<int>(smaller(kLanes, count - i)));
      const Vec whole = min(mul(some, set(scale.inverse)), set(kMost));
      const __m512i limbs = limbs_of_fours(_mm512_cvtps_epi32(whole.v));
      _mm512_store_si512(fours[i / 4], limbs);
      if (Codes::kSignedBias) totals = dot_bytes(totals, limbs, _mm512_set1_epi8(1));
    }
    for (int limb = 0; limb < kWeightLimbs; limb++) {
      sums[limb] = totals[limb] + totals[limb + 4] + totals[limb + 8] + totals[limb + 12];
    }
  }
};
