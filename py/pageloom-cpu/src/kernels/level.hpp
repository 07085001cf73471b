// All kernels of one level: included once by each file of levels/, inside its namespace, after its vectors.
#pragma once

#include "kernels/channels.hpp"
#include "kernels/math.hpp"
#include "kernels/products.hpp"
#include "kernels/rows.hpp"
#include "kernels/logits.hpp"
#include "kernels/attend_rows.hpp"
#include "kernels/attend_naive.hpp"
#include "kernels/gemm.hpp"
#include "kernels/float_rows.hpp"
#include "kernels/panels.hpp"
#include "kernels/attend_tile.hpp"
#include "kernels/quantize.hpp"
#include "kernels/append.hpp"

// A constant, so that nothing of a level runs before it is known to be able to.
static constexpr LevelKernels kKernels = {
    kLanes,
    2 * kLanes,
    512,
    128,
    Products::kLeastRounded,
    partial_stride,
    rows_scratch_size,
    tile_scratch_size,
    attend_rows,
    attend_naive,
    naive_scratch_size,
    attend_tile,
    merge,
    append_row,
    append_scratch_size,
    quantize_row,
};
