// From ggml's blocks of one row to one lane of a panel.
#pragma once

#include "linear/formats.hpp"

namespace pageloom {

// Writes `columns` weights of a row to lane `lane` of a panel of `lanes` rows. `columns` is a whole number of blocks.
// Returns whether all of its floats (weights, scales and minimums) are finite.
bool pack_row(Format format, const char* source, int64_t columns, int lanes, int lane, char* panel);

}  // namespace pageloom
