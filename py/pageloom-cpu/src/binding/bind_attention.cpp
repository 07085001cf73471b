#include <nanobind/stl/string.h>

#include <cmath>

#include "binding/bind.hpp"
#include "core/thread_pool.hpp"

namespace pageloom {

namespace {

Path path_of(const std::string& name) {
  if (name.empty()) return Path::choose;
  if (name == "naive") return Path::naive;
  if (name == "flash") return Path::flash;
  require(name == "flash_decoding", "path is '" + name + "'; naive, flash and flash_decoding are allowed");
  return Path::flash_decoding;
}

const char* name_of(Path path) {
  return path == Path::naive ? "naive" : path == Path::flash_decoding ? "flash_decoding" : "flash";
}

QkStage stage_of(const std::string& name) {
  if (name == "scaled") return QkStage::scaled;
  if (name == "softcapped") return QkStage::softcapped;
  if (name == "masked") return QkStage::masked;
  require(name == "probabilities",
          "qk_stage is '" + name + "'; scaled, softcapped, masked and probabilities are allowed");
  return QkStage::probabilities;
}

// One axis of a broadcast array: its stride, or 0 where it has one element for `extent`.
int64_t broadcast_stride(const View& view, size_t axis, int64_t extent, const char* meaning) {
  require(view.shape[axis] == extent || view.shape[axis] == 1, view.described() + "; axis " + std::to_string(axis) +
                                                                   " must be 1 or " + std::to_string(extent) +
                                                                   ", the " + meaning);
  return view.shape[axis] == 1 ? 0 : view.strides[axis];
}

void set_bias(const View& view, const SequenceSource& source, AttentionProblem& problem) {
  require(!source.flat(), "bias is given with query_offsets; a bias needs a query of [batch, rows, heads, channels]");
  require(view.shape.size() == 4, view.described() + "; (batch or 1, heads or 1, rows or 1, columns) is expected");
  Bias& bias = problem.bias;
  bias.data = view.data;
  bias.element = view.is(nb::dlpack::dtype_code::Bool, 8) ? Element::boolean : float_element(view);
  bias.sequence_stride = broadcast_stride(view, 0, source.batch_size, "batch size");
  bias.head_stride = broadcast_stride(view, 1, problem.heads, "heads");
  bias.row_stride = broadcast_stride(view, 2, source.rows, "rows");
  bias.column_stride = view.strides[3];
  bias.columns = view.shape[3];
}

void set_log_sum_exp(const View& view, const SequenceSource& source, AttentionProblem& problem) {
  require(view.is(nb::dlpack::dtype_code::Float, 32), "log_sum_exp must be float32");
  const size_t axis = source.flat() ? 0 : 1;
  if (source.flat()) {
    require_shape(view, {source.rows, problem.heads}, "tokens, heads");
  } else {
    require_shape(view, {source.batch_size, source.rows, problem.heads}, "batch, rows, heads");
  }
  LogSumExp& lse = problem.log_sum_exp;
  lse.data = reinterpret_cast<float*>(view.data);
  lse.sequence_stride = source.flat() ? 0 : view.strides[0] / 4;
  lse.row_stride = view.strides[axis] / 4;
  lse.head_stride = view.strides[axis + 1] / 4;
}

void set_qk_output(const View& view, const SequenceSource& source, AttentionProblem& problem) {
  require(!source.flat(), "qk_output is given with query_offsets; it needs a query of [batch, rows, heads, channels]");
  require(view.shape.size() == 4, view.described() + "; (batch, heads, rows, columns) is expected");
  require_shape(view, {source.batch_size, problem.heads, source.rows, view.shape[3]}, "batch, heads, rows, columns");
  require_contiguous_channels(view);
  problem.qk.data = view.data;
  problem.qk.element = float_element(view);
  problem.qk.sequence_stride = view.strides[0];
  problem.qk.head_stride = view.strides[1];
  problem.qk.row_stride = view.strides[2];
  problem.qk.columns = view.shape[3];
}

void set_approximation(const std::string& name, AttentionCall& call) {
  AttentionProblem& problem = call.problem;
  require(name == "int16" || name == "int8_query", "approximation is '" + name + "'; int16 and int8_query are allowed");
  if (name == "int16") {
    require(call.level->name == "avx512_amx",
            "approximation 'int16' needs level avx512_amx; the call runs on " + call.level->name);
    problem.two_limbs = true;
    return;
  }
  const int least = call.level->kernels->least_rounded;
  require(least > 0,
          "approximation 'int8_query' needs level avx512_vnni or avx512_amx; the call runs on " + call.level->name);
  require(problem.key.element == Element::i8, "approximation 'int8_query' is given, but key_cache is not int8");
  require(problem.head_size >= least,
          "approximation 'int8_query' takes heads of at least " + std::to_string(least) + " channels");
  problem.int8_query = true;
}

void init(BoundAttention* self, const BoundSequences& sequences, const Input& query, const Output& output,
          const Input& key_cache, const OptionalInput& value_cache, const OptionalInput& k_scale,
          const OptionalInput& v_scale, const OptionalInput& block_table, float scale, float softcap, bool causal,
          int64_t window, const OptionalInput& sinks, const OptionalInput& bias, const OptionalOutput& log_sum_exp,
          const OptionalOutput& qk_output, const std::string& qk_stage, float qk_hidden,
          const std::optional<std::string>& path, const std::optional<std::string>& level,
          const std::optional<std::string>& approximation, std::optional<int> threads) {
  BoundAttention bound;
  AttentionProblem& problem = bound.call.problem;
  const SequenceSource& source = sequences.source;
  bound.call.source = source;
  const View q = *bound.held.keep("query", OptionalInput(query)),
             out = *bound.held.keep("output", OptionalOutput(output));
  const View key = *bound.held.keep("key_cache", OptionalInput(key_cache));
  const size_t rank = source.flat() ? 3 : 4;
  require(q.shape.size() == rank, q.described() + "; " + std::to_string(rank) + " axes are expected");
  require(out.shape.size() == rank, out.described() + "; " + std::to_string(rank) + " axes are expected");
  const bool paged = block_table.has_value();
  problem.heads = static_cast<int>(q.shape[rank - 2]);
  problem.head_size = static_cast<int>(q.shape[rank - 1]);
  problem.v_head_size = static_cast<int>(out.shape[rank - 1]);
  problem.kv_heads = static_cast<int>(kv_heads_of(key, paged));
  require(
      problem.kv_heads > 0 && problem.heads > 0 && problem.heads % problem.kv_heads == 0,
      q.described() + "; heads must be a multiple of the " + std::to_string(problem.kv_heads) + " heads of key_cache");
  require(problem.head_size > 0 && problem.v_head_size > 0, "query and output must have at least one channel");
  problem.group = problem.heads / problem.kv_heads;
  problem.query = rows_of(q, source, problem.heads, problem.head_size);
  problem.output = rows_of(out, source, problem.heads, problem.v_head_size);
  problem.key = cache_of(key, bound.held.keep("k_scale", k_scale), paged, {problem.kv_heads, problem.head_size},
                         source.batch_size, problem.addressing);
  if (value_cache) {
    problem.value = cache_of(*bound.held.keep("value_cache", value_cache), bound.held.keep("v_scale", v_scale), paged,
                             {problem.kv_heads, problem.v_head_size}, source.batch_size, problem.addressing);
  } else {
    require(problem.kv_heads == 1,
            "value_cache is missing; it may be with one K/V head alone, whose first channels are V");
    require(problem.v_head_size <= problem.head_size,
            out.described() + "; V is part of a row of key_cache, which is shorter");
    require(!v_scale, "v_scale is given without value_cache; V takes k_scale");
    problem.value = problem.key;
  }
  if (paged) set_block_table(*bound.held.keep("block_table", block_table), source.batch_size, problem.addressing);
  require(std::isfinite(scale), "scale must be finite");
  require(softcap >= 0 && std::isfinite(softcap), "softcap must be finite and at least 0");
  require(window >= 0, "window must be at least 0");
  problem.scale = scale;
  problem.softcap = softcap;
  problem.causal = causal;
  problem.window = window;
  if (const auto view = bound.held.keep("sinks", sinks)) {
    require_shape(*view, {problem.heads}, "one for each head");
    require_contiguous_channels(*view);
    problem.sink_element = float_element(*view);
    problem.sinks = view->data;
  }
  if (const auto view = bound.held.keep("bias", bias)) set_bias(*view, source, problem);
  if (const auto view = bound.held.keep("log_sum_exp", log_sum_exp)) set_log_sum_exp(*view, source, problem);
  bound.call.path = path_of(path.value_or(""));
  problem.qk.stage = stage_of(qk_stage);
  problem.qk.hidden = qk_hidden;
  if (const auto view = bound.held.keep("qk_output", qk_output)) {
    set_qk_output(*view, source, problem);
    require(bound.call.path == Path::choose || bound.call.path == Path::naive,
            "path is '" + path.value_or("") + "' with qk_output; naive is the one that keeps the scores");
    bound.call.path = Path::naive;
  }
  bound.call.level = &find_level(level.value_or(""));
  bound.call.threads = threads_of(threads);
  if (approximation) set_approximation(*approximation, bound.call);
  new (self) BoundAttention(std::move(bound));
}

void run(const BoundAttention& self) {
  nb::gil_scoped_release release;
  self.call.run();
}

nb::dict plan(const BoundAttention& self) {
  const Plan plan = self.call.plan();
  nb::dict result;
  result["path"] = name_of(plan.path);
  result["level"] = self.call.level->name;
  const AttentionProblem& problem = self.call.problem;
  if (problem.two_limbs) {
    result["approximation"] = "int16";
  } else if (problem.int8_query) {
    result["approximation"] = "int8_query";
  } else {
    result["approximation"] = nb::none();
  }
  result["tasks"] = plan.tasks.size();
  result["splits"] = plan.splits;
  result["threads"] = plan.threads;
  bool tile = false;
  for (const PlannedTask& task : plan.tasks) tile |= task.kernel == Kernel::tile;
  result["row_tile"] = tile ? plan.row_tile * self.call.problem.group : 1;
  result["kv_block"] = tile ? plan.kv_block_tile : plan.row_blocks.block;
  result["scratch_bytes"] =
      (plan.task_floats * static_cast<size_t>(plan.threads) + plan.partial_floats) * sizeof(float);
  return result;
}

}  // namespace

void bind_attention(nb::module_& module) {
  nb::class_<BoundAttention>(module, "Attention")
      .def("__init__", &init, nb::keep_alive<1, 2>(), nb::arg("sequences"), nb::arg("query").noconvert(),
           nb::arg("output").noconvert(), nb::arg("key_cache").noconvert(),
           nb::arg("value_cache").noconvert() = nb::none(), nb::kw_only(), nb::arg("k_scale").noconvert() = nb::none(),
           nb::arg("v_scale").noconvert() = nb::none(), nb::arg("block_table").noconvert() = nb::none(),
           nb::arg("scale"), nb::arg("softcap") = 0.0f, nb::arg("causal") = true, nb::arg("window") = 0,
           nb::arg("sinks").noconvert() = nb::none(), nb::arg("bias").noconvert() = nb::none(),
           nb::arg("log_sum_exp").noconvert() = nb::none(), nb::arg("qk_output").noconvert() = nb::none(),
           nb::arg("qk_stage") = "probabilities", nb::arg("qk_hidden") = 0.0f, nb::arg("path") = nb::none(),
           nb::arg("level") = nb::none(), nb::arg("approximation") = nb::none(), nb::arg("threads") = nb::none())
      .def("__call__", &run)
      .def("plan", &plan);
}

}  // namespace pageloom
