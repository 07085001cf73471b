// Codes of float rows: round(x * (1 / scale)) or round(x / scale), half to even, clamped; a scale of 0 counts as 1; NaN
// gives the largest code, as the minimum returns its second operand.
#pragma once

static void quantize_row(const float* values, const float* scale, bool per_channel, bool divide, Element element,
                         int count, char* codes) {
  const bool nibbles = element == Element::i4;
  const Vec low = set(nibbles ? -8.0f : -128.0f), high = set(nibbles ? 7.0f : 127.0f), one = set(1.0f);
  auto nonzero = [&](Vec unit) { return if_less(zero(), absolute(unit), unit, one); };
  const Vec unit_of_all = nonzero(set(*scale)), inverse_of_all = div(one, unit_of_all);
  for (int c = 0; c < count; c += kUnit) {
    Vec code[2];
    for (int half = 0; half < 2; half++) {
      const int first = c + half * kLanes, n = static_cast<int>(larger(0, smaller(kLanes, count - first)));
      const Vec x = n ? load_first(values + first, n) : zero();
      Vec unit = unit_of_all, inverse = inverse_of_all;
      if (per_channel) {
        unit = n ? nonzero(load_first(scale + first, n)) : one;
        inverse = div(one, unit);
      }
      const Vec scaled = divide ? div(x, unit) : mul(x, inverse);
      code[half] = round_even(max(min(scaled, high), low));
    }
    const int left = static_cast<int>(smaller(kUnit, count - c));
    alignas(64) char bytes[kUnit];
    char *place = codes + (nibbles ? c / 2 : c), *out = left == kUnit ? place : bytes;
    if (nibbles) {
      // even + 8 + 16 * (odd + 8), as the signed number that has this byte.
      Vec even, odd;
      deinterleave(code[0], code[1], even, odd);
      const Vec eight = set(8.0f), above = if_less(odd, zero(), add(odd, eight), sub(odd, eight));
      store_i8(out, fma(set(16.0f), above, add(even, eight)));
    } else {
      store_i8(out, code[0]);
      store_i8(out + kLanes, code[1]);
    }
    if (left < kUnit) memcpy(place, bytes, nibbles ? (left + 1) / 2 : left);
  }
}
