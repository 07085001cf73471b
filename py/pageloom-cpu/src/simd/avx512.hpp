// Sixteen floats in an AVX-512 register (F, BW, VL, DQ).
#pragma once

#define PAGELOOM_INLINE static inline __attribute__((always_inline))

constexpr int kLanes = 16;
constexpr int kDots = 16;      // sums that are reduced together
constexpr int kTileRows = 12;  // register tile of the matrix products: 12 x 2 accumulators of 32 registers

struct Vec {
  __m512 v;
};

PAGELOOM_INLINE __mmask16 mask_first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
PAGELOOM_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
PAGELOOM_INLINE Vec set(float x) { return {_mm512_set1_ps(x)}; }
PAGELOOM_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
PAGELOOM_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
PAGELOOM_INLINE Vec load_first(const float* p, int n) { return {_mm512_maskz_loadu_ps(mask_first(n), p)}; }
PAGELOOM_INLINE void store_first(float* p, Vec a, int n) { _mm512_mask_storeu_ps(p, mask_first(n), a.v); }
PAGELOOM_INLINE Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// x86's order: the second operand where either is NaN.
PAGELOOM_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
PAGELOOM_INLINE Vec round_even(Vec a) { return {_mm512_roundscale_ps(a.v, 8)}; }
PAGELOOM_INLINE Vec if_less(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
PAGELOOM_INLINE bool any_less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ) != 0; }
PAGELOOM_INLINE Vec absolute(Vec a) { return {_mm512_abs_ps(a.v)}; }
PAGELOOM_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  return {_mm512_or_ps(magnitude.v, _mm512_and_ps(sign.v, _mm512_set1_ps(-0.0f)))};
}
// a * 2^n for whole n.
PAGELOOM_INLINE Vec scale_by_power(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
PAGELOOM_INLINE float sum(Vec a) { return _mm512_reduce_add_ps(a.v); }
PAGELOOM_INLINE float largest(Vec a) { return _mm512_reduce_max_ps(a.v); }

PAGELOOM_INLINE Vec load_i8(const char* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
PAGELOOM_INLINE Vec load_f16(const char* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
PAGELOOM_INLINE void store_f16(char* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
// Sixteen bytes hold 32 codes: a permutation of a table turns four bits into a float, with no arithmetic.
PAGELOOM_INLINE void load_i4(const char* p, Vec& even, Vec& odd) {
  const __m512 table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  even.v = _mm512_permutexvar_ps(bytes, table);
  odd.v = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), table);
}
// Whole numbers in [-128, 127].
PAGELOOM_INLINE void store_i8(char* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}

PAGELOOM_INLINE void interleave(Vec even, Vec odd, Vec& low, Vec& high) {
  const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  low.v = _mm512_permutex2var_ps(even.v, first, odd.v);
  high.v = _mm512_permutex2var_ps(even.v, _mm512_add_epi32(first, _mm512_set1_epi32(8)), odd.v);
}
PAGELOOM_INLINE void deinterleave(Vec low, Vec high, Vec& even, Vec& odd) {
  const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  even.v = _mm512_permutex2var_ps(low.v, evens, high.v);
  odd.v = _mm512_permutex2var_ps(low.v, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), high.v);
}

// sums[i] = sum of the lanes of a[i].
PAGELOOM_INLINE void reduce_dots(const Vec (&a)[kDots], float* sums) {
  __m512 pairs[8], quads[4];
  for (int i = 0; i < 8; i++) {
    pairs[i] =
        _mm512_add_ps(_mm512_unpacklo_ps(a[2 * i].v, a[2 * i + 1].v), _mm512_unpackhi_ps(a[2 * i].v, a[2 * i + 1].v));
  }
  for (int i = 0; i < 4; i++) {
    __m512d x = _mm512_castps_pd(pairs[2 * i]), y = _mm512_castps_pd(pairs[2 * i + 1]);
    quads[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  }
  __m512 x =
      _mm512_add_ps(_mm512_shuffle_f32x4(quads[0], quads[1], 0x44), _mm512_shuffle_f32x4(quads[0], quads[1], 0xEE));
  __m512 y =
      _mm512_add_ps(_mm512_shuffle_f32x4(quads[2], quads[3], 0x44), _mm512_shuffle_f32x4(quads[2], quads[3], 0xEE));
  _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xDD)));
}

PAGELOOM_INLINE void transpose(Vec (&a)[kLanes]) {
  __m512 t[16];
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_ps(a[2 * i].v, a[2 * i + 1].v);
    t[2 * i + 1] = _mm512_unpackhi_ps(a[2 * i].v, a[2 * i + 1].v);
  }
  __m512 u[16];
  for (int i = 0; i < 4; i++) {
    for (int j = 0; j < 2; j++) {
      __m512d x = _mm512_castps_pd(t[4 * i + j]), y = _mm512_castps_pd(t[4 * i + 2 + j]);
      u[4 * i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
      u[4 * i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
  }
  for (int i = 0; i < 4; i++) {
    __m512 low = _mm512_shuffle_f32x4(u[i], u[4 + i], 0x88), high = _mm512_shuffle_f32x4(u[i], u[4 + i], 0xDD);
    __m512 low2 = _mm512_shuffle_f32x4(u[8 + i], u[12 + i], 0x88),
           high2 = _mm512_shuffle_f32x4(u[8 + i], u[12 + i], 0xDD);
    a[i].v = _mm512_shuffle_f32x4(low, low2, 0x88);
    a[4 + i].v = _mm512_shuffle_f32x4(high, high2, 0x88);
    a[8 + i].v = _mm512_shuffle_f32x4(low, low2, 0xDD);
    a[12 + i].v = _mm512_shuffle_f32x4(high, high2, 0xDD);
  }
}
