// The parts of the module.
#pragma once

#include "binding/arrays.hpp"
#include "core/attention.hpp"

namespace pageloom {

// The arrays that a bound call reads and writes, kept alive with it.
struct Held {
  std::vector<Input> inputs;
  std::vector<Output> outputs;

  std::optional<View> keep(const char* name, const OptionalInput& array) {
    if (!array) return std::nullopt;
    inputs.push_back(*array);
    return view_of(name, *array);
  }
  std::optional<View> keep(const char* name, const OptionalOutput& array) {
    if (!array) return std::nullopt;
    outputs.push_back(*array);
    return view_of(name, *array);
  }
};

struct BoundSequences {
  SequenceSource source;
  Held held;
};

struct BoundAttention {
  AttentionCall call;
  Held held;
};

struct BoundAppend {
  AppendCall call;
  Held held;
};

void bind_sequences(nb::module_& module);
void bind_attention(nb::module_& module);
void bind_append(nb::module_& module);

}  // namespace pageloom
