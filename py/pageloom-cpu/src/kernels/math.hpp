// Elementary functions of a vector.
#pragma once

constexpr float kNegativeInfinity = -__builtin_inff();

// e^r for |r| <= ln 2 / 2 within 2e-9 of itself: the polynomial of degree 6 whose largest relative error is least, of
// those that begin with 1 + r.
PAGELOOM_INLINE Vec exponential_near_zero(Vec r) {
  Vec p = fma(set(1.3843607e-3f), r, set(8.3741955e-3f));
  p = fma(p, r, set(4.1668005e-2f));
  p = fma(p, r, set(1.6666430e-1f));
  p = fma(p, r, set(4.9999994e-1f));
  return fma(fma(p, r, set(1.0f)), r, set(1.0f));
}

// e^x within 2 ulp for x <= 88: Cody and Waite's reduction by ln 2 in two parts; exactly 0 where the result would be
// subnormal, NaN of NaN.
PAGELOOM_INLINE Vec exponential(Vec x) {
  const Vec lowest = set(-87.33f);
  const Vec inside = max(lowest, x), n = round_even(mul(inside, set(1.44269504f)));
  const Vec r = fma(n, set(2.12194440e-4f), fma(n, set(-0.693359375f), inside));
  return if_less(x, lowest, zero(), scale_by_power(exponential_near_zero(r), n));
}

// tanh x: an odd polynomial below 0.625 (Cephes' tanhf), 1 - 2 / (e^2|x| + 1) above.
PAGELOOM_INLINE Vec hyperbolic_tangent(Vec x) {
  Vec size = absolute(x), square = mul(x, x);
  Vec p = fma(set(-5.70498872745e-3f), square, set(2.06390887954e-2f));
  p = fma(p, square, set(-5.37397155531e-2f));
  p = fma(p, square, set(1.33314422036e-1f));
  p = fma(p, square, set(-3.33332819422e-1f));
  Vec small = fma(mul(p, square), x, x);
  Vec doubled = min(set(40.0f), add(size, size));
  Vec big = sub(set(1.0f), div(set(2.0f), add(exponential(doubled), set(1.0f))));
  return if_less(size, set(0.625f), small, copy_sign(big, x));
}

PAGELOOM_INLINE Vec soft_capped(Vec x, Vec cap, Vec inverse_cap) {
  return mul(cap, hyperbolic_tangent(mul(x, inverse_cap)));
}
