#include <nanobind/stl/vector.h>

#include "binding/bind_calls.hpp"

namespace pageloom {

namespace {

// Bound calls, and how to run each without the interpreter.
struct Step {
  struct Entry {
    void (*run)(const void* call);
    const void* call;
  };
  std::vector<Entry> entries;
  std::vector<nb::object> held;
};

template <class Bound>
bool add(Step& step, nb::handle object) {
  if (!nb::isinstance<Bound>(object)) return false;
  step.entries.push_back({[](const void* call) { static_cast<const Bound*>(call)->call.run(); }, nb::cast<Bound*>(object)});
  return true;
}

void init(Step* self, const std::vector<nb::object>& calls) {
  Step step;
  for (const nb::object& object : calls) {
    const bool known = add<BoundAppend>(step, object) || add<BoundAttention>(step, object) ||
                       add<BoundCall<EmbedCall>>(step, object) || add<BoundCall<RmsNormCall>>(step, object) ||
                       add<BoundCall<LinearCall>>(step, object) || add<BoundCall<GatedLinearCall>>(step, object) ||
                       add<BoundCall<SelectRowsCall>>(step, object) || add<BoundCall<CandidatesCall>>(step, object);
    require(known, "calls has something that is none of this module's calls");
  }
  step.held = calls;
  new (self) Step(std::move(step));
}

void run(const Step& self) {
  nb::gil_scoped_release release;
  for (const Step::Entry& entry : self.entries) entry.run(entry.call);
}

}  // namespace

void bind_step(nb::module_& module) {
  nb::class_<Step>(module, "Step").def("__init__", &init, nb::arg("calls")).def("__call__", &run);
}

}  // namespace pageloom
