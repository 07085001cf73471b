// Tiles of AMX: 16 rows of 64 bytes each. A product adds, to 16 x 16 floats, 16 x 32 bfloat16 by 16 pairs x 16
// bfloat16.
#pragma once

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
    configuration.row_bytes[tile] = 64;
    configuration.rows[tile] = 16;
  }
  _tile_loadconfig(&configuration);
}
PAGELOOM_INLINE void tiles_end() { _tile_release(); }

// The number of a tile is part of the instruction, hence macros. Strides in bytes.
#define PAGELOOM_TILE_ZERO(tile) _tile_zero(tile)
#define PAGELOOM_TILE_LOAD(tile, data, stride) _tile_loadd(tile, data, stride)
#define PAGELOOM_TILE_STORE(tile, data, stride) _tile_stored(tile, data, stride)
#define PAGELOOM_TILE_MULTIPLY(sum, a, b) _tile_dpbf16ps(sum, a, b)
