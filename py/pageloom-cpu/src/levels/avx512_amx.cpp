#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "core/problem.hpp"

namespace pageloom {
namespace avx512_amx {
namespace {
#include "simd/avx512.hpp"
#include "simd/vnni.hpp"
#ifdef PAGELOOM_AMX_IN_LOOPS
#include "simd/amx_in_loops.hpp"
#else
#include "simd/amx.hpp"
#endif

#include "kernels/code_products.hpp"
#include "kernels/level.hpp"
#include "kernels/amx_operands.hpp"
#include "kernels/attend_amx.hpp"

constexpr LevelKernels with_tiles(LevelKernels kernels) {
  kernels.most_tile_keys = kMostKeys;
  kernels.tile_scratch = amx_scratch_size;
  kernels.attend_tile = attend_amx;
  return kernels;
}
}  // namespace

extern const LevelKernels kernels;
constexpr LevelKernels kernels = with_tiles(kKernels);
}  // namespace avx512_amx
}  // namespace pageloom
