#include "binding/arrays.hpp"

namespace pageloom {

using nb::dlpack::dtype_code;

std::string View::described() const {
  std::string text = name + " has shape (";
  for (size_t i = 0; i < shape.size(); i++) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

Element float_element(const View& view) {
  if (view.is(dtype_code::Float, 32)) return Element::f32;
  require(view.is(dtype_code::Float, 16), view.name + " must be float32 or float16");
  return Element::f16;
}

void require_shape(const View& view, const std::vector<int64_t>& shape, const std::string& meaning) {
  std::string expected;
  for (int64_t extent : shape) expected += (expected.empty() ? "" : ", ") + std::to_string(extent);
  require(view.shape == shape, view.described() + "; (" + expected + "), " + meaning + ", is expected");
}

void require_contiguous_channels(const View& view) {
  require(view.size() == 0 || view.shape.back() < 2 || view.strides.back() == (view.dtype.bits + 7) / 8,
          view.name + " must have the elements of its last axis next to each other");
}

Rows rows_of(const View& view, const SequenceSource& source, int64_t heads, int64_t channels) {
  const bool flat = source.flat();
  if (flat) {
    require_shape(view, {source.rows, heads, channels}, "tokens, heads, channels");
  } else {
    require_shape(view, {source.batch_size, source.rows, heads, channels}, "batch, rows, heads, channels");
  }
  require_contiguous_channels(view);
  const size_t axis = flat ? 0 : 1;
  Rows rows;
  rows.data = view.data;
  rows.element = float_element(view);
  rows.sequence_stride = flat ? 0 : view.strides[0];
  rows.row_stride = view.strides[axis];
  rows.head_stride = view.strides[axis + 1];
  return rows;
}

IndexArray indices_of(const View& view, int64_t count) {
  require_shape(view, {count}, "one for each");
  require(view.is(dtype_code::Int, 32) || view.is(dtype_code::Int, 64), view.name + " must be int32 or int64");
  return {view.data, view.dtype.bits == 64, view.strides[0]};
}

int64_t kv_heads_of(const View& cache, bool paged) {
  require(cache.shape.size() == 4,
          cache.described() + "; " +
              (paged ? "(blocks, block size, heads, width)" : "(batch, heads, capacity, width)") + " is expected");
  return cache.shape[paged ? 2 : 1];
}

static Element cache_element(const View& view) {
  if (view.is(dtype_code::Int, 8)) return Element::i8;
  if (view.is(dtype_code::UInt, 8)) return Element::i4;
  require(view.is(dtype_code::Float, 32) || view.is(dtype_code::Float, 16),
          view.name + " must be float32, float16, int8, or uint8 with two int4 codes a byte");
  return float_element(view);
}

Cache cache_of(const View& view, const std::optional<View>& scale, bool paged, const CacheShape& shape,
               int64_t batch_size, Addressing& addressing) {
  Cache cache;
  cache.data = view.data;
  cache.element = cache_element(view);
  const int64_t width = cache.element == Element::i4 ? (shape.channels + 1) / 2 : shape.channels;
  const int64_t blocks = paged ? view.shape[0] : batch_size, block_size = view.shape[paged ? 1 : 2];
  if (paged) {
    require_shape(view, {blocks, block_size, shape.kv_heads, width}, "blocks, block size, heads, width");
  } else {
    require_shape(view, {blocks, shape.kv_heads, block_size, width}, "batch, heads, capacity, width");
  }
  require_contiguous_channels(view);
  require(!addressing.block_size || (addressing.block_size == block_size && addressing.num_blocks == blocks),
          view.described() + "; key_cache and value_cache must have as many rows");
  addressing.block_size = block_size;
  addressing.num_blocks = blocks;
  cache.block_stride = view.strides[0];
  cache.row_stride = view.strides[paged ? 1 : 2];
  cache.head_stride = view.strides[paged ? 2 : 1];
  const bool quantized = cache.element == Element::i8 || cache.element == Element::i4;
  const std::string scale_name = view.name[0] == 'k' ? "k_scale" : "v_scale";
  require(quantized == scale.has_value(),
          scale_name + (quantized ? " is missing: " + view.name + " is quantised"
                                  : " is given, but " + view.name + " is not quantised"));
  if (scale) {
    const int64_t all = shape.kv_heads * shape.channels, size = scale->size();
    require(scale->is(dtype_code::Float, 32), scale_name + " must be float32");
    require(size == 1 || size == all,
            scale->described() + "; 1 or heads * channels = " + std::to_string(all) + " elements are expected");
    for (int64_t axis = static_cast<int64_t>(scale->shape.size()) - 1, expected = 4; axis >= 0; axis--) {
      const size_t i = static_cast<size_t>(axis);
      require(scale->shape[i] == 1 || scale->strides[i] == expected, scale_name + " must be contiguous");
      expected *= scale->shape[i];
    }
    cache.scale = reinterpret_cast<const float*>(scale->data);
    cache.per_channel = size > 1;
  }
  return cache;
}

void set_block_table(const View& view, int64_t batch_size, Addressing& addressing) {
  require(view.is(dtype_code::Int, 32), "block_table must be int32");
  require(view.shape.size() == 2 && view.shape[0] == batch_size && view.shape[1] > 0,
          view.described() + "; (" + std::to_string(batch_size) + ", at least 1) is expected");
  addressing.table = reinterpret_cast<const int32_t*>(view.data);
  addressing.sequence_stride = view.strides[0] / 4;
  addressing.column_stride = view.strides[1] / 4;
  addressing.columns = view.shape[1];
}

}  // namespace pageloom
