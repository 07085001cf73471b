// Channels of a stored row, converted to float two vectors at a time (a unit). int4 keeps its even and odd channels in
// the same byte, so a unit of it comes as evens, then odds: "unit order". Q is brought into the order of K and the
// output back from that of V, once a row.
#pragma once

constexpr int kUnit = 2 * kLanes;

PAGELOOM_INLINE int units_of(int channels) { return (channels + kUnit - 1) / kUnit; }
PAGELOOM_INLINE int padded(int channels) { return units_of(channels) * kUnit; }
PAGELOOM_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
PAGELOOM_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

struct StoreF32 {
  static constexpr Element kElement = Element::f32;
  static constexpr bool kInterleaved = false;
  static int bytes(int channels) { return 4 * channels; }
  PAGELOOM_INLINE void load_unit(const char* p, Vec& a, Vec& b) {
    const float* floats = reinterpret_cast<const float*>(p);
    a = load(floats);
    b = load(floats + kLanes);
  }
};

struct StoreF16 {
  static constexpr Element kElement = Element::f16;
  static constexpr bool kInterleaved = false;
  static int bytes(int channels) { return 2 * channels; }
  PAGELOOM_INLINE void load_unit(const char* p, Vec& a, Vec& b) {
    a = load_f16(p);
    b = load_f16(p + 2 * kLanes);
  }
};

struct StoreI8 {
  static constexpr Element kElement = Element::i8;
  static constexpr bool kInterleaved = false;
  static int bytes(int channels) { return channels; }
  PAGELOOM_INLINE void load_unit(const char* p, Vec& a, Vec& b) {
    a = load_i8(p);
    b = load_i8(p + kLanes);
  }
};

struct StoreI4 {
  static constexpr Element kElement = Element::i4;
  static constexpr bool kInterleaved = true;
  static int bytes(int channels) { return (channels + 1) / 2; }
  PAGELOOM_INLINE void load_unit(const char* p, Vec& a, Vec& b) { load_i4(p, a, b); }
};

// The first `channels` < kUnit of a unit. The others come from zero bytes: finite, whatever lies behind the row.
template <class Store>
PAGELOOM_INLINE void load_unit_first(const char* p, int channels, Vec& a, Vec& b) {
  alignas(64) char bytes[4 * kUnit] = {};
  memcpy(bytes, p, Store::bytes(channels));
  Store::load_unit(bytes, a, b);
}

template <class Visit>
PAGELOOM_INLINE auto with_store(Element element, Visit visit) {
  switch (element) {
    case Element::f16:
      return visit(StoreF16{});
    case Element::i8:
      return visit(StoreI8{});
    case Element::i4:
      return visit(StoreI4{});
    default:
      return visit(StoreF32{});
  }
}

// `channels` floats from float32 or float16 values.
static void load_floats(const char* p, Element element, int channels, float* out) {
  if (element == Element::f32) {
    memcpy(out, p, channels * sizeof(float));
    return;
  }
  int c = 0;
  for (; c + kLanes <= channels; c += kLanes) store(out + c, load_f16(p + 2 * c));
  if (c < channels) {
    char bytes[2 * kLanes] = {};
    memcpy(bytes, p + 2 * c, 2 * (channels - c));
    store_first(out + c, load_f16(bytes), channels - c);
  }
}

static void store_floats(char* p, Element element, int channels, const float* values) {
  if (element == Element::f32) {
    memcpy(p, values, channels * sizeof(float));
    return;
  }
  int c = 0;
  for (; c + kLanes <= channels; c += kLanes) store_f16(p + 2 * c, load(values + c));
  if (c < channels) {
    char bytes[2 * kLanes];
    store_f16(bytes, load_first(values + c, channels - c));
    memcpy(p + 2 * c, bytes, 2 * (channels - c));
  }
}

PAGELOOM_INLINE char* row_of(const Rows& rows, const Sequence& sequence, int64_t row, int64_t head) {
  int64_t first = rows.sequence_stride ? sequence.index * rows.sequence_stride : sequence.query_row * rows.row_stride;
  return rows.data + first + row * rows.row_stride + head * rows.head_stride;
}

// Asks for a row that is read or written soon.
constexpr int kToRead = 0, kToWrite = 1;
template <int Use>
PAGELOOM_INLINE void ask_row(const Rows& rows, const Sequence& sequence, int64_t row, int64_t head, int channels) {
  const char* data = row_of(rows, sequence, row, head);
  const int64_t bytes = static_cast<int64_t>(channels) * (rows.element == Element::f32 ? 4 : 2);
  for (int64_t offset = 0; offset < bytes; offset += 64) __builtin_prefetch(data + offset, Use, 3);
}

// Rows that lie one stride apart, as many as the block of `position` holds before `end`; data is nullptr where the
// table maps none.
struct Run {
  const char* data;
  int64_t count;
};

PAGELOOM_INLINE Run run_at(const Cache& cache, const Addressing& where, int64_t sequence, int64_t head,
                           int64_t position, int64_t end) {
  int64_t column = position / where.block_size, row = position % where.block_size;
  int64_t block = sequence;
  if (where.table) block = where.table[sequence * where.sequence_stride + column * where.column_stride];
  int64_t count = smaller(end - position, where.block_size - row);
  if (block < 0 || block >= where.num_blocks) return {nullptr, count};
  return {cache.data + block * cache.block_stride + row * cache.row_stride + head * cache.head_stride, count};
}

// The rows of keys [begin, end) of one K/V head; nullptr where the table maps none. Returns whether all are mapped.
static bool list_rows(const Cache& cache, const Addressing& where, int64_t sequence, int64_t head, int64_t begin,
                      int64_t end, const char** rows) {
  bool mapped = true;
  for (int64_t t = begin; t < end;) {
    const Run run = run_at(cache, where, sequence, head, t, end);
    for (int64_t i = 0; i < run.count; i++) rows[t - begin + i] = run.data ? run.data + i * cache.row_stride : nullptr;
    mapped &= run.data != nullptr;
    t += run.count;
  }
  return mapped;
}

// The keys that a row at `position` sees: [begin, end).
struct Span {
  int64_t begin, end;
};

PAGELOOM_INLINE Span visible_keys(const AttentionProblem& problem, const Sequence& sequence, int64_t position) {
  int64_t end = problem.causal ? smaller(sequence.total, position + 1) : sequence.total;
  int64_t begin = problem.window > 0 ? larger(0, position + 1 - problem.window) : 0;
  return {begin, larger(begin, end)};
}
