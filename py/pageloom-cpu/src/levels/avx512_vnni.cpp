#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "core/problem.hpp"

namespace pageloom {
namespace avx512_vnni {
namespace {
#include "simd/avx512.hpp"
#include "simd/vnni.hpp"

#include "kernels/code_products.hpp"
#include "kernels/level.hpp"
}  // namespace

extern const LevelKernels kernels;
constexpr LevelKernels kernels = kKernels;
}  // namespace avx512_vnni
}  // namespace pageloom
