#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "linear/problem.hpp"

namespace pageloom {
namespace avx512 {
namespace {
#include "simd/avx512.hpp"

#include "linear/level.hpp"
}  // namespace

extern const LinearKernels linear_kernels;
constexpr LinearKernels linear_kernels = kKernels;
}  // namespace avx512
}  // namespace pageloom
