// What the kernels need to know of an array: its address, shape and strides, checked as it comes in.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/problem.hpp"
#include "core/sequences.hpp"

namespace pageloom {

namespace nb = nanobind;

using Input = nb::ndarray<nb::ro, nb::device::cpu>;
using Output = nb::ndarray<nb::device::cpu>;
using OptionalInput = std::optional<Input>;
using OptionalOutput = std::optional<Output>;

// Raises ValueError.
inline void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

// The most threads that a call may use; 0 is all of the pool. Raises ValueError.
inline int threads_of(std::optional<int> threads) {
  require(!threads || *threads > 0, "threads is " + std::to_string(threads.value_or(0)) + "; at least 1 is expected");
  return threads.value_or(0);
}

// An array's data with strides in bytes.
struct View {
  std::string name;
  char* data = nullptr;
  std::vector<int64_t> shape, strides;
  nb::dlpack::dtype dtype{};

  int64_t size() const {
    int64_t product = 1;
    for (int64_t extent : shape) product *= extent;
    return product;
  }
  bool is(nb::dlpack::dtype_code code, int bits) const {
    return dtype.code == static_cast<uint8_t>(code) && dtype.bits == bits && dtype.lanes == 1;
  }
  std::string described() const;
};

template <class Array>
View view_of(const char* name, const Array& array) {
  View view;
  view.name = name;
  view.data = static_cast<char*>(const_cast<void*>(static_cast<const void*>(array.data())));
  view.dtype = array.dtype();
  for (size_t i = 0; i < array.ndim(); i++) {
    view.shape.push_back(static_cast<int64_t>(array.shape(i)));
    view.strides.push_back(array.stride(i) * ((view.dtype.bits + 7) / 8));
  }
  return view;
}

// float32 or float16 with the channels of the last axis together.
Element float_element(const View& view);
void require_shape(const View& view, const std::vector<int64_t>& shape, const std::string& meaning);
void require_contiguous_channels(const View& view);

// [B, rows, heads, channels], or [tokens, heads, channels] where `flat`.
Rows rows_of(const View& view, const SequenceSource& source, int64_t heads, int64_t channels);
IndexArray indices_of(const View& view, int64_t count);

struct CacheShape {
  int64_t kv_heads, channels;
};

// [B, heads_kv, capacity, width], or [blocks, block_size, heads_kv, width] where `paged`. `addressing` gets the blocks.
Cache cache_of(const View& view, const std::optional<View>& scale, bool paged, const CacheShape& shape,
               int64_t batch_size, Addressing& addressing);
void set_block_table(const View& view, int64_t batch_size, Addressing& addressing);
int64_t kv_heads_of(const View& cache, bool paged);

}  // namespace pageloom
