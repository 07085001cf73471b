#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "core/problem.hpp"

namespace pageloom {
namespace avx2 {
namespace {
#include "simd/avx2.hpp"

#include "kernels/float_products.hpp"
#include "kernels/level.hpp"
}  // namespace

extern const LevelKernels kernels;
constexpr LevelKernels kernels = kKernels;
}  // namespace avx2
}  // namespace pageloom
