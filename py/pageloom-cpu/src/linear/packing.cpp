#include "linear/packing.hpp"

#include <cstring>

namespace pageloom {

namespace {

// One lane of a panel, written field by field.
class Lane {
 public:
  Lane(char* panel, int lanes, int lane) : next_(panel), lanes_(lanes), lane_(lane) {}

  // `count` fields of `size` bytes: each beside the same one of the other rows.
  void put(const void* fields, int size, int count) {
    const char* from = static_cast<const char*>(fields);
    for (int i = 0; i < count; i++, from += size, next_ += size * lanes_) std::memcpy(next_ + lane_ * size, from, size);
  }

 private:
  char* next_;
  int lanes_, lane_;
};

// Codes of `bits` bits in the order of their columns, the first one in the lowest bits of the first word.
template <int bits>
void put_codes(Lane& lane, const uint8_t* codes, int count) {
  constexpr int kPerWord = 32 / bits;
  constexpr uint32_t kMask = (1u << bits) - 1;
  for (int first = 0; first < count; first += kPerWord) {
    uint32_t word = 0;
    for (int i = 0; i < kPerWord; i++) word |= (codes[first + i] & kMask) << (i * bits);
    lane.put(&word, 4, 1);
  }
}

void put_high_bits(Lane& lane, const uint8_t* codes, int count, int width) {
  uint8_t high[256];
  for (int i = 0; i < count; i++) high[i] = codes[i] >> 4;
  if (width == 1) put_codes<1>(lane, high, count);
  if (width == 2) put_codes<2>(lane, high, count);
}

// 16 bytes: the low nibbles are columns 0 to 15, the high ones 16 to 31.
void read_nibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 16; i++) {
    codes[i] = bytes[i] & 15;
    codes[i + 16] = bytes[i] >> 4;
  }
}

void add_fifth_bits(const uint8_t* bits, uint8_t* codes) {
  for (int i = 0; i < 32; i++) codes[i] |= (bits[i / 8] >> i % 8 & 1) << 4;
}

// Q4_0, Q4_1, Q5_0, Q5_1: `halves` f16 numbers, the fifth bits where there are some, nibbles.
void pack_nibbles(const uint8_t* block, int halves, bool fifth, Lane& lane) {
  uint8_t codes[32];
  read_nibbles(block + 2 * halves + (fifth ? 4 : 0), codes);
  if (fifth) add_fifth_bits(block + 2 * halves, codes);
  lane.put(block, 2, halves);
  if (fifth) put_high_bits(lane, codes, 32, 1);
  put_codes<4>(lane, codes, 32);
}

// The 6-bit scales and minimums of 8 sub-blocks, from 12 bytes: 0 to 3 in the low six bits of bytes 0 to 3 and 4 to 7;
// 4 to 7 in the nibbles of bytes 8 to 11 and the top bits of the others.
void read_k_scales(const uint8_t* packed, uint8_t* scales, uint8_t* minimums) {
  for (int i = 0; i < 4; i++) {
    scales[i] = packed[i] & 63;
    minimums[i] = packed[i + 4] & 63;
    scales[i + 4] = (packed[i + 8] & 15) | packed[i] >> 6 << 4;
    minimums[i + 4] = packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4;
  }
}

// Q4_K and Q5_K: each 32 bytes hold two sub-blocks, the first in the low nibbles. Bit j of a byte of fifth bits is of
// sub-block j.
void pack_k(const uint8_t* block, bool fifth, Lane& lane) {
  uint8_t scales[8], minimums[8], codes[256];
  read_k_scales(block + 4, scales, minimums);
  const uint8_t* nibbles = block + 16 + (fifth ? 32 : 0);
  for (int i = 0; i < 256; i++) {
    const int sub = i / 32;
    codes[i] = nibbles[sub / 2 * 32 + i % 32] >> sub % 2 * 4 & 15;
    if (fifth) codes[i] |= (block[16 + i % 32] >> sub & 1) << 4;
  }
  lane.put(block, 2, 2);
  lane.put(scales, 1, 8);
  lane.put(minimums, 1, 8);
  if (fifth) put_high_bits(lane, codes, 256, 1);
  put_codes<4>(lane, codes, 256);
}

// Q6_K: 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed scales, one f16.
void pack_q6_k(const uint8_t* block, Lane& lane) {
  uint8_t codes[256];
  for (int i = 0; i < 256; i++) {
    const int half = i / 128, quarter = i / 32 % 4, column = i % 32;
    const int low = block[half * 64 + quarter % 2 * 32 + column] >> quarter / 2 * 4 & 15;
    const int high = block[128 + half * 32 + column] >> quarter * 2 & 3;
    codes[i] = static_cast<uint8_t>(low | high << 4);
  }
  lane.put(block + 208, 2, 1);
  lane.put(block + 192, 1, 16);
  put_high_bits(lane, codes, 256, 2);
  put_codes<4>(lane, codes, 256);
}

// Whether no exponent of `count` little-endian floats of `size` bytes has all of the bits `mask` of its upper half.
bool is_finite(const uint8_t* floats, int size, int count, unsigned mask) {
  for (int i = 1; i <= count; i++) {
    const unsigned upper = floats[i * size - 1] << 8 | floats[i * size - 2];
    if ((upper & mask) == mask) return false;
  }
  return true;
}

bool has_finite_scales(Format format, const uint8_t* block) {
  constexpr unsigned kHalf = 0x7c00, kSingle = 0x7f80;
  switch (format) {
    case Format::f32:
      return is_finite(block, 4, 1, kSingle);
    case Format::bf16:
      return is_finite(block, 2, 1, kSingle);
    case Format::q4_1:
    case Format::q5_1:
    case Format::q4_k:
    case Format::q5_k:
      return is_finite(block, 2, 2, kHalf);
    case Format::q6_k:
      return is_finite(block + 208, 2, 1, kHalf);
    default:
      return is_finite(block, 2, 1, kHalf);
  }
}

void pack_block(Format format, const uint8_t* block, Lane& lane) {
  switch (format) {
    case Format::f32:
      return lane.put(block, 4, 1);
    case Format::f16:
    case Format::bf16:
      return lane.put(block, 2, 1);
    case Format::q4_0:
      return pack_nibbles(block, 1, false, lane);
    case Format::q4_1:
      return pack_nibbles(block, 2, false, lane);
    case Format::q5_0:
      return pack_nibbles(block, 1, true, lane);
    case Format::q5_1:
      return pack_nibbles(block, 2, true, lane);
    case Format::q8_0:
      lane.put(block, 2, 1);
      return lane.put(block + 2, 1, 32);
    case Format::q4_k:
      return pack_k(block, false, lane);
    case Format::q5_k:
      return pack_k(block, true, lane);
    case Format::q6_k:
      return pack_q6_k(block, lane);
  }
}

}  // namespace

bool pack_row(Format format, const char* source, int64_t columns, int lanes, int lane, char* panel) {
  const BlockSize& size = block_size(format);
  Lane to(panel, lanes, lane);
  bool finite = true;
  for (int64_t i = 0; i < columns / size.columns; i++) {
    const uint8_t* block = reinterpret_cast<const uint8_t*>(source) + i * size.source_bytes;
    finite &= has_finite_scales(format, block);
    pack_block(format, block, to);
  }
  return finite;
}

}  // namespace pageloom
