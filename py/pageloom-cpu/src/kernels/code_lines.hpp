// Rows of int8 and int4 codes, a vector of bytes (a line) at a time.
#pragma once

// Line `line` of a row of `bytes` bytes; zeros behind the last.
template <bool Whole>
PAGELOOM_INLINE __m512i load_line(const char* row, int64_t line, int64_t bytes) {
  if (Whole) return _mm512_loadu_si512(row + line * kLine);
  return _mm512_maskz_loadu_epi8((1ull << (bytes - line * kLine)) - 1, row + line * kLine);
}

// What to ask for while lines are multiplied: two neighbouring lines of every other place in turns, which memory gives
// sooner than one of each. A few at a time, since a core waits for so few that more would hold up its loads.
struct LinesAhead {
  const Ahead& ahead;
  const char* const* rows;  // those that are worked on
  int64_t num_rows, count;  // lines of a place
  LinesAhead(const Ahead& ahead, const char* const* rows, int64_t num_rows)
      : ahead(ahead),
        rows(rows),
        num_rows(num_rows),
        count((num_rows * ahead.bytes / static_cast<int64_t>(kStreams) + kLine - 1) / kLine) {}

  // The i-th quarter of what goes with line `line`.
  void ask(int64_t line, int i) const {
    if (line >= count) return;
    const char* place = ahead.places[2 * i + line % 2] + line / 2 * (2 * kLine);
    __builtin_prefetch(place, 0, 3);
    __builtin_prefetch(place + kLine, 0, 3);
  }

  // Line `line` of row `row`, if there is one, where rows lie apart.
  void ask_row(int64_t row, int64_t offset, int64_t line) const {
    if (!ahead.apart || row >= num_rows) return;
    __builtin_prefetch(rows[row] + offset + line * kLine, 0, 3);
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
