// Bound calls of the layers, and steps of them.
#pragma once

#include "binding/bind.hpp"
#include "linear/calls.hpp"

namespace pageloom {

// A call with the arrays and matrices that it reads and writes.
template <class C>
struct BoundCall {
  C call;
  Held held;
  std::vector<nb::object> objects;
};

void bind_layers(nb::module_& module);
void bind_step(nb::module_& module);

}  // namespace pageloom
