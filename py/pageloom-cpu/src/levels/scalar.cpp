#include <math.h>
#include <string.h>

#include "core/problem.hpp"

namespace pageloom {
namespace scalar {
namespace {
#include "simd/scalar.hpp"

#include "kernels/float_products.hpp"
#include "kernels/level.hpp"
}  // namespace

extern const LevelKernels kernels;
constexpr LevelKernels kernels = kKernels;
}  // namespace scalar
}  // namespace pageloom
