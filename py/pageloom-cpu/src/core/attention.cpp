#include "core/attention.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/scratch.hpp"
#include "core/thread_pool.hpp"

namespace pageloom {

namespace {

int64_t capacity_of(const Addressing& addressing) { return addressing.columns * addressing.block_size; }

void resolve_all(const SequenceSource& source, int64_t capacity, std::vector<Sequence>& sequences) {
  sequences.clear();
  for (int64_t b = 0; b < source.batch_size; b++) sequences.push_back(source.resolve(b, capacity));
}

int threads_of(int most) {
  const int threads = ThreadPool::instance().size();
  return most > 0 ? std::min(most, threads) : threads;
}

PlanOptions options_of(const AttentionCall& call) {
  static const CacheSizes caches = cache_sizes();
  return {call.path, threads_of(call.threads), caches};
}

char* row_at(const Rows& rows, const Sequence& s, int64_t row, int64_t head) {
  const int64_t first = rows.sequence_stride ? s.index * rows.sequence_stride : s.query_row * rows.row_stride;
  return rows.data + first + row * rows.row_stride + head * rows.head_stride;
}

// Rows [begin, end) after the first of `s` are 0 and see nothing.
void clear_rows(const AttentionProblem& problem, const Sequence& s, int64_t begin, int64_t end) {
  const size_t bytes = static_cast<size_t>(problem.v_head_size) * (problem.output.element == Element::f32 ? 4 : 2);
  const LogSumExp& lse = problem.log_sum_exp;
  const int64_t first = lse.sequence_stride ? s.index * lse.sequence_stride : s.query_row * lse.row_stride;
  for (int64_t row = begin; row < end; row++) {
    for (int head = 0; head < problem.heads; head++) {
      std::memset(row_at(problem.output, s, row, head), 0, bytes);
      if (lse.data) {
        lse.data[first + row * lse.row_stride + head * lse.head_stride] = -std::numeric_limits<float>::infinity();
      }
    }
  }
}

// Rows that belong to no sequence.
void clear_idle_rows(const AttentionProblem& problem, const SequenceSource& source,
                     const std::vector<Sequence>& sequences) {
  if (!source.flat()) {
    for (const Sequence& s : sequences) clear_rows(problem, s, s.count, source.rows);
    return;
  }
  int64_t next = 0;
  for (const Sequence& s : sequences) {
    if (s.count == 0) continue;
    clear_rows(problem, Sequence{}, next, s.query_row);
    next = std::max(next, s.query_row + s.count);
  }
  clear_rows(problem, Sequence{}, next, source.rows);
}

struct Running {
  const AttentionCall& call;
  const Plan& plan;
  float* partials;
};

void run_task(void* context, int64_t index) {
  const Running& running = *static_cast<const Running*>(context);
  const AttentionProblem& problem = running.call.problem;
  const LevelKernels& kernels = *running.call.level->kernels;
  const PlannedTask& planned = running.plan.tasks[static_cast<size_t>(index)];
  AttentionTask task = planned.task;
  if (planned.offset >= 0) task.partial = running.partials + planned.offset;
  float* scratch = task_scratch().floats(running.plan.task_floats);
  switch (planned.kernel) {
    case Kernel::rows:
      return kernels.attend_rows(problem, task, running.plan.row_blocks, scratch);
    case Kernel::tile:
      return kernels.attend_tile(problem, task, running.plan.kv_block_tile, scratch);
    case Kernel::naive:
      return kernels.attend_naive(problem, task, scratch);
  }
}

void run_merge(void* context, int64_t index) {
  const Running& running = *static_cast<const Running*>(context);
  const PlannedMerge& planned = running.plan.merges[static_cast<size_t>(index)];
  MergeTask task = planned.task;
  task.partials = running.partials + planned.offset;
  running.call.level->kernels->merge(running.call.problem, task, task_scratch().floats(running.plan.task_floats));
}

void run_all(int threads, size_t count, ThreadPool::Task task, void* context) {
  if (threads > 1) return ThreadPool::instance().run(static_cast<int64_t>(count), threads, task, context);
  for (size_t i = 0; i < count; i++) task(context, static_cast<int64_t>(i));
}

}  // namespace

Plan AttentionCall::plan() const {
  std::vector<Sequence> sequences;
  resolve_all(source, capacity_of(problem.addressing), sequences);
  Plan plan;
  make_plan(problem, *level->kernels, sequences, options_of(*this), plan);
  return plan;
}

void AttentionCall::run() const {
  static thread_local std::vector<Sequence> sequences;
  static thread_local Plan plan;
  resolve_all(source, capacity_of(problem.addressing), sequences);
  clear_idle_rows(problem, source, sequences);
  make_plan(problem, *level->kernels, sequences, options_of(*this), plan);
  Running running = {*this, plan, plan.partial_floats ? call_scratch().floats(plan.partial_floats) : nullptr};
  run_all(plan.threads, plan.tasks.size(), run_task, &running);
  // A merge costs as much as a few keys: shared only where there are many.
  run_all(plan.merges.size() < 16 ? 1 : plan.threads, plan.merges.size(), run_merge, &running);
}

namespace {

struct AppendRun {
  const AppendCall& call;
  const std::vector<Sequence>& sequences;
  size_t floats;
  int64_t tokens_per_task;
};

// Task `index` takes the index-th share of all rows, counted over the sequences.
void run_append(void* context, int64_t index) {
  const AppendRun& running = *static_cast<const AppendRun*>(context);
  float* scratch = task_scratch().floats(running.floats);
  int64_t begin = index * running.tokens_per_task, end = begin + running.tokens_per_task;
  for (const Sequence& s : running.sequences) {
    for (int64_t row = std::max<int64_t>(0, begin); row < std::min(s.count, end); row++) {
      running.call.level->kernels->append_row(running.call.problem, s, row, scratch);
    }
    begin -= s.count;
    end -= s.count;
  }
}

}  // namespace

void AppendCall::run() const {
  static thread_local std::vector<Sequence> sequences;
  resolve_all(source, capacity_of(problem.addressing), sequences);
  int64_t tokens = 0;
  for (const Sequence& s : sequences) tokens += s.count;
  constexpr int64_t kTokensPerTask = 16;
  AppendRun running = {*this, sequences, level->kernels->append_scratch(problem), kTokensPerTask};
  const int64_t tasks = (tokens + kTokensPerTask - 1) / kTokensPerTask;
  run_all(threads_of(threads), static_cast<size_t>(tasks), run_append, &running);
}

}  // namespace pageloom
