#include "core/plan.hpp"

#include <algorithm>

namespace pageloom {

namespace {

// Below this many multiplications a call ends sooner than another thread would begin.
constexpr int64_t kSmallCall = 400'000;
// Keys below which a part of a range costs more to merge than it saves, and below which it costs more than to read the
// heads of a token apart.
constexpr int64_t kShortestSplit = 256, kShortestOfAllHeads = 512;
// Keys of a thread from which on it costs next to nothing to cut a range into more parts than there are threads.
constexpr int64_t kLongShare = 1024;
constexpr int64_t kRowsKvBlock = 128;
constexpr int64_t kMostRowsKvBlock = 256;
// Where so many bytes of a head lie together, hardware reads ahead by itself.
constexpr int64_t kReadAheadBytes = 512;
// Less of a token than two cache lines is not worth reading apart from the rest.
constexpr int64_t kShortestColumns = 128;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool is_power_of_two(int64_t a) { return a > 0 && (a & (a - 1)) == 0; }

int64_t round_down(int64_t a, int64_t unit) { return std::max(unit, a / unit * unit); }

struct Range {
  int64_t begin, end;
  int64_t size() const { return std::max<int64_t>(0, end - begin); }
};

// How a range is cut: into `parts`, of which the first `large` are three times as long as the others. Those go to the
// threads that are done first: the cores of a machine that others use too are not equally fast.
struct Cut {
  int64_t parts = 1, large = 0;
  Range part(const Range& whole, int64_t i) const {
    const int64_t step = ceil_div(whole.size(), parts + 2 * large);
    auto begin = [&](int64_t part) {
      return std::min(whole.end, whole.begin + step * (part + 2 * std::min(part, large)));
    };
    return {begin(i), begin(i + 1)};
  }
};

// Keys that any of the rows [first_row, last_row] sees.
Range keys_of(const AttentionProblem& problem, const Sequence& s, int64_t first_row, int64_t last_row) {
  const int64_t end = problem.causal ? std::clamp<int64_t>(s.first + last_row + 1, 0, s.total) : s.total;
  const int64_t begin = problem.window > 0 ? std::max<int64_t>(0, s.first + first_row + 1 - problem.window) : 0;
  return {std::min(begin, end), end};
}

// Many rows share a converted block of keys; few read K and V in place.
Kernel kernel_of(const AttentionProblem& problem, const Sequence& s, int lanes) {
  const int64_t rows = s.count * problem.group;
  return rows >= std::max(lanes, 8) ? Kernel::tile : Kernel::rows;
}

// The unit of work that a task covers before its keys are split.
struct Unit {
  Kernel kernel;
  int64_t row_begin, row_end;
  int head_begin, head_end;
  Range keys;
};

class Planner {
 public:
  Planner(const AttentionProblem& problem, const LevelKernels& kernels, const std::vector<Sequence>& sequences,
          const PlanOptions& options, Plan& plan)
      : problem_(problem), kernels_(kernels), sequences_(sequences), options_(options), plan_(plan) {}

  void run() {
    plan_.tasks.clear();
    plan_.merges.clear();
    plan_.splits = 1;
    plan_.partial_floats = 0;
    choose_blocks();
    choose_threads();
    choose_heads();
    choose_split();
    // The longest tasks first: the last rows of a causal prompt see most.
    for (const Sequence& s : sequences_) {
      for_units(s, true, [&](const Unit& unit) { add_unit(s, unit); });
    }
    plan_.path = options_.path == Path::naive ? Path::naive : plan_.splits > 1 ? Path::flash_decoding : Path::flash;
    size_scratch();
  }

 private:
  bool heads_inside() const { return problem_.key.head_stride < problem_.key.row_stride; }

