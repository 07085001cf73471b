#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "binding/bind_calls.hpp"
#include "linear/levels.hpp"

namespace pageloom {

namespace {

using nb::dlpack::dtype_code;

Format format_of(const std::string& name) {
  std::string known;
  for (int i = 0; i < static_cast<int>(std::size(kBlockSizes)); i++) {
    if (name == kBlockSizes[i].name) return static_cast<Format>(i);
    known += (i ? ", " : "") + std::string(kBlockSizes[i].name);
  }
  throw std::invalid_argument("format is '" + name + "'; known are " + known);
}

void init_matrix(Matrix* self, int64_t rows, int64_t columns, const std::string& format,
                 const std::optional<std::string>& level) {
  const Format kind = format_of(format);
  const int block = block_size(kind).columns;
  require(rows > 0 && columns > 0, "rows and columns must be at least 1");
  require(columns % block == 0,
          "columns is " + std::to_string(columns) + "; a multiple of the " + std::to_string(block) + " of a block is expected");
  new (self) Matrix(kind, rows, columns, find_linear_kernels(level.value_or("")));
}

void load_matrix(Matrix& self, const Input& data, int64_t first_row) {
  const View view = view_of("data", data);
  require(view.is(dtype_code::UInt, 8) && view.shape.size() == 1 && (view.shape[0] < 2 || view.strides[0] == 1),
          "data must be the bytes of whole rows: contiguous uint8 with one axis");
  const int64_t row_bytes = self.source_row_bytes(), count = view.shape[0] / row_bytes;
  require(view.shape[0] % row_bytes == 0,
          view.described() + "; a multiple of the " + std::to_string(row_bytes) + " bytes of a row is expected");
  require(first_row >= 0 && first_row + count <= self.panels().rows,
          "rows " + std::to_string(first_row) + " to " + std::to_string(first_row + count) + " leave the matrix of " +
              std::to_string(self.panels().rows));
  bool finite;
  {
    nb::gil_scoped_release release;
    finite = self.load(view.data, first_row, count);
  }
  require(finite, "data has weights or scales that are not finite");
}

// float32 [rows, width] whose rows may lie apart.
Values values_of(const View& view) {
  require(view.is(dtype_code::Float, 32) && view.shape.size() == 2,
          view.described() + "; float32 with the axes (rows, width) is expected");
  require_contiguous_channels(view);
  require(view.strides[0] >= 0 && view.strides[0] % 4 == 0, view.name + " must have rows of whole floats, in ascending order");
  return {reinterpret_cast<float*>(view.data), view.strides[0] / 4, view.shape[1], view.shape[0]};
}

const float* vector_of(const View& view, int64_t size) {
  require_shape(view, {size}, "one for each row of the weight");
  require(view.is(dtype_code::Float, 32), view.name + " must be float32");
  require_contiguous_channels(view);
  return reinterpret_cast<const float*>(view.data);
}

const int32_t* integers_of(const View& view, int64_t most) {
  require(view.is(dtype_code::Int, 32) && view.shape.size() == 1 && view.shape[0] >= most,
          view.described() + "; int32 of at least " + std::to_string(most) + " is expected");
  require_contiguous_channels(view);
  return reinterpret_cast<const int32_t*>(view.data);
}

template <class C>
Values keep(BoundCall<C>& bound, const char* name, const Input& array) {
  return values_of(*bound.held.keep(name, OptionalInput(array)));
}

template <class C>
Values keep(BoundCall<C>& bound, const char* name, const Output& array) {
  return values_of(*bound.held.keep(name, OptionalOutput(array)));
}

template <class C>
Values keep_residual(BoundCall<C>& bound, const OptionalInput& array, const Values& output) {
  const auto view = bound.held.keep("residual", array);
  if (!view) return {};
  require_shape(*view, {output.rows, output.width}, "the shape of output");
  return values_of(*view);
}

// At most as many as all of `most`.
template <class C>
RowCount keep_count(BoundCall<C>& bound, const char* name, const Input& array, std::initializer_list<int64_t> most) {
  return {integers_of(*bound.held.keep(name, OptionalInput(array)), 1), std::min(most)};
}

void require_width(const char* name, const Values& values, int64_t width) {
  require(values.width == width, std::string(name) + " has rows of " + std::to_string(values.width) + "; " +
                                     std::to_string(width) + " are expected");
}

void init_embed(BoundCall<EmbedCall>* self, const Matrix& matrix, const Input& ids, const Output& output,
                const Input& count, float scale) {
  BoundCall<EmbedCall> bound;
  EmbedCall& call = bound.call;
  call.matrix = &matrix;
  call.output = keep(bound, "output", output);
  require_width("output", call.output, matrix.panels().columns);
  call.ids = integers_of(*bound.held.keep("ids", OptionalInput(ids)), call.output.rows);
  call.count = keep_count(bound, "count", count, {call.output.rows});
  call.scale = scale;
  new (self) BoundCall<EmbedCall>(std::move(bound));
}

void init_rms_norm(BoundCall<RmsNormCall>* self, const Input& input, const Input& weight, const Output& output,
                   const Input& count, float epsilon, const OptionalInput& residual,
                   const std::optional<std::string>& level) {
  BoundCall<RmsNormCall> bound;
  RmsNormCall& call = bound.call;
  call.kernels = &find_linear_kernels(level.value_or(""));
  call.input = keep(bound, "input", input);
  call.output = keep(bound, "output", output);
  require_width("output", call.output, call.input.width);
  call.residual = keep_residual(bound, residual, call.output);
  call.problem.weight = vector_of(*bound.held.keep("weight", OptionalInput(weight)), call.input.width);
  call.problem.width = call.input.width;
  call.problem.epsilon = epsilon;
  call.count = keep_count(bound, "count", count, {call.input.rows, call.output.rows});
  new (self) BoundCall<RmsNormCall>(std::move(bound));
}

void init_linear(BoundCall<LinearCall>* self, const std::vector<nb::object>& matrices, const Input& input,
                 const Output& output, const Input& count, const std::vector<OptionalInput>& biases,
                 const OptionalInput& residual, float softcap) {
  BoundCall<LinearCall> bound;
  LinearCall& call = bound.call;
  call.input = keep(bound, "input", input);
  const Values out = keep(bound, "output", output);
  const Values added = keep_residual(bound, residual, out);
  require(!matrices.empty(), "matrices is empty");
  require(biases.empty() || biases.size() == matrices.size(), "biases must have one entry, or None, for each matrix");
  require(softcap >= 0 && std::isfinite(softcap), "softcap must be finite and at least 0");
  int64_t row = 0;
  for (size_t i = 0; i < matrices.size(); i++) {
    require(nb::isinstance<Matrix>(matrices[i]), "matrices has something that is no Matrix");
    Part part;
    part.matrix = nb::cast<const Matrix*>(matrices[i]);
    const Panels& panels = part.matrix->panels();
    require_width("input", call.input, panels.columns);
    part.output.data = out.data + row;
    part.output.stride = out.stride;
    part.output.softcap = softcap;
    if (added.data) part.output.residual = added.data + row;
    part.output.residual_stride = added.stride;
    if (!biases.empty()) {
      if (const auto view = bound.held.keep("bias", biases[i])) part.output.bias = vector_of(*view, panels.rows);
    }
    call.parts.push_back(part);
    row += panels.rows;
  }
  require_width("output", out, row);
  bound.objects = matrices;
  call.count = keep_count(bound, "count", count, {call.input.rows, out.rows});
  new (self) BoundCall<LinearCall>(std::move(bound));
}

void init_gated_linear(BoundCall<GatedLinearCall>* self, const Matrix& gate, const Matrix& up, const Input& input,
                       const Output& output, const Input& count, const std::string& activation) {
  BoundCall<GatedLinearCall> bound;
  GatedLinearCall& call = bound.call;
  require(gate.panels().rows == up.panels().rows && gate.panels().columns == up.panels().columns &&
              &gate.kernels() == &up.kernels(),
          "gate and up must have the same shape and level");
  require(activation == "silu" || activation == "gelu_tanh",
          "activation is '" + activation + "'; silu and gelu_tanh are allowed");
  call.gate = &gate;
  call.up = &up;
  call.activation = activation == "silu" ? Activation::silu : Activation::gelu_tanh;
  call.input = keep(bound, "input", input);
  call.output = keep(bound, "output", output);
  require_width("input", call.input, gate.panels().columns);
  require_width("output", call.output, gate.panels().rows);
  call.count = keep_count(bound, "count", count, {call.input.rows, call.output.rows});
  new (self) BoundCall<GatedLinearCall>(std::move(bound));
}

void init_select_rows(BoundCall<SelectRowsCall>* self, const Input& input, const Input& indices, const Output& output,
                      const Input& count) {
  BoundCall<SelectRowsCall> bound;
  SelectRowsCall& call = bound.call;
  call.input = keep(bound, "input", input);
  call.output = keep(bound, "output", output);
  require_width("output", call.output, call.input.width);
  call.indices = integers_of(*bound.held.keep("indices", OptionalInput(indices)), call.output.rows);
  call.count = keep_count(bound, "count", count, {call.output.rows});
  new (self) BoundCall<SelectRowsCall>(std::move(bound));
}

void init_candidates(BoundCall<CandidatesCall>* self, const Output& logits, const Input& count,
                     const Input& num_candidates, const Output& token_ids, const Output& values,
                     const Output& log_sum_exp, const Input& adjustment_rows, const Input& adjustment_tokens,
                     const Input& adjustment_divisors, const Input& adjustment_biases, const Input& num_adjustments,
                     const std::optional<std::string>& level) {
  BoundCall<CandidatesCall> bound;
  CandidatesCall& call = bound.call;
  call.kernels = &find_linear_kernels(level.value_or(""));
  call.logits = keep(bound, "logits", logits);
  const View ids = *bound.held.keep("token_ids", OptionalOutput(token_ids));
  const Values best = keep(bound, "values", values);
  require_shape(ids, {best.rows, best.width}, "the shape of values");
  require(ids.is(dtype_code::Int, 32) && ids.strides[0] == best.stride * 4, "token_ids must be int32, laid out as values");
  require_contiguous_channels(ids);
  call.ids = reinterpret_cast<int32_t*>(ids.data);
  call.values = best.data;
  call.stride = best.stride;
  call.log_sum_exp =
      const_cast<float*>(vector_of(*bound.held.keep("log_sum_exp", OptionalOutput(log_sum_exp)), best.rows));
  Adjustments& changed = call.adjustments;
  const View divisors = *bound.held.keep("adjustment_divisors", OptionalInput(adjustment_divisors));
  const int64_t most = divisors.size();
  changed.divisors = vector_of(divisors, most);
  changed.biases = vector_of(*bound.held.keep("adjustment_biases", OptionalInput(adjustment_biases)), most);
  changed.rows = integers_of(*bound.held.keep("adjustment_rows", OptionalInput(adjustment_rows)), most);
  changed.tokens = integers_of(*bound.held.keep("adjustment_tokens", OptionalInput(adjustment_tokens)), most);
  changed.count = keep_count(bound, "num_adjustments", num_adjustments, {most});
  call.candidates = keep_count(bound, "num_candidates", num_candidates, {best.width, call.logits.width});
  call.count = keep_count(bound, "count", count, {call.logits.rows, best.rows});
  new (self) BoundCall<CandidatesCall>(std::move(bound));
}

template <class C>
nb::class_<BoundCall<C>> bind_call(nb::module_& module, const char* name) {
  return nb::class_<BoundCall<C>>(module, name).def("__call__", [](const BoundCall<C>& self) {
    nb::gil_scoped_release release;
    self.call.run();
  });
}

}  // namespace

void bind_layers(nb::module_& module) {
  nb::class_<Matrix>(module, "Matrix")
      .def("__init__", &init_matrix, nb::arg("rows"), nb::arg("columns"), nb::arg("format"), nb::kw_only(),
           nb::arg("level") = nb::none())
      .def("load", &load_matrix, nb::arg("data").noconvert(), nb::arg("first_row") = 0)
      .def_prop_ro("nbytes", &Matrix::bytes);
  bind_call<EmbedCall>(module, "Embed")
      .def("__init__", &init_embed, nb::keep_alive<1, 2>(), nb::arg("matrix"), nb::arg("ids").noconvert(),
           nb::arg("output").noconvert(), nb::arg("count").noconvert(), nb::kw_only(), nb::arg("scale") = 1.0f);
  bind_call<RmsNormCall>(module, "RmsNorm")
      .def("__init__", &init_rms_norm, nb::arg("input").noconvert(), nb::arg("weight").noconvert(),
           nb::arg("output").noconvert(), nb::arg("count").noconvert(), nb::kw_only(), nb::arg("epsilon"),
           nb::arg("residual").noconvert() = nb::none(), nb::arg("level") = nb::none());
  bind_call<LinearCall>(module, "Linear")
      .def("__init__", &init_linear, nb::arg("matrices"), nb::arg("input").noconvert(),
           nb::arg("output").noconvert(), nb::arg("count").noconvert(), nb::kw_only(),
           nb::arg("biases") = std::vector<OptionalInput>(), nb::arg("residual").noconvert() = nb::none(),
           nb::arg("softcap") = 0.0f);
  bind_call<GatedLinearCall>(module, "GatedLinear")
      .def("__init__", &init_gated_linear, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::arg("gate"),
           nb::arg("up"), nb::arg("input").noconvert(), nb::arg("output").noconvert(), nb::arg("count").noconvert(),
           nb::kw_only(), nb::arg("activation"));
  bind_call<SelectRowsCall>(module, "SelectRows")
      .def("__init__", &init_select_rows, nb::arg("input").noconvert(), nb::arg("indices").noconvert(),
           nb::arg("output").noconvert(), nb::arg("count").noconvert());
  bind_call<CandidatesCall>(module, "Candidates")
      .def("__init__", &init_candidates, nb::arg("logits").noconvert(), nb::arg("count").noconvert(), nb::kw_only(),
           nb::arg("num_candidates").noconvert(), nb::arg("token_ids").noconvert(), nb::arg("values").noconvert(),
           nb::arg("log_sum_exp").noconvert(), nb::arg("adjustment_rows").noconvert(),
           nb::arg("adjustment_tokens").noconvert(), nb::arg("adjustment_divisors").noconvert(),
           nb::arg("adjustment_biases").noconvert(), nb::arg("num_adjustments").noconvert(),
           nb::arg("level") = nb::none());
}

}  // namespace pageloom
