#include <nanobind/stl/string.h>

#include <tuple>

#include "binding/bind.hpp"

namespace pageloom {

namespace {

bool divides(const std::string& rule) {
  require(rule == "divide" || rule == "reciprocal", "rule is '" + rule + "'; reciprocal and divide are allowed");
  return rule == "divide";
}

void set_rotary(const View& cos, const std::optional<View>& sin, const std::optional<View>& position_ids,
                const SequenceSource& source, AppendProblem& problem) {
  require(sin.has_value(), "sin is missing; cos and sin go together");
  require(cos.shape.size() == 2 && cos.shape[0] > 0 && cos.shape[1] > 0,
          cos.described() + "; (positions, half the rotated channels) is expected");
  require_shape(*sin, cos.shape, "the shape of cos");
  require_contiguous_channels(cos);
  require_contiguous_channels(*sin);
  problem.rotary_element = float_element(cos);
  require(float_element(*sin) == problem.rotary_element, "cos and sin must have the same type");
  problem.cos = cos.data;
  problem.sin = sin->data;
  problem.cos_stride = cos.strides[0];
  problem.sin_stride = sin->strides[0];
  problem.rotary_rows = cos.shape[0];
  problem.half = static_cast<int>(cos.shape[1]);
  require(problem.rotary_offset >= 0 && problem.rotary_offset + 2 * problem.half <= problem.head_size,
          "rotary_offset is " + std::to_string(problem.rotary_offset) + " with " + std::to_string(2 * problem.half) +
              " rotated channels; the head has " + std::to_string(problem.head_size));
  if (!position_ids) return;
  require(position_ids->is(nb::dlpack::dtype_code::Int, 64) || position_ids->is(nb::dlpack::dtype_code::Int, 32),
          "position_ids must be int64 or int32");
  problem.position_ids = position_ids->data;
  problem.wide_positions = position_ids->dtype.bits == 64;
  problem.counts_up = position_ids->size() == 1;
  if (problem.counts_up) return;
  require_shape(*position_ids, {source.batch_size, source.rows}, "batch, rows");
  require(!source.flat(), "position_ids is given with query_offsets; positions of a flat query count up from first");
  problem.position_sequence_stride = position_ids->strides[0];
  problem.position_row_stride = position_ids->strides[1];
}

const char* norm_weight(const std::optional<View>& view, AppendProblem& problem) {
  if (!view) return nullptr;
  require_shape(*view, {problem.head_size}, "one for each channel");
  require_contiguous_channels(*view);
  problem.norm_element = float_element(*view);
  return view->data;
}

// Heads and channels of [.., heads, channels].
std::pair<int, int> head_shape(const View& view, const SequenceSource& source) {
  const size_t rank = source.flat() ? 3 : 4;
  require(view.shape.size() == rank, view.described() + "; " + std::to_string(rank) + " axes are expected");
  return {static_cast<int>(view.shape[rank - 2]), static_cast<int>(view.shape[rank - 1])};
}

void init(BoundAppend* self, const BoundSequences& sequences, const OptionalInput& query,
          const OptionalOutput& query_output, const OptionalInput& key, const OptionalInput& value,
          const OptionalOutput& key_cache, const OptionalOutput& value_cache, const OptionalInput& k_scale,
          const OptionalInput& v_scale, const OptionalInput& block_table, const OptionalInput& slot_mapping,
          const OptionalInput& cos, const OptionalInput& sin, const OptionalInput& position_ids, bool interleaved,
          int rotary_offset, const OptionalInput& q_norm_weight, const OptionalInput& k_norm_weight,
          float q_norm_epsilon, float k_norm_epsilon, const std::string& rule, const std::optional<std::string>& level,
          std::optional<int> threads) {
  BoundAppend bound;
  AppendProblem& problem = bound.call.problem;
  Held& held = bound.held;
  const SequenceSource& source = sequences.source;
  bound.call.source = source;
  const bool paged = block_table || slot_mapping;
  require(query.has_value() == query_output.has_value(), "query and query_output go together");
  require(key.has_value() == key_cache.has_value(), "key and key_cache go together");
  require(value.has_value() == value_cache.has_value(), "value and value_cache go together");
  if (const auto view = held.keep("query", query)) {
    std::tie(problem.heads, problem.head_size) = head_shape(*view, source);
    problem.query = rows_of(*view, source, problem.heads, problem.head_size);
    problem.query_output = rows_of(*held.keep("query_output", query_output), source, problem.heads, problem.head_size);
  }
  if (const auto view = held.keep("key", key)) {
    const auto [heads, channels] = head_shape(*view, source);
    require(!query || channels == problem.head_size, view->described() + "; the channels of query are expected");
    problem.kv_heads = heads;
    problem.head_size = channels;
    problem.key = rows_of(*view, source, heads, channels);
    const View cache = *held.keep("key_cache", key_cache);
    kv_heads_of(cache, paged);
    problem.key_cache =
        cache_of(cache, held.keep("k_scale", k_scale), paged, {heads, channels}, source.batch_size, problem.addressing);
  }
  if (const auto view = held.keep("value", value)) {
    const auto [heads, channels] = head_shape(*view, source);
    require(!key || heads == problem.kv_heads, view->described() + "; the heads of key are expected");
    problem.kv_heads = heads;
    problem.v_head_size = channels;
    problem.value = rows_of(*view, source, heads, channels);
    const View cache = *held.keep("value_cache", value_cache);
    kv_heads_of(cache, paged);
    problem.value_cache =
        cache_of(cache, held.keep("v_scale", v_scale), paged, {heads, channels}, source.batch_size, problem.addressing);
  }
  if (block_table) set_block_table(*held.keep("block_table", block_table), source.batch_size, problem.addressing);
  if (const auto view = held.keep("slot_mapping", slot_mapping)) {
    const IndexArray slots = indices_of(*view, source.flat() ? source.rows : source.batch_size * source.rows);
    problem.slots = slots.data;
    problem.wide_slots = slots.wide;
    problem.slot_stride = slots.stride;
  }
  problem.interleaved = interleaved;
  problem.rotary_offset = rotary_offset;
  const auto cos_view = held.keep("cos", cos), sin_view = held.keep("sin", sin);
  require(cos_view.has_value() == sin_view.has_value(), "cos and sin go together");
  if (cos_view) set_rotary(*cos_view, sin_view, held.keep("position_ids", position_ids), source, problem);
  problem.q_norm_weight = norm_weight(held.keep("q_norm_weight", q_norm_weight), problem);
  problem.k_norm_weight = norm_weight(held.keep("k_norm_weight", k_norm_weight), problem);
  problem.q_norm_epsilon = q_norm_epsilon;
  problem.k_norm_epsilon = k_norm_epsilon;
  problem.divide = divides(rule);
  bound.call.level = &find_level(level.value_or(""));
  bound.call.threads = threads_of(threads);
  new (self) BoundAppend(std::move(bound));
}

void run(const BoundAppend& self) {
  nb::gil_scoped_release release;
  self.call.run();
}

}  // namespace

void bind_append(nb::module_& module) {
  nb::class_<BoundAppend>(module, "Append")
      .def("__init__", &init, nb::keep_alive<1, 2>(), nb::arg("sequences"), nb::kw_only(),
           nb::arg("query").noconvert() = nb::none(), nb::arg("query_output").noconvert() = nb::none(),
           nb::arg("key").noconvert() = nb::none(), nb::arg("value").noconvert() = nb::none(),
           nb::arg("key_cache").noconvert() = nb::none(), nb::arg("value_cache").noconvert() = nb::none(),
           nb::arg("k_scale").noconvert() = nb::none(), nb::arg("v_scale").noconvert() = nb::none(),
           nb::arg("block_table").noconvert() = nb::none(), nb::arg("slot_mapping").noconvert() = nb::none(),
           nb::arg("cos").noconvert() = nb::none(), nb::arg("sin").noconvert() = nb::none(),
           nb::arg("position_ids").noconvert() = nb::none(), nb::arg("interleaved") = false,
           nb::arg("rotary_offset") = 0, nb::arg("q_norm_weight").noconvert() = nb::none(),
           nb::arg("k_norm_weight").noconvert() = nb::none(), nb::arg("q_norm_epsilon") = 1e-6f,
           nb::arg("k_norm_epsilon") = 1e-6f, nb::arg("rule") = "reciprocal", nb::arg("level") = nb::none(),
           nb::arg("threads") = nb::none())
      .def("__call__", &run);
}

}  // namespace pageloom
