#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "linear/problem.hpp"

namespace pageloom {
namespace neon {
namespace {
#include "simd/neon.hpp"

#include "linear/level.hpp"
}  // namespace

extern const LinearKernels linear_kernels;
constexpr LinearKernels linear_kernels = kKernels;
}  // namespace neon
}  // namespace pageloom
