// Four floats in a NEON register of AArch64.
#pragma once

#define PAGELOOM_INLINE static inline __attribute__((always_inline))

constexpr int kLanes = 4;
constexpr int kDots = 8;
constexpr int kTileRows = 12;  // 12 x 2 accumulators of 32 registers

struct Vec {
  float32x4_t v;
};

PAGELOOM_INLINE Vec zero() { return {vdupq_n_f32(0)}; }
PAGELOOM_INLINE Vec set(float x) { return {vdupq_n_f32(x)}; }
PAGELOOM_INLINE Vec load(const float* p) { return {vld1q_f32(p)}; }
PAGELOOM_INLINE void store(float* p, Vec a) { vst1q_f32(p, a.v); }
PAGELOOM_INLINE Vec load_first(const float* p, int n) {
  float lanes[4] = {};
  memcpy(lanes, p, n * sizeof(float));
  return load(lanes);
}
PAGELOOM_INLINE void store_first(float* p, Vec a, int n) {
  float lanes[4];
  store(lanes, a);
  memcpy(p, lanes, n * sizeof(float));
}
PAGELOOM_INLINE Vec add(Vec a, Vec b) { return {vaddq_f32(a.v, b.v)}; }
PAGELOOM_INLINE Vec sub(Vec a, Vec b) { return {vsubq_f32(a.v, b.v)}; }
PAGELOOM_INLINE Vec mul(Vec a, Vec b) { return {vmulq_f32(a.v, b.v)}; }
PAGELOOM_INLINE Vec div(Vec a, Vec b) { return {vdivq_f32(a.v, b.v)}; }
PAGELOOM_INLINE Vec fma(Vec a, Vec b, Vec c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
// The order of x86: the second operand where either is NaN.
PAGELOOM_INLINE Vec max(Vec a, Vec b) { return {vbslq_f32(vcgtq_f32(a.v, b.v), a.v, b.v)}; }
PAGELOOM_INLINE Vec min(Vec a, Vec b) { return {vbslq_f32(vcltq_f32(a.v, b.v), a.v, b.v)}; }
PAGELOOM_INLINE Vec round_even(Vec a) { return {vrndnq_f32(a.v)}; }
PAGELOOM_INLINE Vec if_less(Vec a, Vec b, Vec yes, Vec no) { return {vbslq_f32(vcltq_f32(a.v, b.v), yes.v, no.v)}; }
PAGELOOM_INLINE bool any_less(Vec a, Vec b) { return vmaxvq_u32(vcltq_f32(a.v, b.v)) != 0; }
PAGELOOM_INLINE Vec absolute(Vec a) { return {vabsq_f32(a.v)}; }
PAGELOOM_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  return {vbslq_f32(vdupq_n_u32(0x80000000u), sign.v, magnitude.v)};
}
PAGELOOM_INLINE Vec scale_by_power(Vec a, Vec n) {
  int32x4_t whole = vcvtnq_s32_f32(n.v), half = vshrq_n_s32(whole, 1), rest = vsubq_s32(whole, half);
  const int32x4_t bias = vdupq_n_s32(127);
  float32x4_t first = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
  float32x4_t second = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
  return {vmulq_f32(vmulq_f32(a.v, first), second)};
}
PAGELOOM_INLINE float sum(Vec a) { return vaddvq_f32(a.v); }
PAGELOOM_INLINE float largest(Vec a) { return vmaxvq_f32(a.v); }

PAGELOOM_INLINE Vec load_i8(const char* p) {
  int32_t word;
  memcpy(&word, p, 4);
  int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(word)));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)))};
}
PAGELOOM_INLINE Vec load_f16(const char* p) {
  uint16x4_t half;
  memcpy(&half, p, 8);
  return {vcvt_f32_f16(vreinterpret_f16_u16(half))};
}
PAGELOOM_INLINE void store_f16(char* p, Vec a) {
  uint16x4_t half = vreinterpret_u16_f16(vcvt_f16_f32(a.v));
  memcpy(p, &half, 8);
}
PAGELOOM_INLINE void load_i4(const char* p, Vec& even, Vec& odd) {
  uint32_t word;
  memcpy(&word, p, 4);
  uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(word)));
  int32x4_t bytes = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
  const int32x4_t eight = vdupq_n_s32(8);
  even.v = vcvtq_f32_s32(vsubq_s32(vandq_s32(bytes, vdupq_n_s32(15)), eight));
  odd.v = vcvtq_f32_s32(vsubq_s32(vshrq_n_s32(bytes, 4), eight));
}
PAGELOOM_INLINE void store_i8(char* p, Vec a) {
  int16x4_t half = vmovn_s32(vcvtnq_s32_f32(a.v));
  int8x8_t bytes = vmovn_s16(vcombine_s16(half, half));
  memcpy(p, &bytes, 4);
}

PAGELOOM_INLINE void interleave(Vec even, Vec odd, Vec& low, Vec& high) {
  low.v = vzip1q_f32(even.v, odd.v);
  high.v = vzip2q_f32(even.v, odd.v);
}
PAGELOOM_INLINE void deinterleave(Vec low, Vec high, Vec& even, Vec& odd) {
  even.v = vuzp1q_f32(low.v, high.v);
  odd.v = vuzp2q_f32(low.v, high.v);
}

PAGELOOM_INLINE void reduce_dots(const Vec (&a)[kDots], float* sums) {
  vst1q_f32(sums, vpaddq_f32(vpaddq_f32(a[0].v, a[1].v), vpaddq_f32(a[2].v, a[3].v)));
  vst1q_f32(sums + 4, vpaddq_f32(vpaddq_f32(a[4].v, a[5].v), vpaddq_f32(a[6].v, a[7].v)));
}

PAGELOOM_INLINE void transpose(Vec (&a)[kLanes]) {
  float32x4x2_t x = vtrnq_f32(a[0].v, a[1].v), y = vtrnq_f32(a[2].v, a[3].v);
  a[0].v = vcombine_f32(vget_low_f32(x.val[0]), vget_low_f32(y.val[0]));
  a[1].v = vcombine_f32(vget_low_f32(x.val[1]), vget_low_f32(y.val[1]));
  a[2].v = vcombine_f32(vget_high_f32(x.val[0]), vget_high_f32(y.val[0]));
  a[3].v = vcombine_f32(vget_high_f32(x.val[1]), vget_high_f32(y.val[1]));
}
