#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <tuple>

#include "binding/bind.hpp"

namespace pageloom {

namespace {

void init(BoundSequences* self, int64_t batch_size, int64_t rows, const OptionalInput& query_offsets,
          const OptionalInput& query_lengths, const OptionalInput& past_lengths, const OptionalInput& total_lengths,
          int64_t total_offset, std::optional<int64_t> total, std::optional<int64_t> first_position, bool clamp_first,
          std::optional<int64_t> position_limit) {
  require(batch_size >= 0 && rows >= 0, "batch_size and rows must be at least 0");
  require(!(query_offsets && query_lengths), "query_lengths is given with query_offsets; give one of them");
  require(past_lengths.has_value() + total_lengths.has_value() + total.has_value() == 1,
          "give exactly one of past_lengths, total_lengths and total");
  new (self) BoundSequences;
  SequenceSource& source = self->source;
  source.batch_size = batch_size;
  source.rows = rows;
  if (const auto view = self->held.keep("query_offsets", query_offsets)) {
    source.query_offsets = indices_of(*view, batch_size + 1);
  }
  if (const auto view = self->held.keep("query_lengths", query_lengths)) {
    source.query_lengths = indices_of(*view, batch_size);
  }
  if (const auto view = self->held.keep("past_lengths", past_lengths))
    source.past_lengths = indices_of(*view, batch_size);
  if (const auto view = self->held.keep("total_lengths", total_lengths)) {
    source.total_lengths = indices_of(*view, batch_size);
  }
  source.total_offset = total_offset;
  source.total = total.value_or(0);
  source.has_first = first_position.has_value();
  source.first_position = first_position.value_or(0);
  source.clamp_first = clamp_first;
  source.position_limit = position_limit.value_or(std::numeric_limits<int64_t>::max());
}

std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>> resolve(const BoundSequences& self) {
  std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>> result;
  for (int64_t b = 0; b < self.source.batch_size; b++) {
    const Sequence s = self.source.resolve(b, std::numeric_limits<int64_t>::max());
    result.emplace_back(s.query_row, s.count, s.first, s.total);
  }
  return result;
}

}  // namespace

void bind_sequences(nb::module_& module) {
  nb::class_<BoundSequences>(module, "Sequences")
      .def("__init__", &init, nb::arg("batch_size"), nb::arg("rows"), nb::kw_only(),
           nb::arg("query_offsets").noconvert() = nb::none(), nb::arg("query_lengths").noconvert() = nb::none(),
           nb::arg("past_lengths").noconvert() = nb::none(), nb::arg("total_lengths").noconvert() = nb::none(),
           nb::arg("total_offset") = 0, nb::arg("total") = nb::none(), nb::arg("first_position") = nb::none(),
           nb::arg("clamp_first") = false, nb::arg("position_limit") = nb::none())
      .def("resolve", &resolve);
}

}  // namespace pageloom
