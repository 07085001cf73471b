// Rows of int8 and int4 codes, a vector of bytes (a line) at a time.
#pragma once

// Line `line` of a row of `bytes` bytes; zeros behind the last.
template <bool Whole>
PAGELOOM_INLINE __m512i load_line(const char* row, int64_t line, int64_t bytes) {
  if (Whole) return _mm512_loadu_si512(row + line * kLine);
  return _mm512_maskz_loadu_epi8((1ull << (bytes - line * kLine)) - 1, row + line * kLine);
}

// What to ask for while lines are multiplied. What goes with a line is worked out once for all of it, and whether there
// is any: in so short loops each instruction counts.
struct LinesAhead {
  const Ahead& ahead;
  const char* const* rows;  // those that are worked on
  int64_t num_rows, count;  // lines of a place
  LinesAhead(const Ahead& ahead, const char* const* rows, int64_t num_rows)
      : ahead(ahead),
        rows(rows),
        num_rows(num_rows),
        count((num_rows * ahead.bytes / static_cast<int64_t>(kStreams) + kLine - 1) / kLine) {}

  // Two neighbouring lines of every other place in turns, which memory gives sooner than one of each. They are asked
  // for a few at a time, since a core waits for so few that more would hold up its loads.
  struct Turn {
    const char* const* places;  // nullptr where nothing is left
    int64_t offset;

    // The i-th quarter.
    void ask(int i) const {
      if (!places) return;
      const char* place = places[2 * i] + offset;
      __builtin_prefetch(place, 0, 3);
      __builtin_prefetch(place + kLine, 0, 3);
    }
  };

  // What goes with line `line`.
  Turn turn(int64_t line) const {
    if (line >= count) return {nullptr, 0};
    return {ahead.places + (line & 1), ahead.after((line >> 1) * (2 * kLine))};
  }

  // Rows [first, first + some), if rows lie apart and there are so many; nullptr else.
  const char* const* apart(int64_t first, int64_t some) const {
    return ahead.apart && first + some <= num_rows ? rows + first : nullptr;
  }
};

// The last rows, the very last again in place of those that are missing.
template <int Count>
struct LastRows {
  const char* rows[Count];
  LastRows(const char* const* all, int64_t first, int64_t count) {
    for (int r = 0; r < Count; r++) rows[r] = all[smaller(first + r, count - 1)];
  }
};
