#include "core/plan.hpp"

#include <algorithm>

namespace pageloom {

namespace {

// Below this many multiplications a call ends sooner than another thread would begin.
constexpr int64_t kSmallCall = 400'000;
// Keys below which a part of a range costs more to merge than it saves.
constexpr int64_t kShortestSplit = 256;
constexpr int64_t kRowsKvBlock = 128;
constexpr int64_t kMostRowsKvBlock = 256;
// Where so many bytes of a head lie together, hardware reads ahead by itself.
constexpr int64_t kReadAheadBytes = 512;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t round_down(int64_t a, int64_t unit) { return std::max(unit, a / unit * unit); }

struct Range {
  int64_t begin, end;
  int64_t size() const { return std::max<int64_t>(0, end - begin); }
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

  void choose_split() {
    split_ = INT64_MAX;
    if (options_.path == Path::naive || options_.path == Path::flash) return;
    int64_t units = 0, keys = 0, longest = 0;
    for (const Sequence& s : sequences_) {
      for_units(s, false, [&](const Unit& unit) {
        units++;
        keys += unit.keys.size();
        longest = std::max(longest, unit.keys.size());
      });
    }
    if (plan_.threads > 1 && units < 4 * plan_.threads && units % plan_.threads != 0) {
      const int64_t shares = units < plan_.threads ? plan_.threads : 2 * plan_.threads;
      split_ = std::max(kShortestSplit, ceil_div(keys, shares));
    }
    if (options_.path == Path::flash_decoding) split_ = std::min(split_, std::max<int64_t>(1, ceil_div(longest, 2)));
  }

  template <class Visit>
  void for_units(const Sequence& s, bool last_first, Visit visit) const {
    if (s.count == 0) return;
    Kernel kernel = kernel_of(problem_, s, kernels_.lanes);
    if (options_.path == Path::naive) kernel = Kernel::naive;
    const int64_t step = kernel == Kernel::tile ? plan_.row_tile : 1;
    const bool all_heads = plan_.threads == 1 || (kernel == Kernel::rows && heads_inside());
    const int heads = all_heads ? problem_.kv_heads : 1;
    const int64_t tiles = ceil_div(s.count, step);
    for (int64_t i = 0; i < tiles; i++) {
      const int64_t row = (last_first ? tiles - 1 - i : i) * step, end = std::min(s.count, row + step);
      for (int head = 0; head < problem_.kv_heads; head += heads) {
        visit(Unit{kernel, row, end, head, head + heads, keys_of(problem_, s, row, end - 1)});
      }
    }
  }

  void add_unit(const Sequence& s, const Unit& unit) {
    const int64_t parts = split_ == INT64_MAX ? 1 : std::max<int64_t>(1, ceil_div(unit.keys.size(), split_));
    AttentionTask task;
    task.sequence = s;
    task.row_begin = unit.row_begin;
    task.row_end = unit.row_end;
    task.head_begin = unit.head_begin;
    task.head_end = unit.head_end;
    task.begin = unit.keys.begin;
    task.end = unit.keys.end;
    if (parts == 1) {
      plan_.tasks.push_back({task, unit.kernel, -1});
      return;
    }
    plan_.splits = std::max(plan_.splits, static_cast<int>(parts));
    const int64_t row_floats = problem_.heads * kernels_.partial_stride(problem_);
    const int64_t split_floats = (unit.row_end - unit.row_begin) * row_floats;
    // The heads of a row are units of their own, but share their place among the partial results.
    if (unit.head_begin == 0) {
      region_ = plan_.partial_floats;
      plan_.partial_floats += static_cast<size_t>(parts * split_floats);
      for (int64_t row = unit.row_begin; row < unit.row_end; row++) {
        const int64_t offset = static_cast<int64_t>(region_) + (row - unit.row_begin) * row_floats;
        plan_.merges.push_back({{s, row, nullptr, static_cast<int>(parts), split_floats}, offset});
      }
    }
    const int64_t step = ceil_div(unit.keys.size(), parts);
    for (int64_t part = 0; part < parts; part++) {
      task.begin = std::min(unit.keys.end, unit.keys.begin + part * step);
      task.end = std::min(unit.keys.end, task.begin + step);
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
  int64_t split_ = INT64_MAX;  // keys of a part
  size_t region_ = 0;
};

}  // namespace

void make_plan(const AttentionProblem& problem, const LevelKernels& kernels, const std::vector<Sequence>& sequences,
               const PlanOptions& options, Plan& plan) {
  Planner(problem, kernels, sequences, options, plan).run();
}

}  // namespace pageloom
