// Elementary functions of a vector.
#pragma once

constexpr float kNegativeInfinity = -__builtin_inff();

// e^x within 2 ulp for x <= 88: Cody and Waite's reduction by ln 2 in two parts and a polynomial of degree 6 (the
// coefficients of Cephes' expf); exactly 0 where the result would be subnormal.
PAGELOOM_INLINE Vec exponential(Vec x) {
  const Vec lowest = set(-87.33f);
  Vec inside = max(x, lowest);
  Vec n = round_even(mul(inside, set(1.44269504f)));
  Vec r = fma(n, set(-0.693359375f), inside);
  r = fma(n, set(2.12194440e-4f), r);
  Vec p = fma(set(1.9875691500e-4f), r, set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = fma(mul(r, r), p, add(r, set(1.0f)));
  return if_less(x, lowest, zero(), scale_by_power(p, n));
}

// tanh x: an odd polynomial below 0.625 (Cephes' tanhf), 1 - 2 / (e^2|x| + 1) above.
PAGELOOM_INLINE Vec hyperbolic_tangent(Vec x) {
  Vec size = absolute(x), square = mul(x, x);
  Vec p = fma(set(-5.70498872745e-3f), square, set(2.06390887954e-2f));
  p = fma(p, square, set(-5.37397155531e-2f));
  p = fma(p, square, set(1.33314422036e-1f));
  p = fma(p, square, set(-3.33332819422e-1f));
  Vec small = fma(mul(p, square), x, x);
  Vec doubled = min(add(size, size), set(40.0f));
  Vec big = sub(set(1.0f), div(set(2.0f), add(exponential(doubled), set(1.0f))));
  return if_less(size, set(0.625f), small, copy_sign(big, x));
}

PAGELOOM_INLINE Vec soft_capped(Vec x, Vec cap, Vec inverse_cap) {
  return mul(cap, hyperbolic_tangent(mul(x, inverse_cap)));
}
