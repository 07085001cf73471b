// Eight floats in an AVX2 register (with FMA and F16C).
#pragma once

#define PAGELOOM_INLINE static inline __attribute__((always_inline))

constexpr int kLanes = 8;
constexpr int kDots = 8;
constexpr int kTileRows = 6;  // 6 x 2 accumulators of 16 registers

struct Vec {
  __m256 v;
};

PAGELOOM_INLINE __m256i mask_first(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
PAGELOOM_INLINE Vec zero() { return {_mm256_setzero_ps()}; }
PAGELOOM_INLINE Vec set(float x) { return {_mm256_set1_ps(x)}; }
PAGELOOM_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
PAGELOOM_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
PAGELOOM_INLINE Vec load_first(const float* p, int n) { return {_mm256_maskload_ps(p, mask_first(n))}; }
PAGELOOM_INLINE void store_first(float* p, Vec a, int n) { _mm256_maskstore_ps(p, mask_first(n), a.v); }
PAGELOOM_INLINE Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
PAGELOOM_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec round_even(Vec a) { return {_mm256_round_ps(a.v, 8)}; }
PAGELOOM_INLINE Vec if_less(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
PAGELOOM_INLINE bool any_less(Vec a, Vec b) { return _mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)) != 0; }
PAGELOOM_INLINE Vec absolute(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
PAGELOOM_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  return {_mm256_or_ps(magnitude.v, _mm256_and_ps(sign.v, _mm256_set1_ps(-0.0f)))};
}
// Two factors, since 2^n alone leaves the normal range before the product does.
PAGELOOM_INLINE Vec scale_by_power(Vec a, Vec n) {
  __m256i whole = _mm256_cvtps_epi32(n.v), half = _mm256_srai_epi32(whole, 1), rest = _mm256_sub_epi32(whole, half);
  const __m256i bias = _mm256_set1_epi32(127);
  __m256 first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  __m256 second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  return {_mm256_mul_ps(_mm256_mul_ps(a.v, first), second)};
}
PAGELOOM_INLINE float sum(Vec a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
PAGELOOM_INLINE float largest(Vec a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

PAGELOOM_INLINE Vec load_i8(const char* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
PAGELOOM_INLINE Vec load_f16(const char* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
PAGELOOM_INLINE void store_f16(char* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
PAGELOOM_INLINE void load_i4(const char* p, Vec& even, Vec& odd) {
  __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i eight = _mm256_set1_epi32(8);
  even.v = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(bytes, _mm256_set1_epi32(15)), eight));
  odd.v = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(bytes, 4), eight));
}
PAGELOOM_INLINE void store_i8(char* p, Vec a) {
  __m256i whole = _mm256_cvtps_epi32(a.v);
  __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(half, half));
}

PAGELOOM_INLINE void interleave(Vec even, Vec odd, Vec& low, Vec& high) {
  __m256 x = _mm256_unpacklo_ps(even.v, odd.v), y = _mm256_unpackhi_ps(even.v, odd.v);
  low.v = _mm256_permute2f128_ps(x, y, 0x20);
  high.v = _mm256_permute2f128_ps(x, y, 0x31);
}
PAGELOOM_INLINE void deinterleave(Vec low, Vec high, Vec& even, Vec& odd) {
  __m256 x = _mm256_permute2f128_ps(low.v, high.v, 0x20), y = _mm256_permute2f128_ps(low.v, high.v, 0x31);
  even.v = _mm256_shuffle_ps(x, y, 0x88);
  odd.v = _mm256_shuffle_ps(x, y, 0xDD);
}

PAGELOOM_INLINE void reduce_dots(const Vec (&a)[kDots], float* sums) {
  __m256 x = _mm256_hadd_ps(_mm256_hadd_ps(a[0].v, a[1].v), _mm256_hadd_ps(a[2].v, a[3].v));
  __m256 y = _mm256_hadd_ps(_mm256_hadd_ps(a[4].v, a[5].v), _mm256_hadd_ps(a[6].v, a[7].v));
  _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31)));
}

PAGELOOM_INLINE void transpose(Vec (&a)[kLanes]) {
  __m256 t[8], u[8];
  for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm256_unpacklo_ps(a[2 * i].v, a[2 * i + 1].v);
    t[2 * i + 1] = _mm256_unpackhi_ps(a[2 * i].v, a[2 * i + 1].v);
  }
  for (int i = 0; i < 2; i++) {
    for (int j = 0; j < 2; j++) {
      u[4 * i + 2 * j] = _mm256_shuffle_ps(t[4 * i + j], t[4 * i + 2 + j], 0x44);
      u[4 * i + 2 * j + 1] = _mm256_shuffle_ps(t[4 * i + j], t[4 * i + 2 + j], 0xEE);
    }
  }
  for (int i = 0; i < 4; i++) {
    a[i].v = _mm256_permute2f128_ps(u[i], u[4 + i], 0x20);
    a[4 + i].v = _mm256_permute2f128_ps(u[i], u[4 + i], 0x31);
  }
}
