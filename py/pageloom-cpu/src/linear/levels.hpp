// The layer kernels of each level that core/levels.hpp finds.
#pragma once

#include <string>

#include "linear/problem.hpp"

namespace pageloom {

// Those of the level called `name`, or of the fastest that runs for an empty name. Throws std::invalid_argument for one
// that does not run here.
const LinearKernels& find_linear_kernels(const std::string& name);

}  // namespace pageloom
