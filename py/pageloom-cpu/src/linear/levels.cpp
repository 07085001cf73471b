#include "linear/levels.hpp"

#include <stdexcept>

#include "core/levels.hpp"

namespace pageloom {

namespace scalar {
extern const LinearKernels linear_kernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const LinearKernels linear_kernels;
}
namespace avx512 {
extern const LinearKernels linear_kernels;
}
#elif defined(__aarch64__)
namespace neon {
extern const LinearKernels linear_kernels;
}
#endif

const LinearKernels& find_linear_kernels(const std::string& name) {
  const std::string level = find_level(name).name;
  if (level == "scalar") return scalar::linear_kernels;
#if defined(__x86_64__)
  if (level == "avx2") return avx2::linear_kernels;
  return avx512::linear_kernels;  // and of the levels that add to it
#elif defined(__aarch64__)
  return neon::linear_kernels;
#else
  throw std::invalid_argument("level '" + level + "' has no layer kernels");
#endif
}

}  // namespace pageloom
