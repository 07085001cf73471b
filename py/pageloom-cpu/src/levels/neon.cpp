#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "core/problem.hpp"

namespace pageloom {
namespace neon {
namespace {
#include "simd/neon.hpp"

#include "kernels/float_products.hpp"
#include "kernels/level.hpp"
}  // namespace

extern const LevelKernels kernels;
constexpr LevelKernels kernels = kKernels;
}  // namespace neon
}  // namespace pageloom
