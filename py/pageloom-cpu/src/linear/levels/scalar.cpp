#include <math.h>
#include <string.h>

#include "linear/problem.hpp"

namespace pageloom {
namespace scalar {
namespace {
#include "simd/scalar.hpp"

#include "linear/level.hpp"
}  // namespace

extern const LinearKernels linear_kernels;
constexpr LinearKernels linear_kernels = kKernels;
}  // namespace scalar
}  // namespace pageloom
