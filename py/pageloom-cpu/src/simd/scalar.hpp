// One float at a time: what every other level must agree with, and what runs on any CPU.
#pragma once

#define PAGELOOM_INLINE static inline

constexpr int kLanes = 1;
constexpr int kDots = 4;
constexpr int kTileRows = 4;

struct Vec {
  float v;
};

PAGELOOM_INLINE Vec zero() { return {0}; }
PAGELOOM_INLINE Vec set(float x) { return {x}; }
PAGELOOM_INLINE Vec load(const float* p) { return {*p}; }
PAGELOOM_INLINE void store(float* p, Vec a) { *p = a.v; }
PAGELOOM_INLINE Vec load_first(const float* p, int n) { return {n > 0 ? *p : 0.0f}; }
PAGELOOM_INLINE void store_first(float* p, Vec a, int n) {
  if (n > 0) *p = a.v;
}
PAGELOOM_INLINE Vec add(Vec a, Vec b) { return {a.v + b.v}; }
PAGELOOM_INLINE Vec sub(Vec a, Vec b) { return {a.v - b.v}; }
PAGELOOM_INLINE Vec mul(Vec a, Vec b) { return {a.v * b.v}; }
PAGELOOM_INLINE Vec div(Vec a, Vec b) { return {a.v / b.v}; }
PAGELOOM_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
PAGELOOM_INLINE Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
PAGELOOM_INLINE Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
PAGELOOM_INLINE Vec round_even(Vec a) { return {rintf(a.v)}; }
PAGELOOM_INLINE Vec if_less(Vec a, Vec b, Vec yes, Vec no) { return a.v < b.v ? yes : no; }
PAGELOOM_INLINE bool any_less(Vec a, Vec b) { return a.v < b.v; }
PAGELOOM_INLINE Vec absolute(Vec a) { return {fabsf(a.v)}; }
PAGELOOM_INLINE Vec copy_sign(Vec magnitude, Vec sign) { return {copysignf(magnitude.v, sign.v)}; }
PAGELOOM_INLINE Vec scale_by_power(Vec a, Vec n) { return {ldexpf(a.v, static_cast<int>(lrintf(n.v)))}; }
PAGELOOM_INLINE float sum(Vec a) { return a.v; }
PAGELOOM_INLINE float largest(Vec a) { return a.v; }

PAGELOOM_INLINE Vec load_i8(const char* p) { return {static_cast<float>(static_cast<signed char>(*p))}; }
PAGELOOM_INLINE Vec load_f16(const char* p) {
  uint16_t half;
  memcpy(&half, p, 2);
  uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, magnitude = half & 0x7fff, bits;
  if (magnitude >= 0x7c00) {
    bits = 0x7f800000u | (magnitude & 0x3ff) << 13;
  } else if (magnitude >= 0x400) {
    bits = (magnitude << 13) + 0x38000000u;
  } else {
    float small = static_cast<float>(magnitude) * 0x1p-24f;
    memcpy(&bits, &small, 4);
  }
  bits |= sign;
  Vec result;
  memcpy(&result.v, &bits, 4);
  return result;
}
PAGELOOM_INLINE void store_f16(char* p, Vec a) {
  uint32_t bits;
  memcpy(&bits, &a.v, 4);
  uint32_t magnitude = bits & 0x7fffffff;
  uint16_t half;
  if (magnitude > 0x7f800000) {
    half = 0x7e00;
  } else if (magnitude >= 0x477ff000) {
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {
    half = static_cast<uint16_t>((magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13);
  } else {
    half = static_cast<uint16_t>(lrintf(fabsf(a.v) * 0x1p24f));
  }
  half |= static_cast<uint16_t>(bits >> 16 & 0x8000);
  memcpy(p, &half, 2);
}
PAGELOOM_INLINE void load_i4(const char* p, Vec& even, Vec& odd) {
  int byte = static_cast<unsigned char>(*p);
  even.v = static_cast<float>((byte & 15) - 8);
  odd.v = static_cast<float>((byte >> 4) - 8);
}
PAGELOOM_INLINE void store_i8(char* p, Vec a) { *p = static_cast<char>(static_cast<int>(a.v)); }

PAGELOOM_INLINE void interleave(Vec even, Vec odd, Vec& low, Vec& high) {
  low = even;
  high = odd;
}
PAGELOOM_INLINE void deinterleave(Vec low, Vec high, Vec& even, Vec& odd) {
  even = low;
  odd = high;
}
PAGELOOM_INLINE void reduce_dots(const Vec (&a)[kDots], float* sums) {
  for (int i = 0; i < kDots; i++) sums[i] = a[i].v;
}
PAGELOOM_INLINE void transpose(Vec (&)[kLanes]) {}