  void choose_blocks() {
    // Half of L2 for a tile: its converted block of K and V, and Q and the sums of its rows.
    const int64_t row_bytes = 4 * (problem_.head_size + problem_.v_head_size);
    const int64_t budget = options_.caches.l2 / 2;
    // A block's weights are summed up lane by lane: few lanes make long sums, whose roundings add up.
    const int64_t block = std::clamp<int64_t>(16 * kernels_.lanes, kRowsKvBlock, kMostRowsKvBlock);
    plan_.row_blocks = {block, block, true};
    if (heads_inside()) {
      // All heads of a piece and of the next one stay in a quarter of L2. Asking for what L3 has only costs time.
      const int64_t tokens = std::min(block, budget / 4 / std::max<int64_t>(1, problem_.key.row_stride));
      int64_t piece = 16;
      while (2 * piece <= tokens) piece *= 2;
      const bool ask_ahead = problem_.key.head_stride < kReadAheadBytes || !fits_l3();
      plan_.row_blocks = {std::max(kRowsKvBlock, piece), piece, ask_ahead};
    }
    plan_.kv_block_tile = std::clamp(round_down(budget / 2 / row_bytes, 16), int64_t{16}, kernels_.most_tile_keys);
    const int64_t rows = (budget - plan_.kv_block_tile * row_bytes) / row_bytes;
    const int64_t lanes = std::min(kernels_.most_tile_rows, round_down(rows, kernels_.tile_rows));
    plan_.row_tile = std::max<int64_t>(1, lanes / problem_.group);
  }

  // Whether K and V may be in L3 still, which others use too.
  bool fits_l3() const {
    int64_t bytes = 0;
    for (const Sequence& s : sequences_) {
      if (s.count == 0) continue;
      bytes += keys_of(problem_, s, 0, s.count - 1).size() * (problem_.key.row_stride + problem_.value.row_stride);
    }
    return bytes <= options_.caches.l3 / 8;
  }

  void choose_threads() {
    int64_t products = 0, units = 0;
    for (const Sequence& s : sequences_) {
      if (s.count == 0) continue;
      products += s.count * problem_.heads * keys_of(problem_, s, 0, s.count - 1).size() *
                  (problem_.head_size + problem_.v_head_size);
      units += kernel_of(problem_, s, kernels_.lanes) == Kernel::tile
                   ? ceil_div(s.count, plan_.row_tile) * problem_.kv_heads
                   : s.count * problem_.kv_heads;
    }
    plan_.threads = products < kSmallCall ? 1 : options_.threads;
    // Smaller tiles where there would be fewer than threads.
    if (units < plan_.threads) {
      const int64_t wanted = ceil_div(plan_.row_tile * units, plan_.threads);
      plan_.row_tile = std::max<int64_t>(ceil_div(kernels_.tile_rows, problem_.group), wanted);
    }
  }

  bool may_split() const { return options_.path != Path::naive && options_.path != Path::flash; }

  // Where heads lie inside a token, a row takes all of them together. If there are fewer rows than threads and they see
  // few keys, those share out the heads instead of the keys: nothing is merged then.
  void choose_heads() {
    row_heads_ = heads_inside() || plan_.threads == 1 ? problem_.kv_heads : 1;
    if (plan_.threads == 1 || !heads_inside() || !may_split() || problem_.key.head_stride >= kReadAheadBytes) return;
    int64_t rows = 0, longest = 0;
    for (const Sequence& s : sequences_) {
      rows += s.count;
      if (s.count > 0) longest = std::max(longest, keys_of(problem_, s, 0, s.count - 1).size());
    }
    if (longest >= plan_.threads * kShortestOfAllHeads) return;
    while (row_heads_ % 2 == 0 && rows * (problem_.kv_heads / row_heads_) < plan_.threads) {
      const int64_t columns[] = {row_heads_ / 2 * problem_.key.head_stride, row_heads_ / 2 * problem_.value.head_stride};
      for (const int64_t bytes : columns) {
        if (bytes < kShortestColumns || !is_power_of_two(bytes)) return;
      }
      row_heads_ /= 2;
    }
  }

  void choose_split() {
    split_ = INT64_MAX;
    large_parts_ = 0;
    if (!may_split()) return;
    int64_t units = 0, keys = 0, longest = 0;
    bool only_rows = true;
    for (const Sequence& s : sequences_) {
      for_units(s, false, [&](const Unit& unit) {
        units++;
        keys += unit.keys.size();
        longest = std::max(longest, unit.keys.size());
        only_rows &= unit.kernel == Kernel::rows;
      });
    }
    if (units > 0 && plan_.threads > 1 && units < 4 * plan_.threads) {
      const int64_t threads_of_unit = ceil_div(plan_.threads, units);
      if (only_rows && longest >= threads_of_unit * kLongShare) {
        large_parts_ = threads_of_unit;
      } else if (units % plan_.threads != 0) {
        const int64_t shares = units < plan_.threads ? plan_.threads : 2 * plan_.threads;
        split_ = std::max(kShortestSplit, ceil_div(keys, shares));
      }
    }
    if (options_.path == Path::flash_decoding) split_ = std::min(split_, std::max<int64_t>(1, ceil_div(longest, 2)));
  }

