// Tiles of AMX: 16 rows of 64 bytes each. A product adds, to 16 x 16 int32, 16 x 64 int8 by 16 quadruples x 16 bytes.
#pragma once

constexpr int64_t kTileRowBytes = 64, kTileBytes = 16 * kTileRowBytes;

struct TileConfiguration {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

// A thread's tiles are its own: each task sets them up and gives them back.
PAGELOOM_INLINE void tiles_begin() {
  TileConfiguration configuration;
  memset(&configuration, 0, sizeof configuration);
  configuration.palette = 1;
  for (int tile = 0; tile < 8; tile++) {
    configuration.row_bytes[tile] = kTileRowBytes;
    configuration.rows[tile] = 16;
  }
  // Of what _tile_loadconfig reads, GCC knows the first eight bytes alone.
  asm volatile("" ::"r"(&configuration) : "memory");
  _tile_loadconfig(&configuration);
}
PAGELOOM_INLINE void tiles_end() { _tile_release(); }

// The compiler does not know that loads of tiles read memory.
PAGELOOM_INLINE void tiles_written() { asm volatile("" ::: "memory"); }

// The number of a tile is part of the instruction, hence macros. The bytes of `a` are signed.
#define PAGELOOM_TILE_ZERO(tile) _tile_zero(tile)
#define PAGELOOM_TILE_LOAD(tile, data) _tile_loadd(tile, data, kTileRowBytes)
#define PAGELOOM_TILE_STORE(tile, data) _tile_stored(tile, data, kTileRowBytes)
#define PAGELOOM_TILE_MULTIPLY_SIGNED(sum, a, b) _tile_dpbssd(sum, a, b)
#define PAGELOOM_TILE_MULTIPLY_UNSIGNED(sum, a, b) _tile_dpbsud(sum, a, b)
