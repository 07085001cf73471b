// How a call is cut into tasks: which kernel works on which rows, and which key ranges are split between threads.
#pragma once

#include <vector>

#include "core/levels.hpp"
#include "core/problem.hpp"

namespace pageloom {

enum class Path { choose, naive, flash, flash_decoding };
enum class Kernel : uint8_t { rows, tile, naive };

// `offset`: where its partial results are, in floats; -1 for a task that writes the output.
struct PlannedTask {
  AttentionTask task;
  Kernel kernel;
  int64_t offset;
};

struct PlannedMerge {
  MergeTask task;
  int64_t offset;
};

struct Plan {
  Path path = Path::flash;
  int threads = 1;
  int splits = 1;  // of the longest key range
  int64_t row_tile = 1, kv_block_tile = 0;
  RowBlocks row_blocks;
  size_t task_floats = 0, partial_floats = 0;
  std::vector<PlannedTask> tasks;
  std::vector<PlannedMerge> merges;
};

struct PlanOptions {
  Path path = Path::choose;
  int threads = 1;
  CacheSizes caches{};
};

// Keeps the vectors of `plan`, so that planning the same call again allocates nothing.
void make_plan(const AttentionProblem& problem, const LevelKernels& kernels, const std::vector<Sequence>& sequences,
               const PlanOptions& options, Plan& plan);

}  // namespace pageloom
