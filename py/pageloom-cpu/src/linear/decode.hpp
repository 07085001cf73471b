// One column of a panel as floats, for every format. Codes are unpacked with the compiler's own vectors, which are the
// same on all levels.
#pragma once

typedef int32_t CodeVector __attribute__((vector_size(4 * kLanes)));
typedef uint32_t WordVector __attribute__((vector_size(4 * kLanes)));
typedef float FloatVector __attribute__((vector_size(4 * kLanes)));
typedef uint8_t ByteVector __attribute__((vector_size(kLanes)));
typedef uint16_t HalfVector __attribute__((vector_size(2 * kLanes)));

template <class T>
PAGELOOM_INLINE T read_vector(const char* p) {
  T vector;
  memcpy(&vector, p, sizeof vector);
  return vector;
}
PAGELOOM_INLINE Vec as_vec(FloatVector floats) {
  Vec result;
  memcpy(&result, &floats, sizeof result);
  return result;
}
PAGELOOM_INLINE Vec to_floats(WordVector words) { return as_vec(__builtin_convertvector((CodeVector)words, FloatVector)); }
PAGELOOM_INLINE Vec load_u8(const char* p) {
  return to_floats(__builtin_convertvector(read_vector<ByteVector>(p), WordVector));
}
PAGELOOM_INLINE Vec load_bf16(const char* p) {
  const WordVector words = __builtin_convertvector(read_vector<HalfVector>(p), WordVector) << 16;
  Vec result;
  memcpy(&result, &words, sizeof result);
  return result;
}

// w = scale * code + offset.
struct Scales {
  Vec scale, offset;
};

// Field `index` of a block, `size` bytes a row, after `before` bytes a row of other fields.
PAGELOOM_INLINE const char* field(const char* block, int before, int size, int64_t index) {
  return block + (before + size * index) * kLanes;
}

// Each format gives the columns of a block and of a group that shares a scale, the scales of a group, and column
// 8 * octet + i of the block; `i` is a constant once the loops are unrolled.
template <int Zero, bool Minimum, int HighBits>
struct Nibbles {
  static constexpr int kColumns = 32, kGroup = 32, kCodes = (Minimum ? 4 : 2) + 4 * HighBits;
  static constexpr int kBytes = kCodes + 16;
  PAGELOOM_INLINE Scales scales(const char* block, int) {
    const Vec scale = load_f16(block);
    return {scale, Minimum ? load_f16(field(block, 2, 2, 0)) : mul(scale, set(-Zero))};
  }
  PAGELOOM_INLINE Vec column(const char* block, const Scales& s, int octet, int i) {
    WordVector codes = read_vector<WordVector>(field(block, kCodes, 4, octet)) >> (4 * i) & 15;
    if (HighBits) codes |= (read_vector<WordVector>(field(block, kCodes - 4, 4, 0)) >> (8 * octet) >> i & 1) << 4;
    return fma(to_floats(codes), s.scale, s.offset);
  }
};
using Q4_0 = Nibbles<8, false, 0>;
using Q4_1 = Nibbles<0, true, 0>;
using Q5_0 = Nibbles<16, false, 1>;
using Q5_1 = Nibbles<0, true, 1>;

struct Q8_0 {
  static constexpr int kColumns = 32, kGroup = 32, kBytes = 34;
  PAGELOOM_INLINE Scales scales(const char* block, int) { return {load_f16(block), zero()}; }
  PAGELOOM_INLINE Vec column(const char* block, const Scales& s, int octet, int i) {
    return mul(load_i8(field(block, 2, 1, 8 * octet + i)), s.scale);
  }
};

template <bool HighBits>
struct NibblesK {
  static constexpr int kColumns = 256, kGroup = 32, kHigh = 20, kCodes = kHigh + (HighBits ? 32 : 0);
  static constexpr int kBytes = kCodes + 128;
  PAGELOOM_INLINE Scales scales(const char* block, int group) {
    const Vec scale = mul(load_f16(block), load_u8(field(block, 4, 1, group)));
    return {scale, sub(zero(), mul(load_f16(field(block, 2, 2, 0)), load_u8(field(block, 12, 1, group))))};
  }
  PAGELOOM_INLINE Vec column(const char* block, const Scales& s, int octet, int i) {
    WordVector codes = read_vector<WordVector>(field(block, kCodes, 4, octet)) >> (4 * i) & 15;
    if (HighBits) codes |= (read_vector<WordVector>(field(block, kHigh, 4, octet / 4)) >> (octet % 4 * 8) >> i & 1) << 4;
    return fma(to_floats(codes), s.scale, s.offset);
  }
};
using Q4_K = NibblesK<false>;
using Q5_K = NibblesK<true>;

struct Q6_K {
  static constexpr int kColumns = 256, kGroup = 16, kHigh = 18, kCodes = kHigh + 64, kBytes = kCodes + 128;
  PAGELOOM_INLINE Scales scales(const char* block, int group) {
    const Vec scale = mul(load_f16(block), load_i8(field(block, 2, 1, group)));
    return {scale, mul(scale, set(-32))};
  }
  PAGELOOM_INLINE Vec column(const char* block, const Scales& s, int octet, int i) {
    WordVector codes = read_vector<WordVector>(field(block, kCodes, 4, octet)) >> (4 * i) & 15;
    codes |= (read_vector<WordVector>(field(block, kHigh, 4, octet / 2)) >> (octet % 2 * 16) >> (2 * i) & 3) << 4;
    return fma(to_floats(codes), s.scale, s.offset);
  }
};

template <int Bytes, Vec (*Load)(const char*)>
struct Floats {
  static constexpr int kColumns = 8, kGroup = 8, kBytes = 8 * Bytes;
  PAGELOOM_INLINE Scales scales(const char*, int) { return {zero(), zero()}; }
  PAGELOOM_INLINE Vec column(const char* block, const Scales&, int, int i) { return Load(field(block, 0, Bytes, i)); }
};
PAGELOOM_INLINE Vec load_f32(const char* p) { return as_vec(read_vector<FloatVector>(p)); }
using F32 = Floats<4, load_f32>;
using F16 = Floats<2, load_f16>;
using BF16 = Floats<2, load_bf16>;

template <class Visit>
PAGELOOM_INLINE void with_format(Format format, Visit visit) {
  switch (format) {
    case Format::f32:
      return visit(F32{});
    case Format::f16:
      return visit(F16{});
    case Format::bf16:
      return visit(BF16{});
    case Format::q4_0:
      return visit(Q4_0{});
    case Format::q4_1:
      return visit(Q4_1{});
    case Format::q5_0:
      return visit(Q5_0{});
    case Format::q5_1:
      return visit(Q5_1{});
    case Format::q8_0:
      return visit(Q8_0{});
    case Format::q4_k:
      return visit(Q4_K{});
    case Format::q5_k:
      return visit(Q5_K{});
    case Format::q6_k:
      return visit(Q6_K{});
  }
}
