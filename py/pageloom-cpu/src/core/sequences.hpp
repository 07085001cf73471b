// Where each sequence's rows and keys are, read from the caller's arrays at every call.
#pragma once

#include <cstring>

#include "core/problem.hpp"

namespace pageloom {

// int32 or int64 values at any stride; none where `data` is nullptr.
struct IndexArray {
  const char* data = nullptr;
  bool wide = false;
  int64_t stride = 0;  // bytes

  int64_t operator[](int64_t i) const {
    if (wide) {
      int64_t value;
      std::memcpy(&value, data + i * stride, sizeof value);
      return value;
    }
    int32_t value;
    std::memcpy(&value, data + i * stride, sizeof value);
    return value;
  }
};

struct SequenceSource {
  int64_t batch_size = 0, rows = 0;
  IndexArray query_offsets, query_lengths, past_lengths, total_lengths;
  int64_t total_offset = 0, total = 0;
  bool has_first = false, clamp_first = false;
  int64_t first_position = 0;
  int64_t position_limit = INT64_MAX;

  bool flat() const { return query_offsets.data != nullptr; }

  // Counts are clamped to the query's rows and totals to `capacity`. A sequence whose offsets or past make no sense has
  // no rows.
  Sequence resolve(int64_t b, int64_t capacity) const {
    auto clamp = [](int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; };
    Sequence s;
    s.index = b;
    if (flat()) {
      const int64_t begin = query_offsets[b], end = query_offsets[b + 1];
      const bool sound = begin >= 0 && begin <= end && end <= rows;
      s.query_row = sound ? begin : 0;
      s.count = sound ? end - begin : 0;
    } else {
      s.query_row = b * rows;
      s.count = query_lengths.data ? clamp(query_lengths[b], 0, rows) : rows;
    }
    if (past_lengths.data && (past_lengths[b] < 0 || past_lengths[b] > position_limit - s.count)) s.count = 0;
    s.total = past_lengths.data    ? past_lengths[b] + s.count
              : total_lengths.data ? total_lengths[b] + total_offset
                                   : total;
    s.first = has_first ? first_position : s.total - s.count;
    if (clamp_first && s.first < 0) s.first = 0;
    s.total = clamp(s.total, 0, capacity);
    return s;
  }
};

}  // namespace pageloom
