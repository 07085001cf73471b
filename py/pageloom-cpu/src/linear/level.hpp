// All kernels of the layers at one level: included once by each file of levels/, inside its namespace, after its vectors.
#pragma once

#include "kernels/gemm.hpp"
#include "kernels/math.hpp"

#include "linear/decode.hpp"
#include "linear/few.hpp"
#include "linear/many.hpp"
#include "linear/rows.hpp"

// A constant, so that nothing of a level runs before it is known to be able to.
static constexpr LinearKernels kKernels = {
    kLanes, kFewTokens, kFewPanels, kTileRows, few, unpack, multiply_unpacked, store_sums,
    store_gated, rms_norm_row, log_sum_exp, next_above,
};