  Cut cut_of(const Range& keys) const {
    if (large_parts_ > 0 && keys.size() >= large_parts_ * kLongShare) return {2 * large_parts_, large_parts_};
    return {split_ == INT64_MAX ? 1 : std::max<int64_t>(1, ceil_div(keys.size(), split_)), 0};
  }

  template <class Visit>
  void for_units(const Sequence& s, bool last_first, Visit visit) const {
    if (s.count == 0) return;
    Kernel kernel = kernel_of(problem_, s, kernels_.lanes);
    if (options_.path == Path::naive) kernel = Kernel::naive;
    const int64_t step = kernel == Kernel::tile ? plan_.row_tile : 1;
    const int heads = kernel == Kernel::rows ? row_heads_ : plan_.threads == 1 ? problem_.kv_heads : 1;
    const int64_t tiles = ceil_div(s.count, step);
    for (int64_t i = 0; i < tiles; i++) {
      const int64_t row = (last_first ? tiles - 1 - i : i) * step, end = std::min(s.count, row + step);
      for (int head = 0; head < problem_.kv_heads; head += heads) {
        visit(Unit{kernel, row, end, head, head + heads, keys_of(problem_, s, row, end - 1)});
      }
    }
  }

  void add_unit(const Sequence& s, const Unit& unit) {
    const Cut cut = cut_of(unit.keys);
    AttentionTask task;
    task.sequence = s;
    task.row_begin = unit.row_begin;
    task.row_end = unit.row_end;
    task.head_begin = unit.head_begin;
    task.head_end = unit.head_end;
    task.begin = unit.keys.begin;
    task.end = unit.keys.end;
    if (cut.parts == 1) {
      plan_.tasks.push_back({task, unit.kernel, -1});
      return;
    }
    plan_.splits = std::max(plan_.splits, static_cast<int>(cut.parts));
    const int64_t row_floats = problem_.heads * kernels_.partial_stride(problem_);
    const int64_t split_floats = (unit.row_end - unit.row_begin) * row_floats;
    // The heads of a row are units of their own, but share their place among the partial results.
    if (unit.head_begin == 0) {
      region_ = plan_.partial_floats;
      plan_.partial_floats += static_cast<size_t>(cut.parts * split_floats);
      for (int64_t row = unit.row_begin; row < unit.row_end; row++) {
        const int64_t offset = static_cast<int64_t>(region_) + (row - unit.row_begin) * row_floats;
        plan_.merges.push_back({{s, row, nullptr, static_cast<int>(cut.parts), split_floats}, offset});
      }
    }
    for (int64_t part = 0; part < cut.parts; part++) {
      const Range keys = cut.part(unit.keys, part);
      task.begin = keys.begin;
      task.end = keys.end;
      plan_.tasks.push_back({task, unit.kernel, static_cast<int64_t>(region_) + part * split_floats});
    }
  }

  void size_scratch() {
    size_t floats = static_cast<size_t>(kernels_.partial_stride(problem_));
    bool rows = false, tile = false;
    int64_t keys = 0;
    for (const PlannedTask& planned : plan_.tasks) {
      rows |= planned.kernel == Kernel::rows;
      tile |= planned.kernel == Kernel::tile;
      keys = std::max({keys, planned.task.sequence.total, problem_.qk.columns});
    }
    if (options_.path == Path::naive) floats = std::max(floats, kernels_.naive_scratch(problem_, keys));
    if (rows) floats = std::max(floats, kernels_.rows_scratch(problem_, plan_.row_blocks.block));
    if (tile) {
      floats = std::max(floats, kernels_.tile_scratch(problem_, plan_.row_tile * problem_.group, plan_.kv_block_tile));
    }
    plan_.task_floats = floats;
  }

  const AttentionProblem& problem_;
  const LevelKernels& kernels_;
  const std::vector<Sequence>& sequences_;
  const PlanOptions& options_;
  Plan& plan_;
  int row_heads_ = 1;          // K/V heads that a row takes together
  int64_t split_ = INT64_MAX;  // keys of a part
  int64_t large_parts_ = 0;    // of a long range; 0 where those are not cut unevenly
  size_t region_ = 0;
};

}  // namespace

void make_plan(const AttentionProblem& problem, const LevelKernels& kernels, const std::vector<Sequence>& sequences,
               const PlanOptions& options, Plan& plan) {
  Planner(problem, kernels, sequences, options, plan).run();
}

}  // namespace pageloom
