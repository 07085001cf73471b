// The block formats of ggml as they are packed here. Rows are gathered into panels of `lanes` rows; in a panel, each field
// of a row's block lies beside the same field of the other rows, so that a vector holds one column of all of them.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace pageloom {

enum class Format : uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };

// `columns` weights of a row are `source_bytes` in the file, and `packed_bytes` in a panel.
struct BlockSize {
  const char* name;
  int columns, source_bytes, packed_bytes;
};

constexpr BlockSize kBlockSizes[] = {
    {"F32", 1, 4, 4},      {"F16", 1, 2, 2},      {"BF16", 1, 2, 2},       {"Q4_0", 32, 18, 18},
    {"Q4_1", 32, 20, 20},  {"Q5_0", 32, 22, 22},  {"Q5_1", 32, 24, 24},    {"Q8_0", 32, 34, 34},
    {"Q4_K", 256, 144, 148}, {"Q5_K", 256, 176, 180}, {"Q6_K", 256, 210, 210},
};

constexpr const BlockSize& block_size(Format format) { return kBlockSizes[static_cast<int>(format)]; }

}  // namespace pageloom
