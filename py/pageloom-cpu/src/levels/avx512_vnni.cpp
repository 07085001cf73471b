#include <immintrin.h>
#include <math.h>

#include "core/problem.hpp"

namespace pageloom {
namespace avx512_vnni {
namespace {

constexpr int kMostChannels = 1024, kWidth = 64;

// Q of one head in 8 bits: q ~ codes * scale. A code is off by at most half, so a product by |k| * scale / 2.
struct Int8Query {
  alignas(64) signed char codes[kMostChannels];
  float scale;
  int sum;  // of the codes
};

void round_query(const float* q, int channels, Int8Query& out) {
  float largest = 0;
  for (int c = 0; c < channels; c++) largest = fmaxf(largest, fabsf(q[c]));
  out.scale = largest > 0 ? largest / 127 : 1;
  out.sum = 0;
  const int width = (channels + kWidth - 1) / kWidth * kWidth;
  for (int c = 0; c < width; c++) {
    out.codes[c] = static_cast<signed char>(c < channels ? lrintf(q[c] / out.scale) : 0);
    out.sum += out.codes[c];
  }
}

// Lane i of the result is the sum of the lanes of a[i].
__m512i sum_lanes(const __m512i (&a)[16]) {
  __m512i pairs[8], quads[4];
  for (int i = 0; i < 8; i++) {
    pairs[i] =
        _mm512_add_epi32(_mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]), _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]));
  }
  for (int i = 0; i < 4; i++) {
    quads[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]),
                                _mm512_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]));
  }
  const __m512i x =
      _mm512_add_epi32(_mm512_shuffle_i32x4(quads[0], quads[1], 0x44), _mm512_shuffle_i32x4(quads[0], quads[1], 0xEE));
  const __m512i y =
      _mm512_add_epi32(_mm512_shuffle_i32x4(quads[2], quads[3], 0x44), _mm512_shuffle_i32x4(quads[2], quads[3], 0xEE));
  return _mm512_add_epi32(_mm512_shuffle_i32x4(x, y, 0x88), _mm512_shuffle_i32x4(x, y, 0xDD));
}

// Sixteen rows at once; rows past `count` repeat the last. The instruction multiplies unsigned by signed bytes: k + 128
// stands for k, and 128 times the sum of the codes is taken off.
void dots(const Int8Query& q, const char* const* rows, int64_t offset, int64_t count, int channels, float* scores) {
  for (int64_t first = 0; first < count; first += 16) {
    __m512i sums[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) {
      const char* row = rows[first + r < count ? first + r : count - 1] + offset;
      sums[r] = _mm512_set1_epi32(0);
      for (int c = 0; c < channels; c += kWidth) {
        const int left = channels - c;
        const __mmask64 mask = left >= kWidth ? ~0ull : (1ull << left) - 1;
        const __m512i biased = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, row + c), _mm512_set1_epi8(-128));
        sums[r] = _mm512_dpbusd_epi32(sums[r], biased, _mm512_load_si512(q.codes + c));
      }
    }
    const __m512i exact = _mm512_sub_epi32(sum_lanes(sums), _mm512_set1_epi32(128 * q.sum));
    const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(exact), _mm512_set1_ps(q.scale));
    const __mmask16 valid = static_cast<__mmask16>(count - first >= 16 ? 0xffff : (1 << (count - first)) - 1);
    _mm512_mask_storeu_ps(scores + first, valid, scaled);
  }
}

}  // namespace

extern const GroupDots int8_dots;
extern const int most_channels;
constexpr int most_channels = kMostChannels;

static void group_dots(const float* q, int64_t q_stride, int group, const char* const* rows, int64_t offset,
                       int64_t count, int channels, float* scores, int64_t score_stride) {
  for (int g = 0; g < group; g++) {
    Int8Query query;
    round_query(q + g * q_stride, channels, query);
    dots(query, rows, offset, count, channels, scores + g * score_stride);
  }
}

constexpr GroupDots int8_dots = group_dots;

}  // namespace avx512_vnni
}  // namespace pageloom
