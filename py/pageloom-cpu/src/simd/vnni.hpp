// Dot products of bytes (AVX-512 VNNI).
#pragma once

// Sums are kept as vectors of int: kept as __m512i, GCC 12 copies each of them in every turn of a loop.
typedef int Sums __attribute__((vector_size(64)));

// Lane i of the result is sums[i] plus the four products of unsigned by signed bytes in that lane.
PAGELOOM_INLINE Sums dot_bytes(Sums sums, __m512i unsigned_bytes, __m512i signed_bytes) {
  return reinterpret_cast<Sums>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sums), unsigned_bytes, signed_bytes));
}
PAGELOOM_INLINE Vec to_floats(Sums sums) { return {_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(sums))}; }
