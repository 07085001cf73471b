// What simd/amx.hpp offers, in loops: the logic of the AMX kernels runs, slowly, on any CPU with their vectors.
#pragma once

constexpr int64_t kTileRowBytes = 64, kTileBytes = 16 * kTileRowBytes;

static thread_local char tiles_in_memory[8][kTileBytes];

PAGELOOM_INLINE void tiles_begin() {}
PAGELOOM_INLINE void tiles_end() {}
PAGELOOM_INLINE void tiles_written() {}

template <class B>
static void multiply_in_loops(int sum, int a, int b) {
  const int8_t* left = reinterpret_cast<const int8_t*>(tiles_in_memory[a]);
  const B* right = reinterpret_cast<const B*>(tiles_in_memory[b]);
  int32_t* sums = reinterpret_cast<int32_t*>(tiles_in_memory[sum]);
  for (int i = 0; i < 16; i++) {
    for (int j = 0; j < 16; j++) {
      for (int k = 0; k < 64; k++) sums[16 * i + j] += left[64 * i + k] * right[k / 4 * 64 + 4 * j + k % 4];
    }
  }
}

#define PAGELOOM_TILE_ZERO(tile) memset(tiles_in_memory[tile], 0, kTileBytes)
#define PAGELOOM_TILE_LOAD(tile, data) memcpy(tiles_in_memory[tile], data, kTileBytes)
#define PAGELOOM_TILE_STORE(tile, data) memcpy(data, tiles_in_memory[tile], kTileBytes)
#define PAGELOOM_TILE_MULTIPLY_SIGNED(sum, a, b) multiply_in_loops<int8_t>(sum, a, b)
#define PAGELOOM_TILE_MULTIPLY_UNSIGNED(sum, a, b) multiply_in_loops<uint8_t>(sum, a, b)
