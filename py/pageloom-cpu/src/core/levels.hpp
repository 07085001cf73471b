// Which instruction-set levels run here, asked of the CPU's feature bits and of the kernel, never of the model's name.
#pragma once

#include <string>
#include <vector>

#include "core/problem.hpp"

namespace pageloom {

struct Level {
  std::string name;
  const LevelKernels* kernels;  // nullptr where it cannot run
  std::string unavailable;      // why it cannot
};

// All levels that this build knows, slowest first.
const std::vector<Level>& all_levels();

// The level called `name`, or the fastest that runs for an empty name. Throws std::invalid_argument for one that does
// not.
const Level& find_level(const std::string& name);

struct CacheSizes {
  int64_t l1d, l2, l3;  // bytes; what is not known is 32 KiB, 512 KiB and 0
};
CacheSizes cache_sizes();

}  // namespace pageloom
