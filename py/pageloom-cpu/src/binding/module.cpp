#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <map>

#include "binding/bind.hpp"
#include "binding/bind_calls.hpp"
#include "core/thread_pool.hpp"

namespace pageloom {

namespace {

std::vector<std::string> level_names() {
  std::vector<std::string> names;
  for (const Level& level : all_levels()) {
    if (level.kernels) names.push_back(level.name);
  }
  return names;
}

std::map<std::string, std::string> unavailable_levels() {
  std::map<std::string, std::string> reasons;
  for (const Level& level : all_levels()) {
    if (!level.kernels) reasons[level.name] = level.unavailable;
  }
  return reasons;
}

nb::dict info() {
  const CacheSizes caches = cache_sizes();
  nb::dict result;
  result["level"] = find_level("").name;
  result["levels"] = level_names();
  result["unavailable"] = unavailable_levels();
  result["threads"] = ThreadPool::instance().size();
  result["pinned"] = ThreadPool::instance().pinned();
  result["l1d_bytes"] = caches.l1d;
  result["l2_bytes"] = caches.l2;
  result["l3_bytes"] = caches.l3;
  return result;
}

void set_threads(int count, bool pin) {
  require(count >= 0, "count is " + std::to_string(count) + "; 0 (one per CPU) or more is allowed");
  nb::gil_scoped_release release;
  ThreadPool::instance().resize(count, pin);
}

void quantize(const Input& values, const Input& scale, const Output& codes, const std::string& rule,
              const std::optional<std::string>& level) {
  const View x = view_of("values", values), out = view_of("codes", codes), unit = view_of("scale", scale);
  require(x.shape.size() == 3, x.described() + "; (rows, heads, channels) is expected");
  const int64_t heads = x.shape[1], channels = x.shape[2];
  require(x.is(nb::dlpack::dtype_code::Float, 32), "values must be float32");
  require_contiguous_channels(x);
  const bool nibbles = out.is(nb::dlpack::dtype_code::UInt, 8);
  require(nibbles || out.is(nb::dlpack::dtype_code::Int, 8), "codes must be int8, or uint8 for two int4 codes a byte");
  require_shape(out, {x.shape[0], heads, nibbles ? (channels + 1) / 2 : channels}, "rows, heads, width");
  require_contiguous_channels(out);
  require(unit.is(nb::dlpack::dtype_code::Float, 32), "scale must be float32");
  require(
      unit.size() == 1 || unit.size() == heads * channels,
      unit.described() + "; 1 or heads * channels = " + std::to_string(heads * channels) + " elements are expected");
  require(rule == "divide" || rule == "reciprocal", "rule is '" + rule + "'; reciprocal and divide are allowed");
  const bool per_channel = unit.size() > 1;
  const LevelKernels& kernels = *find_level(level.value_or("")).kernels;
  nb::gil_scoped_release release;
  for (int64_t row = 0; row < x.shape[0]; row++) {
    for (int64_t head = 0; head < heads; head++) {
      kernels.quantize_row(reinterpret_cast<const float*>(x.data + row * x.strides[0] + head * x.strides[1]),
                           reinterpret_cast<const float*>(unit.data) + (per_channel ? head * channels : 0), per_channel,
                           rule == "divide", nibbles ? Element::i4 : Element::i8, static_cast<int>(channels),
                           out.data + row * out.strides[0] + head * out.strides[1]);
    }
  }
}

void tensor_scatter(const Output& present, const Input& update, const OptionalInput& write_indices, bool circular) {
  const View to = view_of("present", present), from = view_of("update", update);
  require(to.shape.size() == 4 && from.shape.size() == 4,
          from.described() + "; (batch, outer, rows, inner) is expected");
  require_shape(from, {to.shape[0], to.shape[1], from.shape[2], to.shape[3]}, "batch, outer, rows, inner");
  require(std::memcmp(&to.dtype, &from.dtype, sizeof to.dtype) == 0, "present and update must have the same type");
  require_contiguous_channels(to);
  require_contiguous_channels(from);
  const int64_t batch = to.shape[0], rows = from.shape[2], capacity = to.shape[2];
  IndexArray starts;
  if (write_indices) starts = indices_of(view_of("write_indices", *write_indices), batch);
  for (int64_t b = 0; b < batch; b++) {
    const int64_t start = starts.data ? starts[b] : 0;
    if (start < 0 || rows > capacity || (!circular && start + rows > capacity)) {
      throw std::out_of_range("write_indices of sequence " + std::to_string(b) + " is " + std::to_string(start) +
                              " for " + std::to_string(rows) + " rows; the cache has " + std::to_string(capacity));
    }
  }
  const size_t bytes = static_cast<size_t>(to.shape[3]) * ((to.dtype.bits + 7u) / 8u);
  nb::gil_scoped_release release;
  for (int64_t b = 0; b < batch; b++) {
    const int64_t start = starts.data ? starts[b] : 0;
    for (int64_t outer = 0; outer < to.shape[1]; outer++) {
      for (int64_t row = 0; row < rows; row++) {
        const int64_t target = circular ? (start + row) % capacity : start + row;
        std::memcpy(to.data + b * to.strides[0] + outer * to.strides[1] + target * to.strides[2],
                    from.data + b * from.strides[0] + outer * from.strides[1] + row * from.strides[2], bytes);
      }
    }
  }
}

}  // namespace

NB_MODULE(_kernels, module) {
  module.def("levels", &level_names);
  module.def("unavailable_levels", &unavailable_levels);
  module.def("info", &info);
  module.def("set_threads", &set_threads, nb::arg("count") = 0, nb::kw_only(), nb::arg("pin") = false);
  module.def("quantize", &quantize, nb::arg("values").noconvert(), nb::arg("scale").noconvert(),
             nb::arg("codes").noconvert(), nb::kw_only(), nb::arg("rule") = "reciprocal",
             nb::arg("level") = nb::none());
  module.def("tensor_scatter", &tensor_scatter, nb::arg("present").noconvert(), nb::arg("update").noconvert(),
             nb::arg("write_indices").noconvert() = nb::none(), nb::kw_only(), nb::arg("circular") = false);
  bind_sequences(module);
  bind_attention(module);
  bind_append(module);
  bind_layers(module);
  bind_step(module);
}

}  // namespace pageloom
